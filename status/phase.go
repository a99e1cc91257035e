package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// PhaseFacts are the facts that determine the phase in addition to the spec and the
// container statuses.
type PhaseFacts struct {
	// Terminal means that no container of the pod runs or will run again. The phase of a
	// static pod does not depend on it (kubernetes#116484).
	Terminal bool
	// Initialized means that a regular container was created in the current sandbox. In
	// that case, a sidecar that starts again does not make the pod Pending.
	Initialized bool
	// Restarting contains the names of containers that a requested restart of the pod starts
	// again. Their terminations are not final, whatever their restart policies are.
	Restarting map[string]bool
}

// Phase returns the phase of a pod with the container statuses in s, by the kubelet's rules,
// including container restart rules (KEP-5307) and sidecars (KEP-753). Statuses are matched
// to the spec by container name. Phase does not depend on previous phases: [Generate] and
// [Manager] ensure that a terminal phase does not change. Neither pod nor s is modified.
func Phase(pod *corev1.Pod, s *corev1.PodStatus, facts PhaseFacts) corev1.PodPhase {
	var n tally
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if st := find(s.InitContainerStatuses, c.Name); podspec.IsSidecar(c) {
			n.sidecar(st)
		} else {
			n.init(pod, c, st, facts)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		n.regular(pod, c, find(s.ContainerStatuses, c.Name), facts)
	}
	switch {
	case n.failedInit > 0:
		return corev1.PodFailed
	case n.pending > 0, n.starting > 0 && !facts.Initialized:
		return corev1.PodPending
	case n.running > 0:
		return corev1.PodRunning
	case n.stopped == 0:
		return corev1.PodPending
	case n.stopped > n.final && (!facts.Terminal || podspec.IsStatic(pod)):
		return corev1.PodRunning // a container will run again
	case n.stopped == n.succeeded:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

// tally counts containers by their effect on the phase.
type tally struct {
	failedInit int // plain init containers that failed and will not run again
	pending    int // plain init containers that have not terminated, and other containers that never ran
	starting   int // running sidecars whose Started is not true
	running    int // running sidecars and regular containers
	stopped    int // terminated regular containers
	succeeded  int // stopped containers with exit code 0 that do not wait for a restart
	final      int // stopped containers that will not run again
}

func (n *tally) init(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus, facts PhaseFacts) {
	switch end := ended(st); {
	case end == nil:
		n.pending++
	case end.ExitCode != 0 && !restarts(pod, c, end) && !facts.Restarting[c.Name]:
		n.failedInit++
	}
}

// sidecar counts a sidecar. A terminated sidecar is not counted: it neither prevents a pod
// from completing nor makes it fail.
func (n *tally) sidecar(st *corev1.ContainerStatus) {
	switch {
	case st != nil && st.State.Running != nil:
		n.running++
		if st.Started == nil || !*st.Started {
			n.starting++
		}
	case ended(st) == nil:
		n.pending++
	}
}

// regular counts a regular container. A container that waits for a restart counts as
// stopped, but not as succeeded, whatever its exit code was.
func (n *tally) regular(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus, facts PhaseFacts) {
	switch end := ended(st); {
	case st != nil && st.State.Running != nil:
		n.running++
	case end == nil:
		n.pending++
	default:
		n.stopped++
		if st.State.Terminated != nil && end.ExitCode == 0 {
			n.succeeded++
		}
		if !restarts(pod, c, end) && !facts.Restarting[c.Name] {
			n.final++
		}
	}
}

// ended returns the termination of a container that is not running: the termination in its
// state, or its last termination if the container waits for a restart. It returns nil if the
// container is running, has never run or is unknown.
func ended(st *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	switch {
	case st == nil || st.State.Running != nil:
		return nil
	case st.State.Terminated != nil:
		return st.State.Terminated
	case st.State.Waiting != nil:
		return st.LastTerminationState.Terminated
	default:
		return nil
	}
}

// restarts reports whether c runs again after the given termination. If c was removed because
// all containers of the pod restart, c runs again, whatever its restart policy is (KEP-5532).
func restarts(pod *corev1.Pod, c *corev1.Container, end *corev1.ContainerStateTerminated) bool {
	return end.Reason == ReasonRestartingAllContainers || podspec.ShouldRestart(pod, c, end.ExitCode)
}

// find returns the status with the given name, or nil.
func find(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	return first(list, func(st *corev1.ContainerStatus) bool { return st.Name == name })
}

// first returns a pointer to the first element of list for which match returns true, or nil.
func first[T any](list []T, match func(*T) bool) *T {
	for i := range list {
		if match(&list[i]) {
			return &list[i]
		}
	}
	return nil
}
