package conformance

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func stopChecks() []check {
	return []check{
		{name: "stop/graceful", run: checkStopGraceful},
		{name: "stop/kills-after-grace-period", run: checkStopKills},
		{name: "stop/without-grace-kills-at-once", run: checkStopAtOnce},
		{name: "stop/shorter-grace-wins", run: checkStopShorter},
		{name: "stop/cancelled-call-leaves-container", run: checkStopCancelled},
		{name: "stop/again-changes-nothing", run: checkStopAgain},
		{name: "stop/created-container", run: checkStopCreated},
		{name: "remove/running-container", run: checkRemoveRunning},
		{name: "remove/again", run: checkRemoveAgain},
	}
}

// stopped stops a container, and returns how long the call took.
func (p *probe) stopped(id string, grace time.Duration) time.Duration {
	p.Helper()
	start := p.clock.Now()
	p.stop(id, grace)
	return p.clock.Since(start)
}

func checkStopGraceful(p *probe) {
	id := p.launch(p.runPod(), "app", p.Sleeper)
	took := p.stopped(id, p.CallTimeout)
	p.must(took < p.ChangeTimeout, "podworker: waits for the whole grace period although the container has exited", "%v", took)
	st := p.status(id)
	p.must(exited(st), "podworker: a container still runs after StopContainer has returned", "%v", st)
	p.must(st.GetExitCode() == p.Sleeper.ExitCode,
		"status: a container that exited after SIGTERM appears to have failed, or never got SIGTERM", "%v", st)
}

func checkStopKills(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	took := p.stopped(id, p.Grace)
	p.must(took >= p.Grace, "podworker: a container is killed before its grace period is over", "after %v of %v", took, p.Grace)
	p.must(took < p.Grace+p.ChangeTimeout, "podworker: a container that ignores SIGTERM is not killed", "after %v of %v", took, p.Grace)
	p.killed(id)
}

// killed checks the status of a killed container.
func (p *probe) killed(id string) {
	p.Helper()
	st := p.status(id)
	p.must(exited(st), "podworker: a container still runs after it was killed", "%v", st)
	p.must(st.GetExitCode() == 137 && st.GetReason() == "Error", "status, oomwatch: the status does not show that a container was killed", "%v", st)
}

func checkStopAtOnce(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	took := p.stopped(id, 0)
	p.must(took < p.ChangeTimeout, "eviction: a pod with grace period 0 is not stopped at once", "after %v", took)
	p.killed(id)
}

// headStart is how long a check waits for a call to reach the runtime before it sends the
// next call.
const headStart = 200 * time.Millisecond

// checkStopShorter checks a second stop with a shorter grace period, as in the eviction of
// a terminating pod.
func checkStopShorter(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	first, ctx := make(chan error, 1), p.call()
	go func() { first <- p.tryStopIn(ctx, id, p.CallTimeout-time.Second) }()
	// The start of a stop cannot be observed, so wait before the next call.
	p.pass(headStart)
	took := p.stopped(id, p.Grace)
	p.must(took < p.Grace+p.ChangeTimeout, "eviction: cannot shorten the grace period of a terminating pod", "after %v", took)
	start := p.clock.Now()
	p.ok(<-first, "podworker: a stop fails because a concurrent stop was faster")
	took = p.clock.Since(start)
	p.must(took < p.ChangeTimeout, "podworker: waits for an exited container", "%v", took)
}

func checkStopCancelled(p *probe) {
	id := p.launch(p.runPod(), "app", p.Stubborn)
	ctx, cancel := context.WithTimeout(p.Context(), p.Grace)
	defer cancel()
	_, err := p.rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 3600})
	p.code(codes.DeadlineExceeded, err, "podworker: treats a running container as stopped")
	st := p.status(id)
	p.must(st.GetState() == running, "podworker: a container is killed before its grace period is over", "%v", st)
	took := p.stopped(id, p.Grace)
	p.must(took < p.Grace+p.ChangeTimeout, "podworker: a cancelled stop delays the next stop", "%v", took)
}

func checkStopAgain(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Sleeper)
	p.stop(id, p.CallTimeout)
	before := p.status(id)
	for _, grace := range []time.Duration{0, p.Grace} {
		took := p.stopped(id, grace)
		p.must(took < p.ChangeTimeout, "podworker: waits for an exited container", "%v", took)
	}
	after := p.status(id)
	p.must(after.String() == before.String(), "status: the exit status of a container changes when it is stopped again", "%v, was %v", after, before)
}

func checkStopCreated(p *probe) {
	id := p.create(p.runPod(), "app", p.Sleeper)
	took := p.stopped(id, p.Grace) // CRI-O waits for the whole grace period
	p.must(took < p.Grace+p.ChangeTimeout, "podworker: waits for a container that was never started", "%v", took)
	p.ok(p.tryRemove(id), "containergc: cannot remove a container that was never started")
}

func checkRemoveRunning(p *probe) {
	pod := p.runPod()
	id := p.launch(pod, "app", p.Stubborn)
	p.ok(p.tryRemove(id), "containergc: cannot remove a running container")
	_, err := p.tryStatus(id)
	p.code(codes.NotFound, err, "containergc: a removed container still exists")
	p.create(pod, "app", p.Sleeper) // the name is free
}

func checkRemoveAgain(p *probe) {
	id := p.launch(p.runPod(), "app", p.Completer)
	p.ended(id)
	for range 3 {
		p.gone(p.tryRemove(id), "containergc: fails for a container that it removed before")
	}
}
