package prober

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Probed returns the results of a container's startup and readiness probes, for
// those who generate a status:
//
//	Probes: func(container, id string) (startup, readiness status.ProbeResult) {
//		s, r := manager.Probed(pod.UID, container, id)
//		return status.ProbeResult(s), status.ProbeResult(r)
//	},
func (m *Manager) Probed(uid types.UID, container, id string) (startup, readiness Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result(Key{uid, container, Startup}, id), m.result(Key{uid, container, Readiness}, id)
}

// UpdatePodStatus sets Started and Ready of the containers in s, a status that has
// been generated for the pod: for a regular container or a sidecar that runs, as
// its probes say; for an init container that ended, whether it did so well. What is
// not known yet stays as the API server has it, in pod.Status, of the same
// container, or else as s has it. The pod is not modified.
func (m *Manager) UpdatePodStatus(pod *corev1.Pod, s *corev1.PodStatus) {
	said := map[string]*corev1.ContainerStatus{}
	for _, old := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range old {
			said[old[i].Name] = &old[i]
		}
	}
	for i := range s.ContainerStatuses {
		st := &s.ContainerStatuses[i]
		m.update(pod.UID, st, said[st.Name])
	}
	sidecars := map[string]bool{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecars[c.Name] = podspec.IsSidecar(c)
	}
	for i := range s.InitContainerStatuses {
		st := &s.InitContainerStatuses[i]
		switch sidecar, known := sidecars[st.Name]; {
		case !known: // neither is ours to say
		case sidecar:
			m.update(pod.UID, st, said[st.Name])
		default:
			started := st.State.Running != nil
			st.Started = &started
			st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		}
	}
}

// update sets Started and Ready of one container.
func (m *Manager) update(uid types.UID, st, said *corev1.ContainerStatus) {
	started, ready := false, false
	if st.State.Running != nil {
		wasStarted, wasReady := st.Started != nil && *st.Started, st.Ready
		if said != nil && said.ContainerID == st.ContainerID {
			wasStarted = wasStarted || said.Started != nil && *said.Started
			wasReady = wasReady || said.Ready
		}
		startup, readiness := m.Probed(uid, st.Name, podspec.RuntimeID(st.ContainerID))
		started = startup.holds(wasStarted)
		ready = started && readiness.holds(wasReady)
	}
	st.Started, st.Ready = &started, ready
}

// holds says whether r is good, before being what it was when last looked at.
func (r Result) holds(before bool) bool {
	switch r {
	case NoProbe, Success:
		return true
	case Unknown:
		return before
	case Failure:
		return false
	default:
		return false
	}
}
