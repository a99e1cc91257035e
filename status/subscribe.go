package status

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// The kinds of containers, as the kubelet's metric terminated_containers_total
// names them.
const (
	ContainerTypeRegular   = "container"
	ContainerTypeInit      = "init_container"
	ContainerTypeEphemeral = "ephemeral_container"
)

// ContainerEnd is the end of one container.
type ContainerEnd struct {
	// Pod is the pod, Name the container and Type one of the ContainerType
	// constants.
	Pod        *corev1.Pod
	Name, Type string
	// ExitCode and Reason are what the status says.
	ExitCode int32
	Reason   string
}

// Subscribe adds an observer, which is told at once of every pod of which
// something is said, in the order of their UIDs and as changes from nothing, and
// then of every change: nothing is missed in between and nothing told twice. The
// rules of [Observer] hold. cancel ends it and waits for a callback that runs;
// none may call it.
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

// tell tells all observers of a change, and of the containers that have ended with
// it. old is what was known before, which an earlier process may have said.
func (m *Manager) tell(old *corev1.PodStatus, change *Change) {
	for _, o := range m.observers {
		if o.ContainerTerminated != nil {
			next := &change.New
			ends(o, change.Pod, ContainerTypeInit, old.InitContainerStatuses, next.InitContainerStatuses)
			ends(o, change.Pod, ContainerTypeRegular, old.ContainerStatuses, next.ContainerStatuses)
			ends(o, change.Pod, ContainerTypeEphemeral, old.EphemeralContainerStatuses, next.EphemeralContainerStatuses)
		}
		if o.StatusChanged != nil {
			o.StatusChanged(*change)
		}
	}
}

func ends(o *Observer, pod *corev1.Pod, kind string, old, next []corev1.ContainerStatus) {
	for i := range next {
		end := next[i].State.Terminated
		if end == nil {
			continue
		}
		if was := find(old, next[i].Name); was == nil || was.State.Terminated == nil {
			o.ContainerTerminated(ContainerEnd{Pod: pod, Name: next[i].Name, Type: kind, ExitCode: end.ExitCode, Reason: end.Reason})
		}
	}
}
