package podworker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// CriticalPriority is the lowest priority of a critical pod in
// [ShutdownConfig.ShutdownGracePeriodCriticalPods]: that of system-cluster-critical.
const CriticalPriority = podspec.SystemCriticalPriority

// ShutdownGracePeriodByPodPriority is a bucket of pods, and the kubelet's option of
// that name: the pods from this priority up to that of the next bucket. Those
// below the lowest bucket are in it too.
type ShutdownGracePeriodByPodPriority struct {
	// Priority is the lowest in the bucket.
	Priority int32
	// GracePeriod is what its pods may take to end, in whole seconds.
	GracePeriod time.Duration
}

// ShutdownConfig has the kubelet's options for the graceful shutdown of a node.
// The zero value means none.
type ShutdownConfig struct {
	// ShutdownGracePeriod is what all pods may take, critical ones included.
	ShutdownGracePeriod time.Duration
	// ShutdownGracePeriodCriticalPods is the part of it that is kept for critical
	// pods, which end last. If it is 0, they are told to end and not waited for.
	ShutdownGracePeriodCriticalPods time.Duration
	// ShutdownGracePeriodByPodPriority says it all, bucket by bucket, and excludes
	// the other two.
	ShutdownGracePeriodByPodPriority []ShutdownGracePeriodByPodPriority
}

// Validate reports every problem with c, joined.
func (c ShutdownConfig) Validate() error {
	var errs []error
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ShutdownGracePeriod", c.ShutdownGracePeriod},
		{"ShutdownGracePeriodCriticalPods", c.ShutdownGracePeriodCriticalPods},
	} {
		if d.value < 0 || d.value > 0 && d.value < time.Second {
			errs = append(errs, fmt.Errorf("field %s: %v must be zero or at least 1s", d.name, d.value))
		}
	}
	if c.ShutdownGracePeriodCriticalPods > c.ShutdownGracePeriod {
		errs = append(errs, fmt.Errorf("field ShutdownGracePeriodCriticalPods: %v is more than ShutdownGracePeriod, %v",
			c.ShutdownGracePeriodCriticalPods, c.ShutdownGracePeriod))
	}
	if len(c.ShutdownGracePeriodByPodPriority) > 0 && (c.ShutdownGracePeriod != 0 || c.ShutdownGracePeriodCriticalPods != 0) {
		errs = append(errs, errors.New("field ShutdownGracePeriodByPodPriority excludes ShutdownGracePeriod and ShutdownGracePeriodCriticalPods"))
	}
	seen := map[int32]bool{}
	for i, b := range c.ShutdownGracePeriodByPodPriority {
		if b.GracePeriod < 0 || b.GracePeriod%time.Second != 0 {
			errs = append(errs, fmt.Errorf("field ShutdownGracePeriodByPodPriority[%d]: %v is not a number of whole seconds", i, b.GracePeriod))
		}
		if seen[b.Priority] {
			errs = append(errs, fmt.Errorf("field ShutdownGracePeriodByPodPriority[%d]: priority %d is there before", i, b.Priority))
		}
		seen[b.Priority] = true
	}
	return errors.Join(errs...)
}

// GracePeriods returns the buckets for [PlanShutdown], nil if there is no graceful
// shutdown.
func (c ShutdownConfig) GracePeriods() []ShutdownGracePeriodByPodPriority {
	if len(c.ShutdownGracePeriodByPodPriority) > 0 {
		return slices.Clone(c.ShutdownGracePeriodByPodPriority)
	}
	if c.ShutdownGracePeriod == 0 {
		return nil
	}
	return []ShutdownGracePeriodByPodPriority{
		{Priority: 0, GracePeriod: c.ShutdownGracePeriod - c.ShutdownGracePeriodCriticalPods},
		{Priority: CriticalPriority, GracePeriod: c.ShutdownGracePeriodCriticalPods},
	}
}

// Total returns what all stages may take, one after the other: what to ask an
// [Inhibitor] for.
func (c ShutdownConfig) Total() (total time.Duration) {
	for _, b := range c.GracePeriods() {
		total += b.GracePeriod
	}
	return total
}

// Stage is the pods of one bucket, which end together.
type Stage struct {
	// Priority is that of the bucket.
	Priority int32
	// Period is the longest that the stage may take.
	Period time.Duration
	// Pods are the pods of the stage, in the order in which they were given.
	Pods []StagePod
}

// StagePod is a pod of a [Stage].
type StagePod struct {
	// Pod is shared with who made the plan.
	Pod *corev1.Pod
	// Grace is what the pod may take to end: the period of its stage, or what its
	// spec says if that is less.
	Grace time.Duration
}

// PlanShutdown returns in which order the pods end when the node shuts down: by
// bucket, the lowest priority first, without the buckets that have no pod. If
// total, unless it is 0, is less than what the stages may take together, the first
// ones give up theirs for the last ones, which are those of critical pods. It
// modifies nothing. Without buckets there is no stage.
func PlanShutdown(pods []*corev1.Pod, periods []ShutdownGracePeriodByPodPriority, total time.Duration) []Stage {
	if len(periods) == 0 {
		return nil
	}
	stages := make([]Stage, len(periods))
	for i, b := range periods {
		stages[i] = Stage{Priority: b.Priority, Period: max(b.GracePeriod, 0)}
	}
	slices.SortStableFunc(stages, func(a, b Stage) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, pod := range pods {
		if pod != nil {
			s := bucket(stages, podspec.Priority(pod))
			s.Pods = append(s.Pods, StagePod{Pod: pod})
		}
	}
	stages = slices.DeleteFunc(stages, func(s Stage) bool { return len(s.Pods) == 0 })
	if total > 0 {
		shorten(stages, total)
	}
	for _, s := range stages {
		for i, p := range s.Pods {
			s.Pods[i].Grace = s.Period
			if own := p.Pod.Spec.TerminationGracePeriodSeconds; own != nil {
				s.Pods[i].Grace = min(s.Period, lifecycle.Seconds(*own))
			}
		}
	}
	return stages
}

// bucket returns the highest stage that is not above the priority, or the lowest.
func bucket(stages []Stage, priority int32) *Stage {
	found := &stages[0]
	for i := range stages {
		if stages[i].Priority <= priority {
			found = &stages[i]
		}
	}
	return found
}

// shorten takes what the stages have together down to total, from the first on.
func shorten(stages []Stage, total time.Duration) {
	for i := len(stages) - 1; i >= 0; i-- {
		stages[i].Period = min(stages[i].Period, total)
		total -= stages[i].Period
	}
}
