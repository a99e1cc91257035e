package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// SyncLoopHandler reports whether a pod needs a sync although it has not
// changed. It must return at once and must not modify the pod.
type SyncLoopHandler interface {
	ShouldSync(pod *corev1.Pod) bool
}

// SyncHandler decides in each sync whether the pod must be evicted. It must
// return at once and must not modify the pod.
type SyncHandler interface {
	ShouldEvict(pod *corev1.Pod) ShouldEvictResponse
}

// ShouldEvictResponse is the answer of a [SyncHandler]. The zero value means
// that the pod is not evicted.
type ShouldEvictResponse struct {
	// Evict reports whether the pod must be evicted: its status becomes Failed
	// and it is killed.
	Evict bool
	// Reason is one word in CamelCase, and Message is a sentence, for the
	// status.
	Reason, Message string
}

// SyncLoopHandlers combines several handlers: a pod needs a sync if one of the
// handlers reports this.
type SyncLoopHandlers []SyncLoopHandler

// ShouldSync reports whether one of the handlers returns true.
func (hs SyncLoopHandlers) ShouldSync(pod *corev1.Pod) bool {
	for _, h := range hs {
		if h.ShouldSync(pod) {
			return true
		}
	}
	return false
}

// SyncHandlers combines several handlers: the first handler that evicts the pod
// decides.
type SyncHandlers []SyncHandler

// ShouldEvict returns the answer of the first handler that evicts the pod.
func (hs SyncHandlers) ShouldEvict(pod *corev1.Pod) ShouldEvictResponse {
	for _, h := range hs {
		if answer := h.ShouldEvict(pod); answer.Evict {
			return answer
		}
	}
	return ShouldEvictResponse{}
}

// ActiveDeadline evicts pods that were active for longer than
// spec.activeDeadlineSeconds. It is a [SyncLoopHandler] and a [SyncHandler].
// The zero value uses the system clock and the statuses in the pods. It is safe
// for concurrent use.
type ActiveDeadline struct {
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Status returns the newest status of a pod, which may contain the start
	// time before the pod object does. Optional. If Status is nil or returns
	// false, the status in the pod object is used.
	Status func(types.UID) (corev1.PodStatus, bool)
}

// Due returns the time at which the pod exceeds its active deadline. It returns
// false if the pod has no active deadline or has not started. A caller that
// sets a timer for this time need not call ShouldSync.
func (a ActiveDeadline) Due(pod *corev1.Pod) (time.Time, bool) {
	if pod == nil || pod.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}, false
	}
	start := pod.Status.StartTime
	if a.Status != nil {
		if status, ok := a.Status(pod.UID); ok {
			start = status.StartTime
		}
	}
	if start.IsZero() {
		return time.Time{}, false
	}
	return start.Add(Seconds(*pod.Spec.ActiveDeadlineSeconds)), true
}

// ShouldSync reports whether the pod has exceeded its active deadline.
func (a ActiveDeadline) ShouldSync(pod *corev1.Pod) bool {
	due, ok := a.Due(pod)
	if !ok {
		return false
	}
	if a.Clock == nil {
		a.Clock = clock.RealClock{}
	}
	return !a.Clock.Now().Before(due)
}

// ShouldEvict evicts the pod with DeadlineExceeded if it has exceeded its
// active deadline.
func (a ActiveDeadline) ShouldEvict(pod *corev1.Pod) ShouldEvictResponse {
	if !a.ShouldSync(pod) {
		return ShouldEvictResponse{}
	}
	return ShouldEvictResponse{Evict: true, Reason: DeadlineExceeded, Message: DeadlineExceededMessage}
}
