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
// seconds, for a container whose deadline is left away. It rounds up, so that a
// container that is asked to end at once has its whole grace period, and
// returns at least [MinimumStopGrace]. A stop therefore ends less than a second
// after the deadline, or 2 s after it if no time was left: never more than the
// grace period plus 2 s after the beginning.
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
// reason of its own, such as a failed probe or a changed definition. The pod's
// deletion grace period comes first. Otherwise the grace period of the failed
// probe applies if it is set, even if it is longer, and then the one of the
// pod's spec. A pod without a grace period gets [MinimumStopGrace], which is
// also the minimum. The probe is the liveness or startup probe whose failure is
// the reason for the kill, or nil.
func KillGrace(pod *corev1.Pod, probe *corev1.Probe) time.Duration {
	grace := MinimumStopGrace
	switch spec := pod.Spec.TerminationGracePeriodSeconds; {
	case pod.DeletionGracePeriodSeconds != nil:
		grace = Seconds(*pod.DeletionGracePeriodSeconds)
	case spec == nil: // a pod without defaults; the probe's grace period does not count either
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		grace = Seconds(*probe.TerminationGracePeriodSeconds)
	default:
		grace = Seconds(*spec)
	}
	return max(MinimumStopGrace, grace)
}

// Seconds returns n seconds as a Duration. A negative n returns 0, and a value
// that is too large returns the longest whole number of seconds.
func Seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}

// ResumedDeadline returns the deadline of a pod that is already being deleted
// when the agent starts: the end of its grace period counted from now, or the
// deletion timestamp, whichever is earlier. So a restart of the agent does not
// give the pod a second grace period. The timestamp comes from the API server's
// clock. Therefore use it only after a restart; for a deletion that the agent
// observes itself, its own clock is more exact.
func ResumedDeadline(pod *corev1.Pod, now time.Time, grace time.Duration) time.Time {
	if t := pod.DeletionTimestamp; t != nil {
		grace = min(grace, max(0, t.Sub(now)))
	}
	return now.Add(grace)
}
