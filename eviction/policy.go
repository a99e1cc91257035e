package eviction

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Policy says when something has to be done and to whom. It is all that
// [Evaluate] knows beside facts.
type Policy struct {
	// Thresholds are what is to stay available: see [ParseThresholds]. None
	// leaves only the local storage limits. Those of containerfs signals are
	// ignored: they follow from the others and the layout.
	Thresholds []Threshold

	// PressureTransitionPeriod is how long a node condition stays after its last
	// threshold was met. While no figure of the node is known, it stays. Default 5 m.
	PressureTransitionPeriod time.Duration
	// MaxPodGracePeriodSeconds bounds the time that a pod gets to end in an
	// eviction for a soft threshold. The default 0 leaves one second, as in the
	// kubelet; a negative number leaves the pod its own.
	MaxPodGracePeriodSeconds int32
	// StatsGrace is how long the figures of a pod may be missing, since they were
	// first needed, while it is taken for one that uses nothing. After that it is the
	// first to go, as in the kubelet. Default 2 m.
	StatsGrace time.Duration
	// MaxObservationAge is how old an observation may be to count, and what
	// [Stats].Pods measured of a pod's memory and processes. Default 1 m. Disk usage
	// of pods counts for an hour, and for node conditions observations of any age.
	MaxObservationAge time.Duration
	// MaxParallelEvictions is how many pods may be ending at a time; those that
	// end slowly for a soft threshold don't count when a hard one is met.
	// Default 5; the kubelet has 1.
	MaxParallelEvictions int
	// ReclaimInterval is the least time between the end of one node-level reclaim
	// of a disk and the beginning of the next, and ReclaimTimeout how long
	// evictions wait for one. Defaults 10 s and 30 s.
	ReclaimInterval, ReclaimTimeout time.Duration

	// Reclaimers are the node-level reclaims that can be tried before a pod is
	// evicted. A [Manager] sets it to those that it was given.
	Reclaimers []ReclaimAction

	// Rank orders pods: a negative number evicts a before b. It must be a strict
	// weak order. Default [KubeletRank].
	Rank func(a, b *Candidate) int
	// Protect says that a pod must never be evicted, critical ones aside, which
	// never are. Optional.
	Protect func(*corev1.Pod) bool
	// Prefer says that a pod is to go before all others. Optional.
	Prefer func(*corev1.Pod) bool

	// IgnoreLocalStorageLimits leaves pods alone that use more disk than their
	// limits allow.
	IgnoreLocalStorageLimits bool
	// IgnorePartialPodLimits judges a pod as a whole only if each of its
	// containers has a limit. The kubelet holds what all of them use against the
	// sum of the limits that there are.
	IgnorePartialPodLimits bool
}

// Validate reports every problem with p, joined.
func (p Policy) Validate() error {
	var errs []error
	seen := map[Threshold]bool{}
	for i, t := range p.Thresholds {
		switch v := t.Value; {
		case t.Signal.index() < 0:
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Signal: %q does not exist", i, t.Signal))
		case v.Quantity < 0 || v.Quantity == 0 && !(v.Fraction > 0) || v.Fraction < 0:
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Value: %s is not positive", i, v))
		case !(v.Fraction <= 1):
			errs = append(errs, fmt.Errorf("field Thresholds[%d].Value: %s is more than there is", i, v))
		case t.GracePeriod < 0 || t.MinReclaim.Quantity < 0 || !(t.MinReclaim.Fraction >= 0):
			errs = append(errs, fmt.Errorf("field Thresholds[%d]: %s has a negative grace period or minimum reclaim", i, t))
		case seen[t]:
			errs = append(errs, fmt.Errorf("field Thresholds[%d]: %s is there twice", i, t))
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

// The grace periods of evictions, in seconds.
const (
	immediateGrace = 1       // that of hard thresholds and of limits
	defaultGrace   = 30      // of a pod that says nothing
	longestGrace   = 1 << 31 // beyond it, durations wrap
)

// grace returns how long a pod gets to end, in seconds. The pod workers never
// take it for more than the pod's own.
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
