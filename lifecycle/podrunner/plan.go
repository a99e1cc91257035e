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

// Input is the input of [Plan]. Only Pod and Status are required. If another
// field is missing, a part of the kubelet's behaviour is disabled.
type Input struct {
	// Pod is the desired pod, with the resources that were allocated to it.
	Pod *corev1.Pod
	// Status is the pod's state in the runtime.
	Status *podcache.Status
	// Backoff reports whether a container or sandbox must wait for its
	// back-off, and returns the end and the length of the back-off. It gets the
	// key of the container or sandbox, and the time at which the container
	// ended or the sandbox was created. lifecycle.Backoff.Until implements
	// Backoff. Nil: no back-off.
	Backoff func(key string, since time.Time) (until time.Time, delay time.Duration, waiting bool)
	// Probes returns the probe results of the container with the given ID. Nil:
	// no container is probed. In that case no probe fails, and a container has
	// started as soon as it runs.
	Probes func(id string) ProbeResults
	// Attempts returns the restart count of the next instance of a container.
	// Plan calls Attempts if the runtime has no instance of the container:
	// earlier instances may have been removed. Nil: the count is 0.
	Attempts func(name string) uint32
	// Restarting is [Actions].Restarting of the pod's last plan. For the first
	// plan that an agent makes for the pod, Restarting is true if the pod's
	// condition AllContainersRestarting is True.
	Restarting bool
	// Replaced is the ID of the sandbox that a requested restart replaces. If
	// this sandbox is the newest, a new sandbox is created. All containers of
	// the replaced sandbox except ephemeral containers start again in the new
	// sandbox, whatever their restart policies are. Empty: no restart was
	// requested.
	Replaced string
	// Resources are the desired resources of containers. Zero: nothing is
	// resized.
	Resources Resources
	// Pinnings are the current and wanted cpusets of running containers, by
	// container ID. The cpusets of other containers do not change.
	Pinnings map[string]Pinning
}

// Plan computes the actions that make the pod match its spec. It is pure except
// for the functions in its input; it neither modifies nor retains its input.
//
// The rules are the kubelet's. A pod has one sandbox. A pod that has not ended
// gets a new sandbox in these cases:
//   - The pod has no sandbox.
//   - The newest sandbox is not ready, has no address, or has another network
//     mode than the spec.
//   - Several sandboxes are ready.
//   - A restart of the pod was requested ([Runner.Restart]).
//
// Ephemeral containers start as soon as the sandbox is ready, each only once.
// Init containers run one after the other: each must succeed or, if it is a
// sidecar, have started before the next init container starts. Sidecars keep
// running, and are restarted, as long as the pod runs (KEP-753). After the init
// containers, all regular containers start.
//
// A container that has ended is restarted after its back-off if its policy and
// rules require this (KEP-5307). A container that fails a liveness or startup
// probe is stopped, and restarted if its policy permits this. A container whose
// definition has changed is replaced. If only the resources of a container have
// changed, it is resized in place (KEP-1287). When all regular containers
// have ended and none will be restarted, the pod has ended, and its sidecars
// are stopped. A restart rule may restart all containers of the pod in its
// sandbox (KEP-5532).
func Plan(in Input) Actions {
	p := planner{Input: in}
	p.sandbox()
	restarting := p.restartsAll()
	p.Actions.Restarting = restarting
	switch {
	case restarting && p.CreateSandbox == "":
		p.restartAll()
		return p.Actions
	case !restarting && p.hasEnded():
		p.StopPod, p.CreateSandbox, p.SandboxAttempt = p.stopReason(), "", 0
	default:
		if len(p.Status.Sandboxes)+len(p.live()) > 0 {
			p.StopPod = p.CreateSandbox // stopping a sandbox that is not ready releases its address
		}
		p.ephemeralContainers()
		if !restarting && p.initContainers() {
			p.regularContainers()
		}
		p.resizes()
		p.delaySandbox()
	}
	if p.StopPod == "" {
		p.strays()
		p.pins()
	}
	p.leftovers()
	return p.Actions
}

// planner collects the actions of a plan. If the plan creates a new sandbox,
// [planner.current] returns no container of the old sandbox.
type planner struct {
	Input
	Actions
}

func (p *planner) regularContainers() {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		s := p.current(c.Name)
		if (s == nil || !running(s)) && p.done(c) {
			continue
		}
		p.container(c, Regular, s)
	}
}

// current returns the newest container with the given name if this container is
// in the current sandbox, else nil.
func (p *planner) current(name string) *runtimeapi.ContainerStatus {
	if p.CreateSandbox != "" {
		return nil
	}
	if s := p.Status.Active(name); s == p.Status.Container(name) {
		return s
	}
	return nil
}

// live returns the containers that run or are in an unknown state.
func (p *planner) live() []*runtimeapi.ContainerStatus {
	var live []*runtimeapi.ContainerStatus
	for _, s := range p.Status.Containers {
		if !dead(s) {
			live = append(live, s)
		}
	}
	return live
}

// runs reports whether it is possible that a container or sandbox of the pod
// is running.
func (p *planner) runs() bool { return p.Status.Running() || len(p.live()) > 0 }

// kills reports whether the plan stops s.
func (p *planner) kills(s *runtimeapi.ContainerStatus) bool {
	return slices.ContainsFunc(p.Kill, func(k Kill) bool { return k.ID == s.GetId() })
}

// retry requests that the next plan is made at the given time at the latest.
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

// endOf returns when the exited container s ended.
func endOf(s *runtimeapi.ContainerStatus) time.Time { return time.Unix(0, s.GetFinishedAt()) }

// lastEnd returns when the newest exited instance of the container with the
// given name ended, or zero if no instance has exited. An instance whose start
// was interrupted counts as exited. The restart back-off counts from this time,
// as in the kubelet.
func (p *planner) lastEnd(name string) time.Time {
	for _, s := range p.Status.Containers {
		if podcache.ContainerName(s) == name && s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			return endOf(s)
		}
	}
	return time.Time{}
}

// exited reports whether s ran and has ended.
func exited(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && !podcache.StartInterrupted(s)
}

// unstarted reports whether s has never run.
func unstarted(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED || podcache.StartInterrupted(s)
}

func running(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// dead reports whether s does not run: it has ended or was never started.
func dead(s *runtimeapi.ContainerStatus) bool {
	return exited(s) || unstarted(s)
}

// mayRun reports whether s runs or is in an unknown state.
func mayRun(s *runtimeapi.ContainerStatus) bool { return !dead(s) }

// unknown reports whether s is in an unknown state, or in a state that the CRI does
// not define.
func unknown(s *runtimeapi.ContainerStatus) bool { return mayRun(s) && !running(s) }

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
