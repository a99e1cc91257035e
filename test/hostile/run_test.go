//go:build linux && hostile

package hostile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubeparts/kubeparts/fakecri"
)

// limits are the limits for the agent in a run. They allow for a busy machine.
type limits struct {
	livez   time.Duration // response time of /livez, without the time that test or agent waited for a CPU
	begin   time.Duration // from the start of the process to its first response
	recover time.Duration // from the end of an attack until all steady pods run
	end     time.Duration // from SIGTERM to the exit of the process
	use     use
	many    int // number of entries in the largest hostile manifests
	files   int // number of hostile manifests at a time
}

// phase is a part of a run with one kind of attack.
type phase struct {
	name   string
	attack attack
	kills  bool // the agent is killed and started again and again
	harm   bool // containers and sandboxes are killed, and the runtime is restarted
	same   bool // the attacked agent process must recover; otherwise it is replaced by a new process first
	steps  int  // number of changes of manifests, one every 100 ms
}

// run is one run: a node, the proxy before it, the agent processes, and statistics.
type run struct {
	seed   uint64
	rng    *rand.Rand
	limits limits
	binary string
	dir    string

	node    *fakecri.Node
	servers *servers
	proxy   *proxy
	monitor *monitor
	out     output
	agent   *agent
	kinds   []manifest
	addr    string

	mu              sync.Mutex
	phase           string
	found           []string // findings
	manifest        map[string]int
	most            use
	slowest         time.Duration // longest response time of /livez
	slowestRecovery time.Duration
	starts          int // of agents
	refused         int // starts that ended because the runtime failed
	kills           int
	terms           int
	harmed          int
	revision        int
	stalled         time.Duration
}

// report records a finding.
func (r *run) report(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, fmt.Sprintf("seed %d, phase %q: %s", r.seed, r.phase, text))
}

func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.found) > 0
}

// play executes the run. It returns an error of the test itself; findings are in r.found.
func (r *run) play(ctx context.Context, phases []phase) (err error) {
	ctx, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	r.rng, r.manifest = rand.New(rand.NewPCG(r.seed, 0)), map[string]int{}
	r.kinds = hostileManifests(r.limits.many)
	if err := r.open(ctx, &parts); err != nil {
		return err
	}
	defer r.servers.close()
	defer r.node.Shutdown()
	parts.Go(func() { r.monitor.run(ctx, r.report) })
	parts.Go(func() { r.watchClock(ctx) })

	r.writeSteady()
	if err := r.start(); err != nil {
		return err
	}
	defer func() { r.agent.kill() }()
	r.setPhase("calm")
	if err := r.recover(ctx); err != nil {
		return err
	}
	for _, p := range phases {
		if r.failed() {
			return nil
		}
		if err := r.playPhase(ctx, p); err != nil {
			return err
		}
	}
	if r.failed() {
		return nil
	}
	return r.finish(ctx)
}

// open creates the node, with pods of other clients, and the proxy.
func (r *run) open(ctx context.Context, parts *sync.WaitGroup) (err error) {
	r.servers = newServers(ctx)
	images, programs := fakecri.DemoImages(), fakecri.DemoPrograms()
	images = append(images, fakecri.Image{Name: badImage, SizeBytes: 1 << 20})
	for name, p := range programs {
		p.Ports = nil // two containers of a pod cannot listen on the same port
		programs[name] = p
	}
	programs[badImage] = program()
	r.node, err = fakecri.New(fakecri.Config{
		Images: images, Programs: programs, Seed: r.seed, Listen: r.servers.listen, PodNetwork: netip.MustParsePrefix("127.91.0.0/16"),
	})
	if err != nil {
		return err
	}
	others, err := foreignPods(ctx, r.node)
	if err != nil {
		return err
	}
	r.monitor = &monitor{node: r.node, others: others}
	v, err := r.monitor.snapshot(ctx)
	if err != nil {
		return err
	}
	r.monitor.before = v.foreign
	if err := os.MkdirAll(r.path("manifests"), 0o755); err != nil {
		return err
	}
	// Use a short restart back-off, which is not tested here.
	config := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncrashLoopBackOff: {maxContainerRestartPeriod: 1s}\n"
	if err := os.WriteFile(r.path("config.yaml"), []byte(config), 0o600); err != nil {
		return err
	}
	below, err := net.Listen("unix", r.path("fakecri.sock"))
	if err != nil {
		return err
	}
	above, err := net.Listen("unix", r.path("cri.sock"))
	if err != nil {
		return errors.Join(err, below.Close())
	}
	if r.proxy, err = newProxy(r.path("fakecri.sock"), r.seed, others); err != nil {
		return errors.Join(err, below.Close(), above.Close())
	}
	r.addr, err = freeAddress()
	for _, serve := range []func() error{
		func() error { return r.node.Serve(ctx, below) },
		func() error { return r.proxy.run(ctx, above) },
	} {
		parts.Go(func() {
			if err := serve(); err != nil && ctx.Err() == nil {
				r.report("a server of the test failed: " + err.Error())
			}
		})
	}
	return err
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

func (r *run) setPhase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.phase = name
}

