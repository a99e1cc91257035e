package eviction

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Policy configures when pods are evicted, and in which order. A decision of
// [PlanEviction] depends only on the policy, the state, the observations and the time.
type Policy struct {
	// Thresholds are the amounts that must stay available: see [ParseThresholds]. If
	// empty, only local storage limits cause evictions. Thresholds of containerfs signals
	// are ignored, because these thresholds follow from the other thresholds and the
	// layout.
	Thresholds []Threshold

	// PressureTransitionPeriod is how long a node condition stays true after one of its
	// thresholds was last met. While all signals are unknown, the conditions do not
	// change. Default 5 m.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds limits the grace period of a pod that is evicted for a soft
	// threshold. The default 0 means one second, as in the kubelet. If the number is
	// negative, the pod has its own grace period.
	MaxPodGracePeriodSeconds int32
	// StatsGrace is how long the stats of a pod may be missing, from the first evaluation
	// that needs them. During this time, the pod is not evicted. After that, it is evicted
	// before other pods, as in the kubelet. Default 2 m.
	StatsGrace time.Duration
	// MaxObservationAge is the maximum age of an observation, and of the memory and
	// process stats of [Stats].Pods, for use in decisions. Default 1 m. The maximum age of
	// the disk usage of pods is one hour. For node conditions, observations of any age
	// count.
	MaxObservationAge time.Duration
	// MaxParallelEvictions is how many evicted pods may be terminating at the same time.
	// Pods that have not terminated by the deadline of their eviction do not count. For a
	// hard threshold, pods that have the grace period of a soft threshold do not count
	// either. Default 5; in the kubelet it is 1.
	MaxParallelEvictions int
	// ReclaimInterval is the minimum time between the end of one round of node-level
	// reclaims of a disk and the start of the next round. ReclaimTimeout is how long
	// evictions wait for a reclaim. Defaults 10 s and 30 s.
	ReclaimInterval, ReclaimTimeout time.Duration

	// Reclaimers are the node-level reclaims that are tried before a pod is evicted. A
	// [Manager] sets the field from its [Config].
	Reclaimers []ReclaimAction

	// Rank orders pods: if the result is negative, a is evicted before b. It must be a
	// strict weak order. Default [KubeletRank].
	Rank func(a, b *Candidate) int
	// Protect reports whether a pod must never be evicted. Critical pods are never
	// evicted, even if Protect returns false. Optional.
	Protect func(*corev1.Pod) bool
	// Prefer reports whether a pod is evicted before all others. Optional.
	Prefer func(*corev1.Pod) bool

	// IgnoreLocalStorageLimits disables evictions of pods that use more local storage
	// than their limits allow.
	IgnoreLocalStorageLimits bool
	// IgnorePartialPodLimits disables the check of the usage of a whole pod if one of its
	// regular containers has no limit. The kubelet, and this package by default, compares the
	// usage of the whole pod with the sum of the limits that are set.
	IgnorePartialPodLimits bool
}

// Validate returns every problem with p, joined.
func (p Policy) Validate() error {
	var errs []error
	seen := map[Threshold]bool{}
	for i, t := range p.Thresholds {
		switch v := t.Value; {
		case t.Signal.index() < 0:
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Signal: unknown signal %q", i, t.Signal))
		case v.Quantity < 0 || v.Quantity == 0 && !(v.Fraction > 0) || v.Fraction < 0:
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Value: %s is not positive", i, v))
		case !(v.Fraction <= 1):
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Value: %s is more than 100%%", i, v))
		case t.GracePeriod < 0 || t.MinReclaim.Quantity < 0 || !(t.MinReclaim.Fraction >= 0):
			errs = append(errs, fmt.Errorf("field Thresholds[%d]: %s has a negative grace period or minimum reclaim", i, t))
		case seen[t]:
			errs = append(errs, fmt.Errorf("field Thresholds[%d]: %s is set twice", i, t))
		}
		seen[t] = true
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"PressureTransitionPeriod", int64(p.PressureTransitionPeriod)},
		{"StatsGrace", int64(p.StatsGrace)},
		{"MaxObservationAge", int64(p.MaxObservationAge)},
		{"MaxParallelEvictions", int64(p.MaxParallelEvictions)},
		{"ReclaimInterval", int64(p.ReclaimInterval)},
		{"ReclaimTimeout", int64(p.ReclaimTimeout)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %d is negative", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func (p Policy) withDefaults() Policy {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&p.PressureTransitionPeriod, 5 * time.Minute},
		{&p.StatsGrace, 2 * time.Minute},
		{&p.MaxObservationAge, time.Minute},
		{&p.ReclaimInterval, 10 * time.Second},
		{&p.ReclaimTimeout, 30 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if p.MaxParallelEvictions == 0 {
		p.MaxParallelEvictions = 5
	}
	if p.Rank == nil {
		p.Rank = KubeletRank
	}
	return p
}

// Grace periods of evictions, in seconds.
const (
	immediateGrace = 1       // for hard thresholds and limits
	defaultGrace   = 30      // for a pod without a grace period
	longestGrace   = 1 << 31 // so that no deadline overflows a time.Duration
)

// grace returns the grace period of the pod's eviction in seconds. The pod workers never
// use more than the pod's own grace period.
func (p Policy) grace(pod *corev1.Pod, hard bool) int64 {
	if hard {
		return immediateGrace
	}
	own := int64(defaultGrace)
	if pod.Spec.TerminationGracePeriodSeconds != nil {
		own = *pod.Spec.TerminationGracePeriodSeconds
	} else if p.MaxPodGracePeriodSeconds >= 0 {
		own = int64(p.MaxPodGracePeriodSeconds)
	}
	if p.MaxPodGracePeriodSeconds >= 0 {
		own = min(own, int64(p.MaxPodGracePeriodSeconds))
	}
	return min(max(own, immediateGrace), longestGrace)
}
