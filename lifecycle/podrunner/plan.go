package podrunner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// Input is what a plan is made from.
type Input struct {
	// Pod is the desired pod. Required.
	Pod *corev1.Pod
	// Status is what the runtime shows of it. Required.
	Status *podcache.Status
	// Backoff says whether a container that ended at since must wait, until
	// when, and with which delay; lifecycle.Backoff.Until fits. Nil: nobody waits.
	Backoff func(key string, since time.Time) (until time.Time, delay time.Duration, waiting bool)
}

// Plan computes what must be done to bring the pod from what the runtime shows
// to what its spec says. It is pure but for reading Input.Backoff; it neither
// changes nor keeps its input.
//
// The rules are the kubelet's: one sandbox, which is made anew when it is gone,
// not ready, without an address or of another network mode; init containers one
// after the other, each until it has ended well; then all regular containers;
// those that ended come again as the restart policy says, after their back-off;
// those whose spec changed are replaced whatever the policy says.
func Plan(in Input) Actions {
	p := planner{Input: in}
	p.sandbox()
	if p.over() {
		p.StopPod, p.CreateSandbox, p.SandboxAttempt = p.overReason(), "", 0
	} else {
		if len(p.Status.Sandboxes)+len(p.live()) > 0 {
			p.StopPod = p.CreateSandbox // a dead sandbox, too, still holds its address
		}
		if p.initContainers() {
			p.regularContainers()
		}
		p.holdSandbox()
	}
	if p.StopPod == "" {
		p.strays()
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

// sandbox decides whether the newest sandbox can be used.
func (p *planner) sandbox() {
	if len(p.Status.Sandboxes) == 0 {
		p.CreateSandbox = "the pod has no sandbox"
		return
	}
	newest, ready := p.Status.Sandboxes[0], 0
	for _, s := range p.Status.Sandboxes {
		if s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	network := newest.GetLinux().GetNamespaces().GetOptions().GetNetwork()
	switch {
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		p.CreateSandbox = "the sandbox is not ready"
	case ready > 1:
		p.CreateSandbox = "the pod has several ready sandboxes"
	case newest.GetLinux() != nil && network != networkMode(p.Pod):
		p.CreateSandbox = "the sandbox has another network mode"
	case !p.Pod.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		p.CreateSandbox = "the sandbox has no address"
	}
	if p.CreateSandbox != "" {
		p.SandboxAttempt = newest.GetMetadata().GetAttempt() + 1
	}
}

// holdSandbox puts a new sandbox off while the back-off says so. One that dies
// at once would otherwise be made again as fast as its death is noticed.
func (p *planner) holdSandbox() {
	if p.CreateSandbox == "" || len(p.Status.Sandboxes) == 0 || p.Backoff == nil {
		return
	}
	until, delay, waiting := p.Backoff(sandboxKey(p.Pod.UID), madeAt(p.Status.Sandboxes[0]))
	if !waiting {
		return
	}
	for _, s := range p.Start {
		p.wait(s.Name, lifecycle.CrashLoopBackOff, fmt.Sprintf("back-off %s re-creating failed sandbox of pod=%s", delay, podID(p.Pod)))
	}
	p.retry(until)
	p.CreateSandbox, p.SandboxAttempt, p.Start = "", 0, nil
	if !p.runs() {
		p.StopPod = ""
	}
}

// over says whether the pod has run to its end: no container of it will start
// again, and none runs in a usable sandbox.
func (p *planner) over() bool {
	if failed, _ := p.initFailed(); failed != nil {
		return true
	}
	if p.CreateSandbox == "" && len(p.live()) > 0 {
		return false
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if !p.done(c) {
			return false
		}
	}
	return true
}

// overReason says why a pod that is over still has to be stopped, if it has.
func (p *planner) overReason() Reason {
	failed, code := p.initFailed()
	switch {
	case !p.runs():
		return ""
	case failed != nil:
		return Reason(fmt.Sprintf("init container %s failed with exit code %d and is not restarted", failed.Name, code))
	case p.CreateSandbox != "":
		return p.CreateSandbox + " and no container is restarted"
	default:
		return "every container has ended and none is restarted"
	}
}

// done says whether a regular container has ended and is not to run again.
func (p *planner) done(c *corev1.Container) bool {
	code, ended := p.outcome(p.Status.Container(c.Name))
	return ended && !podspec.ShouldRestart(p.Pod, c, code)
}

// outcome says whether s has ended, and with which exit code. Nobody sees the end
// of a container that goes down with its sandbox; as in the pod's status it
// counts as killed. With Never it is not started again: it may have done its work.
func (p *planner) outcome(s *runtimeapi.ContainerStatus) (exitCode int32, ended bool) {
	switch {
	case s == nil || s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		return 0, false
	case exited(s):
		return s.GetExitCode(), true
	default:
		return killed, p.lost(s)
	}
}

// lost says whether s is not in the sandbox that is in use.
func (p *planner) lost(s *runtimeapi.ContainerStatus) bool {
	return p.CreateSandbox != "" || p.Status.SandboxOf[s.GetId()] != p.Status.Sandboxes[0].GetId()
}

// killed is the exit code of what ended unseen: 128 and SIGKILL.
const killed = 137

// initFailed returns the init container that failed for good, and its exit code;
// nil if none did. One in an unknown state has failed, as in the kubelet.
func (p *planner) initFailed() (*corev1.Container, int32) {
	if p.initialized() {
		return nil, 0
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		s := p.Status.Container(c.Name)
		code, ended := p.outcome(s)
		if s != nil && unknown(s) {
			code, ended = killed, true
		}
		if ended && code != 0 && !podspec.ShouldRestart(p.Pod, c, code) {
			return c, code
		}
	}
	return nil, 0
}

// initialized says whether a regular container was ever made in the sandbox
// that is in use: that is only done when all init containers have ended well,
// and they may have been removed since.
func (p *planner) initialized() bool {
	return slices.ContainsFunc(p.Pod.Spec.Containers, func(c corev1.Container) bool {
		return p.here(c.Name) != nil
	})
}

// here returns the newest container of that name if it is in the sandbox in use.
func (p *planner) here(name string) *runtimeapi.ContainerStatus {
	if p.CreateSandbox != "" {
		return nil
	}
	return p.Status.Active(name)
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

// initContainers plans the next init container and says whether all are done.
// Those before the last one that was made are done, even if the runtime has
// forgotten them.
func (p *planner) initContainers() bool {
	if p.initialized() {
		return true
	}
	all := p.Pod.Spec.InitContainers
	next := 0
	for i := range all {
		switch s := p.here(all[i].Name); {
		case s == nil:
		case exited(s) && s.GetExitCode() == 0:
			next = i + 1
		default:
			next = i
		}
	}
	if next == len(all) {
		return true
	}
	p.container(&all[next], true, p.here(all[next].Name))
	return false
}

func (p *planner) regularContainers() {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		s := p.here(c.Name)
		if s == nil && p.done(c) {
			continue // in a sandbox that is gone
		}
		p.container(c, false, s)
	}
}

// container plans what to do with c, whose newest instance in the sandbox is s,
// nil if there is none.
func (p *planner) container(c *corev1.Container, init bool, s *runtimeapi.ContainerStatus) {
	start := Start{Name: c.Name, Init: init, Reason: "it has not run yet"}
	last := p.Status.Container(c.Name)
	if last != nil {
		start.Attempt = uint32(podcache.RestartCount(last)) + 1
		start.Reason = "its sandbox is new"
		if exited(last) {
			start.After = time.Unix(0, last.GetFinishedAt())
		}
	}
	switch {
	case s == nil:
	case s.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING:
		if !p.changed(c, s) {
			return
		}
		start.Reason = Reason(fmt.Sprintf("Container %s definition changed, will be restarted", c.Name))
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: c.Name, Reason: start.Reason})
	case s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED:
		start.Attempt = uint32(podcache.RestartCount(s))
		start.Reason = "it was created but not started"
		if !p.changed(c, s) {
			start.ID = s.GetId()
			break
		}
		p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: c.Name, Reason: "it was never started and its definition changed"})
	case exited(s):
		if !podspec.ShouldRestart(p.Pod, c, s.GetExitCode()) {
			return
		}
		start.Reason = Reason(fmt.Sprintf("it ended with exit code %d", s.GetExitCode()))
	default:
		start.Reason = "its state is unknown"
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: c.Name, Reason: unknownReason(init)})
	}
	if start.After.IsZero() || !p.backsOff(c, start.After) {
		p.Start = append(p.Start, start)
	}
}

