package prober

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ProbeResults returns the results of a container's startup and readiness probes. It can be
// used as status.Input.Probes:
//
//	Probes: func(container, id string) (startup, readiness status.ProbeResult) {
//		s, r := manager.ProbeResults(pod.UID, container, id)
//		return status.ProbeResult(s), status.ProbeResult(r)
//	},
func (m *Manager) ProbeResults(uid types.UID, container, id string) (startup, readiness Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result(Key{uid, container, Startup}, id), m.result(Key{uid, container, Readiness}, id)
}

// UpdatePodStatus sets Started and Ready of the containers in s, the generated status of
// the pod. For a running regular container or sidecar, it uses the results of the probes.
// While the result of a probe is unknown, it uses the previous value. The previous value is
// true if it is true in s, or if it is true in pod.Status for the same container ID.
// pod.Status is the status in the API server. A plain init container is started while it
// runs, and ready if it has exited with code 0. UpdatePodStatus does not modify pod.
func (m *Manager) UpdatePodStatus(pod *corev1.Pod, s *corev1.PodStatus) {
	reported := map[string]*corev1.ContainerStatus{}
	for _, old := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range old {
			reported[old[i].Name] = &old[i]
		}
	}
	for i := range s.ContainerStatuses {
		st := &s.ContainerStatuses[i]
		m.update(pod.UID, st, reported[st.Name])
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecars[c.Name] = podspec.IsSidecar(c)
	}
	for i := range s.InitContainerStatuses {
		st := &s.InitContainerStatuses[i]
		switch sidecar, known := sidecars[st.Name]; {
		case !known: // not in the spec: leave it unchanged
		case sidecar:
			m.update(pod.UID, st, reported[st.Name])
		default:
			started := st.State.Running != nil
			st.Started = &started
			st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		}
	}
}

// update sets Started and Ready of one container.
func (m *Manager) update(uid types.UID, st, reported *corev1.ContainerStatus) {
	started, ready := false, false
	if st.State.Running != nil {
		wasStarted, wasReady := st.Started != nil && *st.Started, st.Ready
		if reported != nil && reported.ContainerID == st.ContainerID {
			wasStarted = wasStarted || reported.Started != nil && *reported.Started
			wasReady = wasReady || reported.Ready
		}
		startup, readiness := m.ProbeResults(uid, st.Name, podspec.RuntimeID(st.ContainerID))
		started = startup.passed(wasStarted)
		ready = started && readiness.passed(wasReady)
	}
	st.Started, st.Ready = &started, ready
}

// passed reports whether the probe counts as passed. If r is Unknown, it returns the last
// reported state.
func (r Result) passed(previous bool) bool {
	switch r {
	case NoProbe, Success:
		return true
	case Unknown:
		return previous
	case Failure:
		return false
	default:
		return false
	}
}