// playPhase carries out an attack, ends it, and checks that the agent recovers.
func (r *run) playPhase(ctx context.Context, p phase) error {
	r.setPhase(p.name)
	if !p.attack.honest() {
		r.monitor.setLax(true)
	}
	r.proxy.begin(p.attack)
	if p.attack.flood > 0 { // an agent whose stream was cut would get the flood too late
		if err := r.restart(false); err != nil {
			return err
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	asked := time.Time{}
	for step := 0; step < p.steps && !r.failed(); step++ {
		<-tick.C
		for range 3 {
			if err := r.churn(); err != nil {
				return err
			}
		}
		if p.harm && r.rng.IntN(5) == 0 {
			r.harm(ctx)
		}
		if p.kills && r.rng.IntN(10) == 0 {
			if err := r.restart(r.rng.IntN(4) == 0); err != nil {
				return err
			}
		}
		if time.Since(asked) > 500*time.Millisecond {
			asked = time.Now()
			r.ask()
		}
		if err := r.revive(); err != nil {
			return err
		}
	}
	if !p.same && !r.failed() {
		if err := r.restart(true); err != nil {
			return err
		}
	}
	r.setPhase("after " + p.name)
	r.proxy.begin(attack{})
	if !p.attack.honest() {
		r.writeSteady() // pods that were reported as finished are not started again
	}
	return r.recover(ctx)
}

// start starts an agent.
func (r *run) start() (err error) {
	r.starts++
	r.agent, err = startAgent(r.binary, r.addr, &r.out, "--config", r.path("config.yaml"), "--cri-endpoint", "unix://"+r.path("cri.sock"),
		"--manifests", r.path("manifests"), "--root-dir", r.path("root"), "--node-name", nodeName, "--agent-name", agentName,
		"--max-pods", "500", "--eviction-hard", "imagefs.available<1%", "--enable-pprof")
	return err
}

// revive restarts an agent that exited at its start because the runtime did not respond.
// Any other exit by itself is a finding.
func (r *run) revive() error {
	if !r.agent.ended(0) {
		return nil
	}
	if r.agent.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(r.out.lines(5), "connect to the CRI runtime at ") {
		r.report(fmt.Sprintf("the agent exited unexpectedly: %v", r.agent.cmd.ProcessState))
		return nil
	}
	r.refused++
	return r.start()
}

// restart ends the agent, with SIGTERM if gently is set and else with SIGKILL, and starts a
// new one.
func (r *run) restart(gently bool) error {
	switch {
	case r.agent.ended(0):
		return nil // revive handles it
	case gently:
		r.term()
	default:
		r.kills++
		r.agent.kill()
	}
	return r.start()
}

// term sends SIGTERM to the agent, and waits until it has exited.
func (r *run) term() {
	r.terms++
	begin, stalled := time.Now(), r.stalls()
	// Wait for the first response: before the agent installs its handler, SIGTERM kills it.
	begun := r.alive(r.limits.begin)
	_ = r.agent.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has exited, which is checked below
	for !r.agent.ended(100 * time.Millisecond) {
		if time.Since(begin)-(r.stalls()-stalled) > r.limits.begin+r.limits.end {
			r.report(fmt.Sprintf("the agent was still running %v after SIGTERM", time.Since(begin).Round(time.Second)))
			_ = r.agent.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks
			r.agent.ended(5 * time.Second)
			r.agent.kill()
			return
		}
	}
	if code := r.agent.cmd.ProcessState.ExitCode(); begun && code != 0 {
		r.report(fmt.Sprintf("the agent exited with %v after SIGTERM", r.agent.cmd.ProcessState))
	}
}

// alive waits for the first response of the agent, and reports whether it arrived.
func (r *run) alive(patience time.Duration) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !r.agent.ended(0) && time.Since(r.agent.began) < patience {
		if code, _, err := r.agent.get("/livez", patience); err == nil && code == 200 {
			return true
		}
		<-tick.C
	}
	return false
}

// ask checks the response time and the resource usage of the agent.
func (r *run) ask() {
	pid := r.agent.cmd.Process.Pid
	before, waited, begin := r.stalls(), waits(pid), time.Now()
	_, _, err := r.agent.get("/livez", r.limits.livez+10*time.Second)
	took := time.Since(begin)
	waitedUntil := waits(pid)
	took -= max(r.stalls()-before, longestWait(waited, waitedUntil))
	if r.agent.ended(0) {
		return
	}
	begun := time.Since(r.agent.began)-longestWait(nil, waitedUntil) > r.limits.begin
	inTime := took <= r.limits.livez
	// On a busy machine the request may time out although the agent was fast enough.
	patienceEnded := errors.Is(err, context.DeadlineExceeded)
	if !inTime || err != nil && begun && !patienceEnded {
		r.report(fmt.Sprintf("/livez: %v after %v", err, took.Round(time.Millisecond)))
		return
	}
	used := r.agent.use()
	r.slowest, r.most = max(r.slowest, took), r.most.most(used)
	if used.most(r.limits.use) != r.limits.use {
		r.report(fmt.Sprintf("the agent uses %+v, the limit is %+v", used, r.limits.use))
	}
}

// recover waits until all steady pods run and nothing runs twice. Exceeding the limit is a
// finding.
func (r *run) recover(ctx context.Context) error {
	begin := time.Now()
	err := r.await(ctx, "the steady pods to run", func() string {
		v, err := r.monitor.snapshot(ctx)
		if err != nil {
			return err.Error()
		}
		running, err := r.agent.running()
		if err != nil {
			return err.Error()
		}
		missing := v.doubles()
		for name := range steadyPods() {
			full := name + "-" + nodeName
			if n := v.byName[full]; n != [2]int{1, steadyContainers(name)} || !running[full] {
				missing = append(missing, fmt.Sprintf("%s has %d sandboxes and %d containers, running: %v", name, n[0], n[1], running[full]))
			}
		}
		slices.Sort(missing)
		return strings.Join(missing, "; ")
	})
	r.slowestRecovery = max(r.slowestRecovery, time.Since(begin))
	r.monitor.setLax(false)
	return err
}

// finish removes all manifests, and checks that no object of the agent is left.
func (r *run) finish(ctx context.Context) error {
	r.setPhase("the end")
	entries, err := os.ReadDir(r.path("manifests"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(r.path("manifests"), e.Name())); err != nil {
			return err
		}
	}
	err = r.await(ctx, "the removal of all objects", func() string {
		v, err := r.monitor.snapshot(ctx)
		switch {
		case err != nil:
			return err.Error()
		case len(v.ours) == 0 && len(v.ready) == 0:
			return ""
		}
		return "still existing: " + strings.Join(v.ours, "; ")
	})
	r.term()
	return err
}

// await polls missing until it returns an empty string. Exceeding the limit is a finding.
func (r *run) await(ctx context.Context, what string, missing func() string) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	begin, stalled, asked := time.Now(), r.stalls(), time.Now()
	for !r.failed() && ctx.Err() == nil {
		last := missing()
		if last == "" {
			return nil
		}
		if time.Since(begin)-(r.stalls()-stalled) > r.limits.recover {
			r.report(fmt.Sprintf("waited %v for %s; last: %s\n%s", r.limits.recover, what, last, r.explain()))
			return nil
		}
		if time.Since(asked) > 500*time.Millisecond {
			asked = time.Now()
			r.ask()
		}
		if err := r.revive(); err != nil {
			return err
		}
		<-tick.C
	}
	return nil
}

