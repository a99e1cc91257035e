package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// sweepPeriod is how often housekeeping runs by itself, as the kubelet's does.
const sweepPeriod = 2 * time.Second

// housekeep makes workers, runtime and statuses agree with what is desired: it
// starts what has no worker, kills what nobody asked for, and removes what has
// stopped for good. It does nothing until the manifests were read: until then
// nobody knows what is desired.
func (a *agent) housekeep(ctx context.Context) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return sweepPeriod
	}
	wanted := a.wanted()
	known := a.workers.SyncKnownPods(wanted)
	keep := map[types.UID]bool{}
	for _, p := range wanted {
		keep[p.UID] = true
		if _, ok := known[p.UID]; !ok {
			a.workers.UpdatePod(podworker.Update{Type: podworker.Create, Pod: p})
		}
	}
	for _, s := range a.cache.Statuses() {
		if keep[s.UID] {
			continue
		}
		if err := a.removeOrphan(ctx, s); err != nil && ctx.Err() == nil {
			a.log.ErrorContext(ctx, "removing a pod failed, it will be tried again", "pod", s.Namespace+"/"+s.Name, "podUID", s.UID, "err", err)
		}
	}
	a.statuses.RemoveOrphanedStatuses(func(uid types.UID) bool {
		_, isKnown := known[uid]
		_, isDesired := a.pods.GetPodByUID(uid)
		return isKnown || isDesired
	})
	return sweepPeriod
}

// wanted are the desired pods that were not refused.
func (a *agent) wanted() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range a.pods.GetPods() {
		if !a.rejected[p.UID] {
			pods = append(pods, p)
		}
	}
	return pods
}

// removeOrphan takes one step with a pod that nobody asks for: one that runs is
// killed by its worker, one that has stopped is removed.
func (a *agent) removeOrphan(ctx context.Context, s *podcache.Status) error {
	if a.workers.CouldHaveRunningContainers(s.UID) {
		return nil // its worker is at it
	}
	if s.Running() {
		a.workers.UpdatePod(podworker.Update{Type: podworker.Kill, Running: s})
		return nil
	}
	if s.Stale || len(s.Sandboxes)+len(s.Containers) == 0 {
		return nil
	}
	if err := a.runner.RemovePod(ctx, s); err != nil {
		return err
	}
	a.console.gone(s.Namespace, s.Name)
	return a.pleg.RelistPod(ctx, s.UID) // or the next sweep would find it again
}

// drain kills every pod and removes it, and returns when nothing is left.
func (a *agent) drain(ctx context.Context) error {
	a.mu.Lock()
	a.draining = true
	pods := a.pods.GetPods()
	a.pods.SetPods(nil)
	a.mu.Unlock()

	errs := make([]error, len(pods))
	var kills sync.WaitGroup
	for i, p := range pods {
		kills.Go(func() { errs[i] = a.workers.KillPod(ctx, p, podworker.KillOptions{}) })
	}
	kills.Wait()

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		a.housekeep(ctx)
		if _, err := a.pleg.Relist(ctx); err == nil && len(a.cache.Statuses()) == 0 {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("%d pods are left: %w", len(a.cache.Statuses()), ctx.Err()))...)
		case <-tick.C:
		}
	}
}