// unknownReason is the kubelet's, word for word.
func unknownReason(init bool) Reason {
	if init {
		return `Init container is in "unknown" state, try killing it before restart`
	}
	return `Container is in "unknown" state, try killing it before restart`
}

// backsOff records that c must wait, if it must.
func (p *planner) backsOff(c *corev1.Container, since time.Time) bool {
	if p.Backoff == nil {
		return false
	}
	until, delay, waiting := p.Backoff(RestartKey(p.Pod, c), since)
	if !waiting {
		return false
	}
	p.wait(c.Name, lifecycle.CrashLoopBackOff, lifecycle.CrashLoopMessage(delay, c.Name, p.Pod))
	p.retry(until)
	return true
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

// changed says whether s was made from another version of c. A container that
// carries no hash was made by somebody who keeps none, and is left alone.
func (p *planner) changed(c *corev1.Container, s *runtimeapi.ContainerStatus) bool {
	hash := s.GetAnnotations()[crilabels.Hash]
	return hash != "" && hash != podspec.ContainerHash(c)
}

// RestartKey is the key of a container's restart back-off. A change of the
// container's spec starts afresh.
func RestartKey(pod *corev1.Pod, c *corev1.Container) string {
	return string(pod.UID) + "/" + c.Name + "/" + podspec.ContainerHash(c)
}

// sandboxKey is the key of the back-off of a pod's sandbox.
func sandboxKey(uid types.UID) string { return string(uid) + "/sandbox" }

// madeAt is when s was made; its end is not in the CRI.
func madeAt(s *runtimeapi.PodSandboxStatus) time.Time { return time.Unix(0, s.GetCreatedAt()) }

func exited(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// dead says that nothing of s runs: it has ended or was never started.
func dead(s *runtimeapi.ContainerStatus) bool {
	return exited(s) || s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED
}

// unknown says that s is in a state that says nothing, or that no CRI has.
func unknown(s *runtimeapi.ContainerStatus) bool {
	return !dead(s) && s.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
