package main

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/examples/minimal-agent/config"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// endStep is pods that end together when the agent does.
type endStep struct {
	pods []*corev1.Pod
	// within is how long they have; nil: each its own time.
	within *time.Duration
}

// grace is how long a pod of this step has: its own time, if that is shorter.
func (s endStep) grace(pod *corev1.Pod) *time.Duration {
	if s.within == nil {
		return nil
	}
	own := time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
	return new(min(own, *s.within))
}

// takesDown says whether pods end when the agent does.
func (o *options) takesDown() bool { return o.stopPods || len(o.shutdownPeriods()) > 0 }

// shutdownPeriods are the times for pods by their priority, lowest first; none
// without a graceful shutdown.
func (o *options) shutdownPeriods() []config.ShutdownGracePeriodByPodPriority {
	all := slices.Clone(o.ShutdownGracePeriodByPodPriority)
	if total, critical := o.ShutdownGracePeriod.Duration, o.ShutdownGracePeriodCriticalPods.Duration; total > 0 {
		all = []config.ShutdownGracePeriodByPodPriority{
			{Priority: 0, ShutdownGracePeriodSeconds: int64((total - critical) / time.Second)},
			{Priority: podspec.SystemCriticalPriority, ShutdownGracePeriodSeconds: int64(critical / time.Second)},
		}
	}
	slices.SortFunc(all, func(a, b config.ShutdownGracePeriodByPodPriority) int { return cmp.Compare(a.Priority, b.Priority) })
	return all
}

// endSteps says which pods end after which, as a kubelet has it when its node shuts
// down: those of low priority first.
func (o *options) endSteps(pods []*corev1.Pod) []endStep {
	periods := o.shutdownPeriods()
	if len(periods) == 0 {
		return []endStep{{pods: pods}}
	}
	steps := make([]endStep, len(periods))
	for i, p := range periods {
		steps[i].within = new(time.Duration(p.ShutdownGracePeriodSeconds) * time.Second)
	}
	for _, pod := range pods {
		priority, at := ptr.Deref(pod.Spec.Priority, 0), 0 // below all: with the lowest
		for i, p := range periods {
			if p.Priority <= priority {
				at = i
			}
		}
		steps[at].pods = append(steps[at].pods, pod)
	}
	return slices.DeleteFunc(steps, func(s endStep) bool { return len(s.pods) == 0 })
}
