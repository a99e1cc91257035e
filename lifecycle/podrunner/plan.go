package podrunner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	switch {
	case p.over():
		p.StopPod = p.idleReason()
		p.CreateSandbox = ""
	default:
		if p.CreateSandbox != "" && (p.Status.Running() || len(p.live()) > 0) {
			p.StopPod = p.CreateSandbox
		}
		if p.initContainers() {
			p.regularContainers()
		}
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

// over says whether the pod has run to its end: no container of it will start
// again, and none runs in a usable sandbox.
func (p *planner) over() bool {
	if len(p.Status.Sandboxes) == 0 {
		return false
	}
	if p.CreateSandbox == "" && len(p.live()) > 0 {
		return false
	}
	if p.initFailed() != nil {
		return true
	}
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		if s := p.Status.Container(c.Name); s == nil || !exited(s) || podspec.ShouldRestart(p.Pod, c, s.GetExitCode()) {
			// With Never, a container that was lost with its sandbox is not started
			// a second time: it may have done its work.
			if s == nil || !p.lost(s) || p.Pod.Spec.RestartPolicy != corev1.RestartPolicyNever {
				return false
			}
		}
	}
	return true
}

// lost says whether s went down with its sandbox, so that nobody saw its end.
func (p *planner) lost(s *runtimeapi.ContainerStatus) bool {
	return p.CreateSandbox != "" && !dead(s)
}

// idleReason says why a pod that is over still has to be stopped, if it has.
func (p *planner) idleReason() Reason {
	if !p.Status.Running() {
		return ""
	}
	if s := p.initFailed(); s != nil {
		return Reason(fmt.Sprintf("init container %s failed with exit code %d and is not restarted", podcache.ContainerName(s), s.GetExitCode()))
	}
	return "every container has ended and none is restarted"
}

// initFailed returns the init container that failed for good, or nil.
func (p *planner) initFailed() *runtimeapi.ContainerStatus {
	if p.initialized() {
		return nil
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		s := p.Status.Container(c.Name)
		if s != nil && exited(s) && s.GetExitCode() != 0 && !restartsInit(p.Pod, c, s.GetExitCode()) {
			return s
		}
	}
	return nil
}

// restartsInit says whether an init container that failed is tried again. A pod
// that always restarts its containers still runs init containers only until
// they have ended well.
func restartsInit(pod *corev1.Pod, c *corev1.Container, exitCode int32) bool {
	return exitCode != 0 && podspec.ShouldRestart(pod, c, exitCode)
}

// initialized says whether a regular container was ever made in the sandbox
// that is in use: that is only done when all init containers have ended well,
// and they may have been removed since.
func (p *planner) initialized() bool {
	if p.CreateSandbox != "" {
		return false
	}
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

// initContainers plans the next init container and says whether all are done.
func (p *planner) initContainers() bool {
	if p.initialized() {
		return true
	}
	for i := range p.Pod.Spec.InitContainers {
		c := &p.Pod.Spec.InitContainers[i]
		s := p.here(c.Name)
		if s != nil && exited(s) && s.GetExitCode() == 0 {
			continue
		}
		p.container(c, true, s)
		return false
	}
	return true
}

func (p *planner) regularContainers() {
	for i := range p.Pod.Spec.Containers {
		c := &p.Pod.Spec.Containers[i]
		s := p.here(c.Name)
		if last := p.Status.Container(c.Name); s == nil && last != nil && exited(last) &&
			!podspec.ShouldRestart(p.Pod, c, last.GetExitCode()) {
			continue // it ended for good in a sandbox that is gone
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
		start.After = time.Unix(0, s.GetFinishedAt())
		start.Reason = Reason(fmt.Sprintf("it ended with exit code %d", s.GetExitCode()))
		if p.backsOff(c, start.After) {
			return
		}
	default:
		start.Reason = "its state is unknown"
		p.Kill = append(p.Kill, Kill{ID: s.GetId(), Name: c.Name, Reason: "Container is in unknown state, try killing it before restart"})
	}
	p.Start = append(p.Start, start)
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
	if p.RetryAt.IsZero() || until.Before(p.RetryAt) {
		p.RetryAt = until
	}
	return true
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

// leftovers plans the removal of dead containers but the newest of each name,
// which the status shows as the last state, and of sandboxes that are not ready
// and hold none of those.
func (p *planner) leftovers() {
	seen, used := map[string]int{}, map[string]bool{}
	for _, s := range p.Status.Containers {
		name := podcache.ContainerName(s)
		if seen[name]++; seen[name] > keptPerName(p.Start, name) && dead(s) {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: name, Reason: "newer ones of this name are kept"})
			continue
		}
		used[p.Status.SandboxOf[s.GetId()]] = true
	}
	for i, s := range p.Status.Sandboxes {
		// Ready ones are stopped by StopPod; the plan after that removes them.
		if i > 0 && s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY && !used[s.GetId()] {
			p.Remove = append(p.Remove, Remove{ID: s.GetId(), Name: s.GetMetadata().GetName(), Sandbox: true, Reason: "a newer sandbox replaced it"})
		}
	}
}

// keptPerName is how many instances of a name stay: the newest and the one
// before it, whose end is the last state; one fewer when a new one comes now.
func keptPerName(starts []Start, name string) int {
	if slices.ContainsFunc(starts, func(s Start) bool { return s.Name == name && s.ID == "" }) {
		return 1
	}
	return 2
}

// RestartKey is the key of a container's restart back-off. A change of the
// container's spec starts afresh.
func RestartKey(pod *corev1.Pod, c *corev1.Container) string {
	return string(pod.UID) + "/" + c.Name + "/" + podspec.ContainerHash(c)
}

func exited(s *runtimeapi.ContainerStatus) bool {
	return s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// dead says that nothing of s runs: it has ended or was never started.
func dead(s *runtimeapi.ContainerStatus) bool {
	return exited(s) || s.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
