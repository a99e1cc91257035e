package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// SetContainerReadiness says whether a container is ready and, with it, whether
// the pod is: the conditions Ready and ContainersReady follow at once. id is the
// container's as the status has it or as the runtime does, without the scheme; it
// names one life of a container, so that a late result of the one before changes
// nothing. It returns whether that changed anything: nothing changes for a pod or
// a container of which nothing is said, and a container that has ended is not ready
// again, whatever a probe still says of it. When a container has died, say so here
// rather than wait for the next [Generate] (kubernetes#128820).
func (m *Manager) SetContainerReadiness(uid types.UID, id string, ready bool) (changed bool) {
	return m.setContainer(uid, id, func(pod *corev1.Pod, s *corev1.PodStatus, st *corev1.ContainerStatus) {
		ready := ready && st.State.Terminated == nil
		if st.Ready == ready {
			return
		}
		st.Ready = ready
		setCondition(s, Ready(pod, s))
		setCondition(s, ContainersReady(pod, s))
	})
}

// SetContainerStartup says whether a container has started, and with a sidecar's
// whether the pod is Initialized. One without a readiness probe is ready from then on,
// where the kubelet has it unready until the pod's next turn; one that has not started
// is not ready. Everything else is as for [Manager.SetContainerReadiness].
func (m *Manager) SetContainerStartup(uid types.UID, id string, started bool) (changed bool) {
	return m.setContainer(uid, id, func(pod *corev1.Pod, s *corev1.PodStatus, st *corev1.ContainerStatus) {
		if st.Started != nil && *st.Started == started {
			return
		}
		st.Started = &started
		c := specOf(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), st.Name)
		if !started || c == nil || c.ReadinessProbe == nil {
			st.Ready = started && st.State.Terminated == nil
		}
		for _, c := range []corev1.PodCondition{Initialized(pod, s), Ready(pod, s), ContainersReady(pod, s)} {
			if Condition(s.Conditions, c.Type) != nil {
				setCondition(s, c)
			}
		}
	})
}

// setContainer applies fn to a copy of the pod's status and stores it.
func (m *Manager) setContainer(uid types.UID, id string, fn func(*corev1.Pod, *corev1.PodStatus, *corev1.ContainerStatus)) bool {
	m.step.Lock()
	defer m.step.Unlock()
	uid = m.cfg.TranslateUID(uid)
	e := m.entry(uid)
	if e == nil {
		return false
	}
	pod, ok := m.cfg.Pod(uid)
	if !ok {
		pod = e.pod
	}
	next := e.status.DeepCopy()
	for _, list := range [][]corev1.ContainerStatus{next.ContainerStatuses, next.InitContainerStatuses} {
		i := slices.IndexFunc(list, func(st corev1.ContainerStatus) bool { return id != "" && isContainer(&st, id) })
		if i < 0 {
			continue
		}
		fn(pod, next, &list[i])
		_, changed := m.store(e, e.pod, next, false)
		return changed
	}
	m.cfg.Logger.Debug("probe result of an unknown container", "podUID", uid, "containerID", id)
	return false
}

func isContainer(st *corev1.ContainerStatus, id string) bool {
	return st.ContainerID == id || podspec.RuntimeID(st.ContainerID) == id
}

// setCondition replaces the condition of c's type, or adds it.
func setCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	if was := Condition(s.Conditions, c.Type); was != nil {
		*was = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
