package lifecycle

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// MinimumStopGrace is the least that a container gets between the signal that
// asks it to end and the one that ends it, as in the kubelet: also when its pod's
// grace period is over.
const MinimumStopGrace = 2 * time.Second

// StopGrace returns the timeout for a runtime's StopContainer, which counts in
// whole seconds, for a container that has left until its deadline. It is the one
// place where that is decided: what is left rounded up, so that a container asked
// to end at once has its whole grace period, and at least [MinimumStopGrace]. A
// stop therefore ends less than a second after the deadline, or 2 s after it
// where nothing was left: never more than grace and 2 s after the beginning.
func StopGrace(left time.Duration) time.Duration {
	const longest = math.MaxInt32 * time.Second // more than runtimes can count to
	if left >= longest {
		return longest
	}
	return max(MinimumStopGrace, (left + time.Second - 1).Truncate(time.Second))
}

// StopSeconds is [StopGrace] as CRI's StopContainer takes it.
func StopSeconds(left time.Duration) int64 { return int64(StopGrace(left) / time.Second) }

// KillGrace returns how long a container may take to end that is killed by
// itself. A pod that is being deleted has its deletion grace period; otherwise
// the grace period of the probe that failed counts if it has one, though it be
// longer; then that of the pod's spec. A pod without any gets [MinimumStopGrace],
// and no container less. The probe is the liveness or startup probe for whose
// failure the container is killed, nil if it is for something else.
func KillGrace(pod *corev1.Pod, probe *corev1.Probe) time.Duration {
	grace := MinimumStopGrace
	switch spec := pod.Spec.TerminationGracePeriodSeconds; {
	case pod.DeletionGracePeriodSeconds != nil:
		grace = Seconds(*pod.DeletionGracePeriodSeconds)
	case spec == nil: // a pod without defaults; the probe's does not count either
	case probe != nil && probe.TerminationGracePeriodSeconds != nil:
		grace = Seconds(*probe.TerminationGracePeriodSeconds)
	default:
		grace = Seconds(*spec)
	}
	return max(MinimumStopGrace, grace)
}

// Seconds returns n seconds, as the API counts times that something may take: less
// than none is none, and more than a Duration can hold is as much as it can.
func Seconds(n int64) time.Duration {
	const most = int64(math.MaxInt64 / time.Second)
	return time.Duration(min(max(n, 0), most)) * time.Second
}

// ResumedDeadline returns the deadline of a pod that an agent finds being deleted
// when it starts: the end of its grace period from now, or the deletion timestamp,
// which is when it was to be gone, whichever is earlier. So a pod does not get a
// second grace period by a restart of its agent. The timestamp was made by the API
// server's clock: use it only then, for of a deletion that the agent sees itself
// its own clock knows more.
func ResumedDeadline(pod *corev1.Pod, now time.Time, grace time.Duration) time.Time {
	if t := pod.DeletionTimestamp; t != nil {
		grace = min(grace, max(0, t.Sub(now)))
	}
	return now.Add(grace)
}
