package podrunner

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// Input is what a plan is made from. Only Pod and Status are required; each of
// the others takes a part of the kubelet's behaviour away where it is missing.
type Input struct {
	// Pod is the desired pod. Its resources are those that were allocated to it.
	Pod *corev1.Pod
	// Status is what the runtime shows of it.
	Status *podcache.Status
	// Backoff says whether a container that ended at since must wait, until
	// when, and with which delay; lifecycle.Backoff.Until fits. Nil: nobody waits.
	Backoff func(key string, since time.Time) (until time.Time, delay time.Duration, waiting bool)
	// Probes says what probing found of the container of that id. Nil: nobody
	// probes, so that none fails and each has started as soon as it runs.
	Probes func(id string) ProbeResults
	// Attempts is the restart count of the next instance of a container of which
	// the runtime shows none: it may have forgotten them. Nil: it never has.
	Attempts func(name string) uint32
	// Restarting is Restarting of the pod's last plan, or, for the first one of an
	// agent, whether its condition AllContainersRestarting is True.
	Restarting bool
	// Resources are what containers are to have. Zero: nothing is resized.
	Resources Resources
	// Pinnings are the cpusets of running containers, by container ID. That of any other
	// stays as it is.
	Pinnings map[string]Pinning
}

// Plan computes what must be done to bring the pod from what the runtime shows
// to what its spec says. It is pure but for what the functions in its input
// read; it neither changes nor keeps its input.
//
// The rules are the kubelet's. One sandbox, which is made anew when it is gone,
// not ready, without an address or of another network mode. Ephemeral containers
// as soon as it is there, each once. Init containers one after the other, each
// until it has ended well, or, a sidecar, until it has started; those go on, and
// come again, for as long as the pod does (KEP-753). Then all regular
// containers. What ended comes again as policy and rules say (KEP-5307), after
// its back-off; what fails its probes or has another spec is replaced; what only
// has other resources is resized in place (KEP-1287). When all regular containers
// are done the pod is over, and its sidecars are stopped with it. A rule that
// asks for it begins the whole pod anew in its sandbox (KEP-5532).
func Plan(in Input) Actions {
	p := planner{Input: in}
	p.sandbox()
	restarting := p.restartsAll()
	p.Actions.Restarting = restarting
	switch {
	case restarting && p.CreateSandbox == "":
		p.restartAll()
		return p.Actions
	case !restarting && p.over():
		p.StopPod, p.CreateSandbox, p.SandboxAttempt = p.overReason(), "", 0
	default:
		if len(p.Status.Sandboxes)+len(p.live()) > 0 {
			p.StopPod = p.CreateSandbox // a dead sandbox, too, still holds its address
		}
		p.ephemeralContainers()
		if !restarting && p.initContainers() {
			p.regularContainers()
		}
		p.resizes()
		p.holdSandbox()
	}
	if p.StopPod == "" {
		p.strays()
		p.pins()
	}
	p.leftovers()
	return p.Actions
}

// planner gathers the actions. While a new sandbox is wanted no container of
// the old one counts as running.
type planner struct {
	Input
	Actions
}

func (p *planner) regularContainers() {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		s := p.here(c.Name)
		if (s == nil || !running(s)) && p.done(c) {
			continue
		}
		p.container(c, Regular, s)
	}
}

// here returns the newest container of that name if it is in the sandbox in use.
func (p *planner) here(name string) *runtimeapi.ContainerStatus {
	if p.CreateSandbox != "" {
		return nil
	}
	if s := p.Status.Active(name); s == p.Status.Container(name) {
		return s
	}
	return nil
}

// live returns the containers that run or may run.
func (p *planner) live() []*runtimeapi.ContainerStatus {
	var live []*runtimeapi.ContainerStatus
	for _, s := range p.Status.Containers {
		if !dead(s) {
			live = append(live, s)
		}
	}
	return live
}

// runs says whether anything of the pod runs or may run.
func (p *planner) runs() bool { return p.Status.Running() || len(p.live()) > 0 }

// kills says whether s is to be stopped.
func (p *planner) kills(s *runtimeapi.ContainerStatus) bool {
	return slices.ContainsFunc(p.Kill, func(k Kill) bool { return k.ID == s.GetId() })
}

// retry asks for another plan at the given time.
func (p *planner) retry(at time.Time) {
	if p.RetryAt.IsZero() || at.Before(p.RetryAt) {
		p.RetryAt = at
	}
}

func (p *planner) wait(name, reason, message string) {
	if p.Waiting == nil {
		p.Waiting = map[string]corev1.ContainerStateWaiting{}
	}
	p.Waiting[name] = corev1.ContainerStateWaiting{Reason: reason, Message: message}
}

// endOf returns when s, which has exited, ended.
func endOf(s *runtimeapi.ContainerStatus) time.Time { return time.Unix(0, s.GetFinishedAt()) }

// lastEnd returns when the newest instance of that name that has exited ended, also one
// whose start was broken off; zero if none has. Restarts back off from there, as in the
// kubelet.
func (p *planner) lastEnd(name string) time.Time {
	for _, s := range p.Status.Containers {
		if podcache.ContainerName(s) == name && s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return endOf(s)
		}
	}
	return time.Time{}
}

// exited says that s ran and has ended.
func exited(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !podcache.BrokenOff(s)
}

// unstarted says that s has never run.
func unstarted(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || podcache.BrokenOff(s)
}

func running(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// dead says that nothing of s runs: it has ended or was never started.
func dead(s *runtimeapi.ContainerStatus) bool {
	return exited(s) || unstarted(s)
}

// mayRun says that s runs, or that nobody knows.
func mayRun(s *runtimeapi.ContainerStatus) bool { return !dead(s) }

// unknown says that s is in a state that says nothing, or that no CRI has.
func unknown(s *runtimeapi.ContainerStatus) bool { return mayRun(s) && !running(s) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
