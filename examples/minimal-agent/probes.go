package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/prober/grpcprobe"
	"github.com/kubeparts/kubeparts/status"
)

// probes is the prober and what it needs to know of the rest:
//
//	cache, statuses -> prober -> statuses (readiness), workers (what is to be killed)
type probes struct {
	*prober.Manager
	grpc  *grpcprobe.Checker
	began time.Time

	mu sync.Mutex
	// owners are the probes' keys, without a kind, by the id of the container,
	// which is all that the runner knows. They are those of each pod's last turn.
	owners map[string]prober.Key
	ids    map[types.UID][]string
}

func (a *agent) newProbes() (err error) {
	p := &probes{began: time.Now(), owners: map[string]prober.Key{}, ids: map[types.UID][]string{}}
	if p.grpc, err = grpcprobe.New(grpcprobe.Config{Dial: a.node.dial}); err != nil {
		return err
	}
	p.Manager, err = prober.New(prober.Config{
		Lookup: a.target,
		Runner: commands{a.node.cri},
		GRPC:   p.grpc,
		Dial:   a.node.dial,
		Events: a.events,
		Logger: a.log,

		Observer: a.node.metrics.Prober(prober.Observer{}),
	})
	a.probes = p
	return err
}

// runProbes probes until ctx is done.
func (a *agent) runProbes(ctx context.Context) error {
	changes := a.probes.Results(ctx)
	var reader sync.WaitGroup
	reader.Go(func() {
		for change := range changes {
			a.probed(change)
		}
	})
	err := a.probes.Run(ctx)
	reader.Wait()
	return errors.Join(err, a.probes.grpc.Close())
}

// probed passes on what the runs of a probe amount to: it shows at once, and wakes the
// pod's worker, who may have to act on it, or be about to say what was true before.
func (a *agent) probed(c prober.Change) {
	good := c.Result == prober.Success
	switch c.Kind {
	case prober.Readiness:
		a.statuses.SetContainerReadiness(c.PodUID, c.ContainerID, good)
	case prober.Startup:
		a.statuses.SetContainerStartup(c.PodUID, c.ContainerID, good)
	case prober.Liveness:
		if good {
			return
		}
	}
	if pod, known := a.pods.GetPodByUID(c.PodUID); known {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Sync, Pod: pod})
	}
}

// target says what is known of a container. The pod need not be desired any more:
// readiness is probed to the end.
func (a *agent) target(uid types.UID, container string) (prober.Target, bool) {
	observed, err := a.cache.Get(uid)
	if err != nil {
		return prober.Target{}, false
	}
	c := observed.Container(container)
	if c == nil {
		return prober.Target{}, false
	}
	t := prober.Target{ID: c.GetId(), ExitCode: c.GetExitCode()}
	switch c.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		t.State, t.StartedAt = prober.Running, time.Unix(0, c.GetStartedAt())
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		t.State = prober.Exited
	default:
		return t, true
	}
	switch {
	case len(observed.IPs) > 0:
		t.PodIP = observed.IPs[0]
	case len(a.host.ips) > 0: // the pod is on the host's network
		t.PodIP = a.host.ips[0]
	}
	if t.State == prober.Running && t.StartedAt.Before(a.probes.began) {
		t.Started = a.wasStarted(uid, t.ID)
	}
	return t, true
}

// wasStarted says whether the container was said to have started, by the agent before
// this one too.
func (a *agent) wasStarted(uid types.UID, id string) bool {
	said, _ := a.statuses.GetPodStatus(uid)
	for _, st := range append(said.ContainerStatuses, said.InitContainerStatuses...) {
		if podspec.RuntimeID(st.ContainerID) == id {
			return st.Started != nil && *st.Started
		}
	}
	return false
}

// turn has the pod of a worker's turn probed, and remembers whose its containers are.
func (p *probes) turn(t podworker.Turn) {
	p.AddPod(t.Pod)
	p.own(t.Pod.UID, t.Status)
}

// own replaces what is remembered of the pod. With a nil status it is forgotten.
func (p *probes) own(uid types.UID, observed *podcache.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range p.ids[uid] {
		delete(p.owners, id)
	}
	delete(p.ids, uid)
	if observed == nil {
		return
	}
	for _, c := range observed.Containers {
		p.owners[c.GetId()] = prober.Key{PodUID: uid, Container: podcache.ContainerName(c)}
		p.ids[uid] = append(p.ids[uid], c.GetId())
	}
}

// end ends what is left of a pod's probes, when its containers have ended.
func (p *probes) end(uid types.UID) {
	p.RemovePod(uid)
	p.own(uid, nil)
}

// keep ends the probes of pods that known does not have.
func (p *probes) keep(known func(types.UID) bool) {
	p.CleanupPods(known)
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, ids := range p.ids {
		if known(uid) {
			continue
		}
		for _, id := range ids {
			delete(p.owners, id)
		}
		delete(p.ids, uid)
	}
}

// results are for the runner: whether a container may go on, and others may follow.
func (p *probes) results(id string) podrunner.ProbeResults {
	p.mu.Lock()
	key := p.owners[id]
	p.mu.Unlock()
	of := func(k prober.Kind) prober.Result { key.Kind = k; return p.Result(key, id) }
	startup := of(prober.Startup)
	return podrunner.ProbeResults{
		Started:       startup == prober.Success,
		StartupFailed: startup == prober.Failure, LivenessFailed: of(prober.Liveness) == prober.Failure,
	}
}

// forStatus are for the status of a pod.
func (p *probes) forStatus(uid types.UID) status.Probes {
	return func(container, id string) (startup, readiness status.ProbeResult) {
		s, r := p.Probed(uid, container, id)
		return status.ProbeResult(s), status.ProbeResult(r)
	}
}

// commands runs exec probes by CRI. There is no way to kill a command but to have
// the runtime do it: containerd does when the call is cancelled.
type commands struct {
	runtime lifecycle.ExecRunner
}

// Exec is for [prober.Runner].
func (c commands) Exec(ctx context.Context, r prober.ExecRequest) (exitCode int32, err error) {
	stdout, stderr, err := c.runtime.ExecSync(ctx, r.ContainerID, r.Command, r.Timeout)
	var exit utilexec.ExitError
	switch {
	case errors.As(err, &exit):
		exitCode = int32(exit.ExitStatus())
	case grpcstatus.Code(err) == codes.DeadlineExceeded:
		return 0, context.DeadlineExceeded
	case err != nil && isNotFound(err):
		return 0, fmt.Errorf("%w: %w", prober.ErrCommandNotFound, err)
	case err != nil:
		return 0, err
	}
	for _, part := range [][]byte{stdout, stderr} {
		_, _ = r.Output.Write(part) // never fails
	}
	return exitCode, nil
}

// isNotFound reports whether err means that the command is not in its container. CRI
// has no code for that, but runtimes pass on the text of runc or crun. CRI-O passes on
// lines of runc's log, which escape the quotes: once, with older runcs three times.
func isNotFound(err error) bool {
	text := strings.ReplaceAll(grpcstatus.Convert(err).Message(), `\`, "")
	_, runc, _ := strings.Cut(text, `exec: "`)
	_, crun, _ := strings.Cut(text, "executable file `")
	return strings.Contains(runc, "executable file not found") || strings.Contains(runc, "no such file or directory") ||
		strings.Contains(crun, "` not found") || strings.Contains(text, "not found in $PATH")
}
