package status

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxTerminationMessageBytes is how much all termination messages of a pod may
// take together; each container has an equal share for each of its messages.
const MaxTerminationMessageBytes = 12 * 1024

// Normalize brings s into the form in which the API server returns it, so that a
// status which was sent and one which was read back are the same: times in whole
// seconds, messages valid UTF-8, those of terminated containers cut to their share
// at a rune's end; init containers in spec order, others by name. It changes s and all that
// s points to, which therefore must be the caller's own. It is idempotent.
func Normalize(pod *corev1.Pod, s *corev1.PodStatus) {
	truncate(s.StartTime)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		truncate(&c.LastProbeTime)
		truncate(&c.LastTransitionTime)
		c.Message = valid(c.Message)
	}
	s.Message = valid(s.Message)
	share := messageShare(pod)
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			normalizeState(&list[i].State, share)
			normalizeState(&list[i].LastTerminationState, share)
		}
	}
	slices.SortStableFunc(s.InitContainerStatuses, func(a, b corev1.ContainerStatus) int {
		return cmp.Or(specIndex(pod, a.Name)-specIndex(pod, b.Name), byName(a, b))
	})
	slices.SortStableFunc(s.ContainerStatuses, byName)
	slices.SortStableFunc(s.EphemeralContainerStatuses, byName)
}

// specIndex returns the place of the init container of that name; one that the
// spec does not have comes last.
func specIndex(pod *corev1.Pod, name string) int {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return len(pod.Spec.InitContainers)
	}
	return i
}

func byName(a, b corev1.ContainerStatus) int { return strings.Compare(a.Name, b.Name) }

func normalizeState(state *corev1.ContainerState, share int) {
	if state.Waiting != nil {
		state.Waiting.Message = valid(state.Waiting.Message)
	}
	if state.Running != nil {
		truncate(&state.Running.StartedAt)
	}
	if end := state.Terminated; end != nil {
		truncate(&end.StartedAt)
		truncate(&end.FinishedAt)
		end.Message = cut(end.Message, share)
	}
}

// truncate also drops the monotonic reading, which the API does not carry.
func truncate(t *metav1.Time) {
	if t != nil {
		t.Time = t.Truncate(time.Second)
	}
}

// messageShare returns how long each termination message of the pod may be, in bytes.
func messageShare(pod *corev1.Pod) int {
	n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
	return MaxTerminationMessageBytes / max(n, 1)
}

// cut returns at most limit bytes of s as valid UTF-8. JSON would replace half a
// rune by a whole one of another length, and what is read back would differ from
// what was sent for ever.
func cut(s string, limit int) string {
	s = valid(s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// valid returns s as valid UTF-8, which JSON would make of it anyway.
func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
