package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// SetContainerReadiness sets whether a container is ready, and updates the conditions Ready
// and ContainersReady of its pod. id is the container's ID, with or without the scheme. It
// distinguishes a container from its predecessor, so that a late probe result of the
// predecessor changes nothing. SetContainerReadiness reports whether the status has
// changed. It does nothing if the pod or the container is unknown. A terminated container
// does not become ready. Call SetContainerReadiness with false as soon as a container has
// died, before the next [Generate] (kubernetes#128820).
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

// SetContainerStartup sets whether a container has started, and updates the conditions
// Initialized, Ready and ContainersReady of its pod. A container without a readiness probe
// becomes ready at once; in the kubelet it becomes ready with the pod's next sync. A
// container that has not started is not ready. Parameters and result are the same as in
// [Manager.SetContainerReadiness].
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

// setContainer applies fn to a copy of the pod's status, stores the copy, and reports
// whether the status has changed.
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
	m.cfg.Logger.Debug("ignored a probe result: unknown container", "podUID", uid, "containerID", id)
	return false
}

func isContainer(st *corev1.ContainerStatus, id string) bool {
	return st.ContainerID == id || podspec.RuntimeID(st.ContainerID) == id
}

// setCondition sets condition c: c replaces an existing condition of the same type, or is
// added.
func setCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	if was := Condition(s.Conditions, c.Type); was != nil {
		*was = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
