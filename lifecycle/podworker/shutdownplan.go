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
// [ShutdownConfig.ShutdownGracePeriodCriticalPods]: the priority of
// system-cluster-critical.
const CriticalPriority = podspec.SystemCriticalPriority

// ShutdownGracePeriodByPodPriority is an entry of the kubelet's option with
// this name. It applies to the pods whose priority is at least Priority and
// below the next higher Priority of another entry. The entry with the lowest
// Priority also applies to pods with a lower priority.
type ShutdownGracePeriodByPodPriority struct {
	// Priority is the lowest priority of the entry.
	Priority int32
	// GracePeriod is how long the pods of the entry may take to end, in whole
	// seconds.
	GracePeriod time.Duration
}

// ShutdownConfig holds the kubelet's options for the graceful shutdown of a
// node. The zero value disables graceful shutdown.
type ShutdownConfig struct {
	// ShutdownGracePeriod is the time for all pods, including critical pods.
	ShutdownGracePeriod time.Duration
	// ShutdownGracePeriodCriticalPods is the part of ShutdownGracePeriod that
	// is reserved for critical pods, which are terminated last. If it is 0,
	// Shutdown kills critical pods and does not wait for their end.
	ShutdownGracePeriodCriticalPods time.Duration
	// ShutdownGracePeriodByPodPriority has a grace period for each priority. It
	// must not be set together with the other two options.
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
		errs = append(errs, errors.New("field ShutdownGracePeriodByPodPriority must not be set together with ShutdownGracePeriod or ShutdownGracePeriodCriticalPods"))
	}
	seen := map[int32]bool{}
	for i, b := range c.ShutdownGracePeriodByPodPriority {
		if b.GracePeriod < 0 || b.GracePeriod%time.Second != 0 {
			errs = append(errs, fmt.Errorf("field ShutdownGracePeriodByPodPriority[%d]: %v is not a number of whole seconds", i, b.GracePeriod))
		}
		if seen[b.Priority] {
			errs = append(errs, fmt.Errorf("field ShutdownGracePeriodByPodPriority[%d]: priority %d is used twice", i, b.Priority))
		}
		seen[b.Priority] = true
	}
	return errors.Join(errs...)
}

// GracePeriods returns the entries for [PlanShutdown], nil if graceful shutdown
// is disabled.
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

// Total returns the time for all stages together, which should be requested
// from an [Inhibitor].
func (c ShutdownConfig) Total() (total time.Duration) {
	for _, b := range c.GracePeriods() {
		total += b.GracePeriod
	}
	return total
}

// Stage is a group of pods that are terminated together.
type Stage struct {
	// Priority is the lowest priority of the stage.
	Priority int32
	// Period is the longest time that the stage may take.
	Period time.Duration
	// Pods are the pods of the stage, in the order in which PlanShutdown got
	// them.
	Pods []StagePod
}

// StagePod is a pod of a [Stage].
type StagePod struct {
	// Pod is shared with the caller of PlanShutdown.
	Pod *corev1.Pod
	// Grace is the pod's grace period: the period of the stage, or the grace
	// period of the pod's spec if this is shorter.
	Grace time.Duration
}

// PlanShutdown returns the stages in which the pods are terminated when the
// node shuts down: the lowest priority first, without stages that have no pod.
// total is the time that the machine allows, 0 for no limit. If total is less
// than the time for all stages together, the first stages get less time. The
// last stages, which usually have the critical pods, keep their time.
// PlanShutdown modifies nothing. It returns nil if periods is empty.
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

// bucket returns the highest stage whose priority is not above the given
// priority, or the lowest stage if the priorities of all stages are above.
func bucket(stages []Stage, priority int32) *Stage {
	found := &stages[0]
	for i := range stages {
		if stages[i].Priority <= priority {
			found = &stages[i]
		}
	}
	return found
}

// shorten reduces the periods of the stages, starting with the first stage, so
// that their sum is at most total.
func shorten(stages []Stage, total time.Duration) {
	for i := len(stages) - 1; i >= 0; i-- {
		stages[i].Period = min(stages[i].Period, total)
		total -= stages[i].Period
	}
}
