package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

const (
	// drainMargin is what the runtime may take to stop and remove all pods, on top
	// of the longest grace period among them.
	drainMargin = time.Minute
	// drainPeriod is how often drain looks whether something is left.
	drainPeriod = 100 * time.Millisecond
)

// drain kills every pod of this agent and returns when nothing is left of any, or
// with an error when that takes too long.
func (a *agent) drain(ctx context.Context) error {
	a.mu.Lock()
	pods := a.pods.GetPods()
	a.draining = true
	a.ready = true // whatever the manifests would have said: no pod is desired now
	a.mu.Unlock()
	fmt.Fprintln(a.console.out, "taking the pods down; another signal leaves them as they are")

	steps := a.opts.endSteps(pods)
	ctx, cancel := context.WithTimeoutCause(ctx, longestEnd(steps)+drainMargin, errors.New("it takes too long"))
	defer cancel()
	var errs []error
	for i, step := range steps {
		a.desireOnly(steps[i+1:])
		errs = append(errs, a.end(ctx, step))
	}
	a.desireOnly(nil)
	return errors.Join(append(errs, a.awaitNothing(ctx))...)
}

// desireOnly makes the pods of these steps all that is desired: the sweep ends what is
// not, in no order.
func (a *agent) desireOnly(steps []endStep) {
	var pods []*corev1.Pod
	for _, s := range steps {
		pods = append(pods, s.pods...)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pods.SetPods(pods)
}

// end kills the pods of a step and returns when they have ended, or their time is
// over: the next ones need theirs.
func (a *agent) end(ctx context.Context, step endStep) error {
	within := ctx
	if step.within != nil {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, max(*step.within, time.Second))
		defer cancel()
	}
	errs := make([]error, len(step.pods))
	var kills sync.WaitGroup
	for i, p := range step.pods {
		kills.Go(func() { errs[i] = a.workers.KillPod(within, p, podworker.KillOptions{Grace: step.grace(p)}) })
	}
	kills.Wait()
	if within.Err() != nil && ctx.Err() == nil {
		return nil // they are being killed; awaitNothing says whether they go
	}
	return errors.Join(errs...)
}

// awaitNothing returns when the sweeps have left no pod on the runtime.
func (a *agent) awaitNothing(ctx context.Context) error {
	tick := time.NewTicker(drainPeriod)
	defer tick.Stop()
	for {
		listed, err := a.pleg.Relist(ctx)
		left := len(a.found())
		// What is listed shows among the found when it has been inspected.
		if err == nil && listed.Inspecting+listed.SetAside+left == 0 {
			return nil
		}
		a.sweep.Trigger()
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d pods are left: %w", left, context.Cause(ctx)), err)
		case <-tick.C:
		}
	}
}

// longestEnd is the longest time that all steps may take.
func longestEnd(steps []endStep) (all time.Duration) {
	for _, s := range steps {
		if s.within != nil {
			all += max(*s.within, time.Second)
		} else {
			all += longestGrace(s.pods)
		}
	}
	return all
}

// longestGrace is the longest time that one of the pods may take to end.
func longestGrace(pods []*corev1.Pod) time.Duration {
	var seconds int64
	for _, p := range pods {
		seconds = max(seconds, ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
	return time.Duration(seconds) * time.Second
}