// explain returns the agent's own explanation of the state of each steady pod.
func (r *run) explain() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(steadyPods())) {
		_, body, err := r.agent.get("/agent/explain/default/"+name+"-"+nodeName+"?output=text", 5*time.Second)
		if err != nil {
			body = []byte(err.Error())
		}
		fmt.Fprintf(&b, "explain %s:\n%s\n", name, body)
	}
	return b.String()
}

// watchClock measures how long the test got no CPU. It also checks the agent's output and
// calls.
func (r *run) watchClock(ctx context.Context) {
	const period = 20 * time.Millisecond
	tick := time.NewTicker(period)
	defer tick.Stop()
	for last := time.Now(); ctx.Err() == nil; {
		<-tick.C
		now := time.Now()
		r.mu.Lock()
		if late := now.Sub(last) - period; late > period {
			r.stalled += late
		}
		r.mu.Unlock()
		if sign := r.out.crash(); sign != "" && !r.failed() {
			r.report("the agent printed " + sign)
		}
		if trespasses := r.proxy.trespasses(); len(trespasses) > 0 && !r.failed() {
			r.report(fmt.Sprintf("calls that would change objects of other clients: %q", trespasses))
		}
		last = now
	}
}

func (r *run) stalls() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stalled
}

// String returns the statistics of the run.
func (r *run) String() string {
	r.proxy.mu.Lock()
	t := r.proxy.tried
	r.proxy.mu.Unlock()
	conns, kinds := r.servers.total()
	files := 0
	for _, n := range r.manifest {
		files += n
	}
	return fmt.Sprintf("seed %d: %d calls, %d responses with changed fields, %d with changed bytes, %d failed, %d hung, %d delayed (%d cases of method and fault); "+
		"%d false events, %d streams cut, %d lists with foreign pods; %d connections to %d kinds of bad servers; %d manifests of %d kinds; "+
		"%d agents started: %d killed, %d stopped with SIGTERM, %d failed to start; %d kills of containers, sandboxes and runtimes; "+
		"%d checks of the monitor; at most %d MiB, %d descriptors, %d goroutines, %v for /livez, %v to recover",
		r.seed, t.calls, t.lies, t.garbage, t.failed, t.hung, t.late, len(t.cases), t.floods, t.cut, t.foreign, conns, kinds, files, len(r.manifest),
		r.starts, r.kills, r.terms, r.refused, r.harmed, r.monitor.checks, r.most.memoryMiB, r.most.descriptors, r.most.goroutines,
		r.slowest.Round(time.Millisecond), r.slowestRecovery.Round(time.Millisecond))
}
