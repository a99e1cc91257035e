package conformance

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func stopChecks() []check {
	return []check{
		{name: "stop/lets-it-end", run: checkStopGraceful},
		{name: "stop/kills-after-the-grace", run: checkStopKills},
		{name: "stop/without-grace-kills-at-once", run: checkStopAtOnce},
		{name: "stop/shorter-grace-wins", run: checkStopShorter},
		{name: "stop/cancelled-leaves-it", run: checkStopCancelled},
		{name: "stop/again-changes-nothing", run: checkStopAgain},
		{name: "stop/what-never-ran", run: checkStopCreated},
		{name: "remove/kills-what-runs", run: checkRemoveRunning},
		{name: "remove/again", run: checkRemoveAgain},
	}
}

// stopped stops a container and returns how long that took.
func (p *probe) stopped(id string, grace time.Duration) time.Duration {
	p.Helper()
	start := p.clock.Now()
	p.stop(id, grace)
	return p.clock.Since(start)
}

func checkStopGraceful(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	took := p.stopped(id, p.CallTimeout)
	p.must(took < p.Settle, "podworker: waits for the whole grace although the container has ended", "%v", took)
	st := p.status(id)
	p.must(exited(st), "podworker: a container still runs when StopContainer has returned", "%v", st)
	p.must(st.GetExitCode() == p.Sleeper.ExitCode,
		"status: a container that ended as asked seems to have failed, or never got SIGTERM", "%v", st)
}

func checkStopKills(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	took := p.stopped(id, p.Grace)
	p.must(took >= p.Grace, "podworker: a container is killed before its grace is over", "after %v of %v", took, p.Grace)
	p.must(took < p.Grace+p.Settle, "podworker: a container that ignores SIGTERM is not killed", "after %v of %v", took, p.Grace)
	p.killed(id)
}

// killed checks how a container shows that was killed.
func (p *probe) killed(id string) {
	p.Helper()
	st := p.status(id)
	p.must(exited(st), "podworker: a container still runs when it was killed", "%v", st)
	p.must(st.GetExitCode() == 137 && st.GetReason() == "Error", "status, oomwatch: a kill shows as something else", "%v", st)
}

func checkStopAtOnce(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	took := p.stopped(id, 0)
	p.must(took < p.Settle, "eviction: a pod that must go at once does not", "after %v", took)
	p.killed(id)
}

// headStart is how long a call gets to reach the runtime before the next one.
const headStart = 200 * time.Millisecond

// checkStopShorter is what happens when a pod that terminates is evicted.
func checkStopShorter(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	first, ctx := make(chan error, 1), p.call()
	go func() { first <- p.tryStopIn(ctx, id, p.CallTimeout-time.Second) }()
	// Nothing says when a stop has begun, so it gets a head start.
	p.pass(headStart)
	took := p.stopped(id, p.Grace)
	p.must(took < p.Grace+p.Settle, "eviction: cannot shorten the grace of a pod that terminates already", "after %v", took)
	start := p.clock.Now()
	p.ok(<-first, "podworker: a stop fails because another one was faster")
	took = p.clock.Since(start)
	p.must(took < p.Settle, "podworker: waits for a container that has ended", "%v", took)
}

func checkStopCancelled(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	ctx, cancel := context.WithTimeout(p.Context(), p.Grace)
	defer cancel()
	_, err := p.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 3600})
	p.code(codes.DeadlineExceeded, err, "podworker: takes a container for stopped that runs")
	st := p.status(id)
	p.must(st.GetState() == running, "podworker: a container is killed before its grace is over", "%v", st)
	took := p.stopped(id, p.Grace)
	p.must(took < p.Grace+p.Settle, "podworker: a stop that was cancelled holds up the next", "%v", took)
}

func checkStopAgain(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	p.stop(id, p.CallTimeout)
	before := p.status(id)
	for _, grace := range []time.Duration{0, p.Grace} {
		took := p.stopped(id, grace)
		p.must(took < p.Settle, "podworker: waits for a container that has ended", "%v", took)
	}
	after := p.status(id)
	p.must(after.String() == before.String(), "status: how a container ended changes when it is stopped again", "%v, was %v", after, before)
}

func checkStopCreated(p *probe) {
	id := p.create(p.runPod(), "app", p.Sleeper)
	took := p.stopped(id, p.Grace) // all of which CRI-O takes
	p.must(took < p.Grace+p.Settle, "podworker: waits for a container that never ran", "%v", took)
	p.ok(p.tryRemove(id), "containergc: a container that never ran stays for ever")
}

func checkRemoveRunning(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Stubborn)
	p.ok(p.tryRemove(id), "containergc: a container that runs cannot be removed")
	_, err := p.tryStatus(id)
	p.code(codes.NotFound, err, "containergc: a container that was removed is there")
	p.create(pod, "app", p.Sleeper) // the name is free
}

func checkRemoveAgain(p *probe) {
	id := p.launch(p.runPod(), "app", p.Completer)
	p.ended(id)
	for range 3 {
		p.gone(p.tryRemove(id), "containergc: fails at what it has removed")
	}
}
