package lifecycle

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// MinimumStopGrace is the minimum time between the signal that asks a container
// to end and the signal that kills it, as in the kubelet. It applies also after
// the end of the pod's grace period.
const MinimumStopGrace = 2 * time.Second

// StopGrace returns the timeout for a runtime's StopContainer, in whole
// seconds. Its argument is the time until the container's deadline.
// StopGrace rounds up, so that a container that is stopped at the beginning of
// its grace period gets the whole period. It returns at least
// [MinimumStopGrace]. If the deadline has already passed, the runtime therefore
// kills the container 2 s after the call of StopContainer. In other cases, the
// runtime kills the container at most 2 s after the deadline.
func StopGrace(left time.Duration) time.Duration {
	const longest = math.MaxInt32 * time.Second // the largest timeout that is passed to a runtime
	if left >= longest {
		return longest
	}
	return max(MinimumStopGrace, (left + time.Second - 1).Truncate(time.Second))
}

// StopSeconds returns [StopGrace] in seconds, as CRI's StopContainer expects
// it.
func StopSeconds(left time.Duration) int64 { return int64(StopGrace(left) / time.Second) }

// KillGrace returns the grace period of a container that the agent kills for a
// reason of its own, such as a failed probe or a changed definition. The result
// is the first of these that is set: the pod's deletion grace period, the grace
// period of the failed probe, and the grace period of the pod's spec. The
// probe's grace period may be longer than the spec's. If the spec has no grace
// period, the probe's grace period is ignored. KillGrace returns at least
// [MinimumStopGrace]. probe is the liveness or startup probe whose failure is
// the reason for the kill, or nil.
func KillGrace(pod *corev1.Pod, probe *corev1.Probe) time.Duration {
	grace := MinimumStopGrace
	switch spec := pod.Spec.TerminationGracePeriodSeconds; {
	case pod.DeletionGracePeriodSeconds != nil:
		grace = Seconds(*pod.DeletionGracePeriodSeconds)
	case spec == nil: // a pod without the API server's defaults: the probe's grace period is ignored too
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		grace = Seconds(*probe.TerminationGracePeriodSeconds)
	default:
		grace = Seconds(*spec)
	}
	return max(MinimumStopGrace, grace)
}

// Seconds returns n seconds as a Duration. It returns 0 if n is negative, and
// the longest Duration of whole seconds if n is too large.
func Seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}

// ResumedDeadline returns the deadline of a pod that is already being deleted
// when the agent starts. The deadline is now plus grace, or the pod's deletion
// timestamp if that is earlier. If the deletion timestamp is in the past, the
// deadline is now. A restart of the agent thus does not give the pod a second
// grace period. Use ResumedDeadline only after a restart, because the deletion
// timestamp comes from the API server's clock. For a deletion that the agent
// observes itself, the agent's clock is more exact.
func ResumedDeadline(pod *corev1.Pod, now time.Time, grace time.Duration) time.Time {
	if t := pod.DeletionTimestamp; t != nil {
		grace = min(grace, max(0, t.Sub(now)))
	}
	return now.Add(grace)
}
