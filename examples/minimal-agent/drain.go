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

// farewell does with the pods what is asked for when the agent stops.
func (a *agent) farewell(ctx context.Context) error {
	switch {
	case a.opts.stopPods:
		if err := a.drain(ctx); err != nil {
			return fmt.Errorf("--stop-pods: %w", err)
		}
	case a.opts.policies.Shutdown.Total() > 0:
		if err := a.shutDown(ctx); err != nil {
			return fmt.Errorf("--shutdown-grace-period: %w", err)
		}
	}
	return nil
}

// shutDown ends the pods as the kubelet does when its node shuts down: critical ones
// last, and none gets more time than there is. The next agent starts them again.
func (a *agent) shutDown(ctx context.Context) error {
	a.mu.Lock()
	a.draining = true
	var pods []*corev1.Pod
	for _, p := range a.wanted() {
		if !a.workers.IsPodKnownTerminated(p.UID) {
			pods = append(pods, p)
		}
	}
	a.mu.Unlock()
	cfg := a.opts.policies.Shutdown
	a.console.say("ending the pods within %v; another signal leaves them as they are", cfg.Total())
	return podworker.Shutdown(ctx, a.workers, podworker.PlanShutdown(pods, cfg.GracePeriods(), cfg.Total()), podworker.ShutdownOptions{
		Flush: a.publish.Flush, Events: a.events, Node: a.reference(),
		StageEnd: func(s podworker.Stage, took time.Duration, _ error) {
			a.console.say("ended %d pods from priority %d on in %v", len(s.Pods), s.Priority, took.Round(time.Millisecond))
		},
	})
}

// drain kills every pod of this agent and returns when nothing is left of any, or
// with an error when that takes too long.
func (a *agent) drain(ctx context.Context) error {
	a.mu.Lock()
	pods := a.pods.GetPods()
	a.pods.SetPods(nil)
	a.draining = true
	a.ready = true // whatever the manifests would have said: no pod is desired now
	a.mu.Unlock()
	a.removals.hurry()
	a.console.say("taking the pods down; another signal leaves them as they are")
	a.node.metrics.ShutdownStarted()
	defer a.node.metrics.ShutdownEnded()

	ctx, cancel := context.WithTimeoutCause(ctx, longestGrace(pods)+drainMargin, errors.New("it takes too long"))
	defer cancel()
	errs := make([]error, len(pods))
	var kills sync.WaitGroup
	for i, p := range pods {
		kills.Go(func() { errs[i] = a.workers.KillPod(ctx, p, podworker.KillOptions{}) })
	}
	kills.Wait()
	return errors.Join(append(errs, a.awaitNothing(ctx))...)
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

// longestGrace is the longest time that one of the pods may take to end.
func longestGrace(pods []*corev1.Pod) time.Duration {
	var seconds int64
	for _, p := range pods {
		seconds = max(seconds, ptr.Deref(p.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
	return time.Duration(seconds) * time.Second
}
