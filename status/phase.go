package status

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// PhaseFacts are what a phase depends on beside the spec and the containers'
// statuses.
type PhaseFacts struct {
	// Terminal says that nothing of the pod runs any more, nor will. A static
	// pod's phase does not heed it (kubernetes#116484).
	Terminal bool
	// Initialized says that a regular container was made in the sandbox in use:
	// a sidecar that starts again then does not make the pod Pending.
	Initialized bool
}

// Phase returns the phase that follows from the container statuses in s, which
// are looked up by the names in the spec: the kubelet's rules with container
// restart rules (KEP-5307) and sidecars (KEP-753). It knows no history; that an
// ended pod stays ended is for [Generate] and [Manager]. Nothing is modified.
func Phase(pod *corev1.Pod, s *corev1.PodStatus, facts PhaseFacts) corev1.PodPhase {
	var n tally
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if st := find(s.InitContainerStatuses, c.Name); podspec.IsSidecar(c) {
			n.sidecar(st)
		} else {
			n.init(pod, c, st)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		n.regular(pod, c, find(s.ContainerStatuses, c.Name))
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
		return corev1.PodRunning // something will run again
	case n.stopped == n.succeeded:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

// tally counts containers by what they mean for the phase.
type tally struct {
	failedInit int // plain init containers that failed and will not run again
	pending    int // plain init containers that have not ended, others that never ran
	starting   int // sidecars that run and have not started
	running    int // sidecars and regular containers that run
	stopped    int // regular containers that ended
	succeeded  int // of these, those that ended well and are not to run again yet
	final      int // of these, those that will not run again
}

func (n *tally) init(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
	switch end := ended(st); {
	case end == nil:
		n.pending++
	case end.ExitCode != 0 && !restarts(pod, c, end):
		n.failedInit++
	}
}

// sidecar counts a sidecar. One that has ended does not matter: its end neither
// keeps a pod from completing nor makes it fail.
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

// regular counts a regular container. One that waits to run again has stopped,
// but not succeeded, however it ended.
func (n *tally) regular(pod *corev1.Pod, c *corev1.Container, st *corev1.ContainerStatus) {
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
		if !restarts(pod, c, end) {
			n.final++
		}
	}
}

// ended returns how a container that does not run has ended, now or before it
// was to be started again; nil if it runs, has never run or nothing is known.
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

// restarts says whether c runs again after it has ended so. One that was taken
// down to restart the whole pod does, whatever its policy (KEP-5532).
func restarts(pod *corev1.Pod, c *corev1.Container, end *corev1.ContainerStateTerminated) bool {
	return end.Reason == ReasonRestartingAllContainers || podspec.ShouldRestart(pod, c, end.ExitCode)
}

// find returns the status of the given name, or nil.
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
