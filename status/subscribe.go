package status

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The container types. The values are those in the kubelet's metric
// terminated_containers_total.
const (
	ContainerTypeRegular   = "container"
	ContainerTypeInit      = "init_container"
	ContainerTypeEphemeral = "ephemeral_container"
)

// ContainerTermination describes the termination of one container.
type ContainerTermination struct {
	// Pod is the pod, Name the container and Type one of the ContainerType
	// constants.
	Pod        *corev1.Pod
	Name, Type string
	// ExitCode and Reason are from the container's status.
	ExitCode int32
	Reason   string
}

// Subscribe adds an observer. Before it returns, it calls o.StatusChanged for the current status
// of every pod, in the order of UIDs and with an empty Old. After that, the Manager calls o for
// every change, exactly once. The rules of [Observer] apply. cancel removes the observer, and
// waits until a callback in progress has returned. Callbacks must not call cancel.
func (m *Manager) Subscribe(o Observer) (cancel func()) {
	m.step.Lock()
	defer m.step.Unlock()
	m.observers = append(slices.Clip(m.observers), &o)
	pods := m.entries()
	for _, uid := range slices.Sorted(maps.Keys(pods)) {
		if e := pods[uid]; o.StatusChanged != nil {
			o.StatusChanged(Change{Pod: e.pod, New: e.status, Version: e.version, Finished: e.finished})
		}
	}
	return func() {
		m.step.Lock()
		defer m.step.Unlock()
		m.observers = slices.DeleteFunc(slices.Clone(m.observers), func(other *Observer) bool { return other == &o })
	}
}

// notify calls all observers with a change and with the container terminations in it. old
// is the previous status, which an earlier process may have reported.
func (m *Manager) notify(old *corev1.PodStatus, change *Change) {
	for _, o := range m.observers {
		if o.ContainerTerminated != nil {
			next := &change.New
			notifyTerminated(o, change.Pod, ContainerTypeInit, old.InitContainerStatuses, next.InitContainerStatuses)
			notifyTerminated(o, change.Pod, ContainerTypeRegular, old.ContainerStatuses, next.ContainerStatuses)
			notifyTerminated(o, change.Pod, ContainerTypeEphemeral, old.EphemeralContainerStatuses, next.EphemeralContainerStatuses)
		}
		if o.StatusChanged != nil {
			o.StatusChanged(*change)
		}
	}
}

func notifyTerminated(o *Observer, pod *corev1.Pod, kind string, old, next []corev1.ContainerStatus) {
	for i := range next {
		end := next[i].State.Terminated
		if end == nil {
			continue
		}
		if was := find(old, next[i].Name); was == nil || was.State.Terminated == nil {
			o.ContainerTerminated(ContainerTermination{Pod: pod, Name: next[i].Name, Type: kind, ExitCode: end.ExitCode, Reason: end.Reason})
		}
	}
}
