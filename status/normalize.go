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

// MaxTerminationMessageBytes is the limit in bytes for all termination messages of a pod. Each
// container has an equal share, which limits each message of the container.
const MaxTerminationMessageBytes = 12 * 1024

// Normalize converts s to the form in which the API server returns it, so that a sent status
// equals the status that is read back. Times are in whole seconds, and messages are valid
// UTF-8. Termination messages are cut to their share at the end of a rune. Init containers are in
// the order of the spec, and other containers are sorted by name. Normalize modifies s and
// everything that s points to, so none of this may be shared. Normalize is idempotent.
func Normalize(pod *corev1.Pod, s *corev1.PodStatus) {
	truncate(s.StartTime)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		truncate(&c.LastProbeTime)
		truncate(&c.LastTransitionTime)
		c.Message = validUTF8(c.Message)
	}
	s.Message = validUTF8(s.Message)
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

// specIndex returns the index of the init container of that name in the spec, or the number
// of init containers if the spec does not contain it.
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
		state.Waiting.Message = validUTF8(state.Waiting.Message)
	}
	if state.Running != nil {
		truncate(&state.Running.StartedAt)
	}
	if end := state.Terminated; end != nil {
		truncate(&end.StartedAt)
		truncate(&end.FinishedAt)
		end.Message = truncateMessage(end.Message, share)
	}
}

// truncate truncates t to whole seconds and removes the monotonic reading, which the API
// does not contain.
func truncate(t *metav1.Time) {
	if t != nil {
		t.Time = t.Truncate(time.Second)
	}
}

// messageShare returns the limit for each termination message of the pod, in bytes.
func messageShare(pod *corev1.Pod) int {
	n := len(pod.Spec.InitContainers) + len(pod.Spec.Containers) + len(pod.Spec.EphemeralContainers)
	return MaxTerminationMessageBytes / max(n, 1)
}

// truncateMessage returns at most limit bytes of s as valid UTF-8. The JSON encoder would
// replace a partial rune with a rune of another length, and the status in the API server would
// never equal the status that was sent.
func truncateMessage(s string, limit int) string {
	s = validUTF8(s)
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// validUTF8 returns s as valid UTF-8. The JSON encoder would convert s anyway.
func validUTF8(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }
