package lifecycle

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// SyncLoopHandler is asked whether a pod needs a turn although nothing about it
// has changed. It answers at once and modifies nothing.
type SyncLoopHandler interface {
	ShouldSync(pod *corev1.Pod) bool
}

// SyncHandler is asked in each turn whether the pod must go. It answers at once
// and modifies nothing.
type SyncHandler interface {
	ShouldEvict(pod *corev1.Pod) ShouldEvictResponse
}

// ShouldEvictResponse is what a [SyncHandler] answers. The zero value lets the
// pod stay.
type ShouldEvictResponse struct {
	// Evict says that the pod must go: its status becomes Failed and it is
	// killed.
	Evict bool
	// Reason is one word in CamelCase and Message a sentence, for the status.
	Reason, Message string
}

// SyncLoopHandlers are several handlers as one: a pod needs a turn if one of them
// says so.
type SyncLoopHandlers []SyncLoopHandler

// ShouldSync asks the handlers until one says yes.
func (hs SyncLoopHandlers) ShouldSync(pod *corev1.Pod) bool {
	for _, h := range hs {
		if h.ShouldSync(pod) {
			return true
		}
	}
	return false
}

// SyncHandlers are several handlers as one: the first that wants the pod gone
// decides.
type SyncHandlers []SyncHandler

// ShouldEvict asks the handlers until one wants the pod gone.
func (hs SyncHandlers) ShouldEvict(pod *corev1.Pod) ShouldEvictResponse {
	for _, h := range hs {
		if answer := h.ShouldEvict(pod); answer.Evict {
			return answer
		}
	}
	return ShouldEvictResponse{}
}

// ActiveDeadline ends pods that were active for longer than
// spec.activeDeadlineSeconds. It is a [SyncLoopHandler] and a [SyncHandler]. The
// zero value works on the system clock and the statuses that pods carry. All
// methods may be called by any number of goroutines.
type ActiveDeadline struct {
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Status returns the newest status of a pod, which knows its start time
	// before the pod itself does. Optional; a pod of which it knows nothing
	// counts by the status that it carries.
	Status func(types.UID) (corev1.PodStatus, bool)
}

// Due returns when the pod's time is over; false if it has no deadline or has not
// started. A caller with timers needs no other question.
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

// ShouldSync says whether the pod's time is over.
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

// ShouldEvict says that the pod must go if its time is over, as DeadlineExceeded.
func (a ActiveDeadline) ShouldEvict(pod *corev1.Pod) ShouldEvictResponse {
	if !a.ShouldSync(pod) {
		return ShouldEvictResponse{}
	}
	return ShouldEvictResponse{Evict: true, Reason: DeadlineExceeded, Message: DeadlineExceededMessage}
}
