package cluster

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/status"
)

// dependencyWait is how long the first request for the pods waits for services and runtime classes.
const dependencyWait = 3 * time.Second

// pods are the pods of the node at the API server: the pods that the agent runs, and the mirror
// pods of static pods.
type pods struct {
	cfg     Config
	watched *watched[*corev1.Pod]
	sink    *status.APIServer
	// services and classes are stored in Config.State together with the pods: see checkpoint.
	services *services
	classes  *runtimeClasses
	// overwritten is called with the pods whose status another client has changed.
	overwritten func(...types.UID)
	// mirrorsChanged is called when a mirror pod may have changed.
	mirrorsChanged func()
}

func newPods(cfg Config) *pods {
	api := cfg.Client.CoreV1().Pods(corev1.NamespaceAll)
	return &pods{cfg: cfg, watched: newWatched(&corev1.Pod{}, cfg, kind[*corev1.PodList]{api.List, api.Watch},
		fields.OneTermEqualSelector("spec.nodeName", cfg.NodeName).String())}
}

// run is the Run of an agent.Source. It calls the function set with all pods after the first
// complete list and after each change, until ctx is done. It passes the changed pods to the sink
// before it calls the function, so that the sink needs no GET requests.
//
// If no list has arrived after offlineWait, run calls the function with the pods that Config.State
// has stored.
func (p *pods) run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	checkpoint := &checkpoint{cfg: p.cfg, services: p.services, classes: p.classes}
	var setting sync.Mutex // set must not be called concurrently
	p.watched.listed = p.sink.RecordList
	p.watched.changed = func(changed []*corev1.Pod) {
		var overwritten []types.UID // pods whose status another client has changed
		for _, pod := range changed {
			if !podspec.IsMirror(pod) && p.sink.RecordObject(pod.UID, pod) {
				overwritten = append(overwritten, pod.UID)
			}
		}
		own := p.own()
		setting.Lock()
		defer setting.Unlock()
		set(ctx, own)
		// The agent may skip versions of a pod. If another client overwrites the agent's status
		// twice, and the agent skips the version in between, it sees no change. Therefore this
		// call makes the agent publish its own status again.
		p.overwritten(overwritten...)
		p.mirrorsChanged()
		checkpoint.save(ctx, own) // last, so that no pod waits for the file
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if p.cfg.State == nil || p.watched.await(ctx, offlineWait) == nil || ctx.Err() != nil {
			return
		}
		setting.Lock()
		defer setting.Unlock()
		if stored, ok := checkpoint.load(ctx); ok && !p.watched.isSynced() {
			set(ctx, stored)
		}
	})
	wg.Go(func() {
		// The services and runtime classes may become known after the pods. So save the pods once
		// more when all lists are complete.
		for _, synced := range []<-chan struct{}{p.watched.synced, p.services.watched.synced, p.classes.watched.synced} {
			select {
			case <-synced:
			case <-ctx.Done():
				return
			}
		}
		setting.Lock()
		defer setting.Unlock()
		checkpoint.save(ctx, p.own())
	})
	p.awaitDependencies(ctx)
	p.watched.run(ctx)
	return nil
}

// awaitDependencies waits until the services and the runtime classes are known, but at most
// dependencyWait. Without them the first sync of nearly every pod would fail, and the next sync
// follows after a back-off.
func (p *pods) awaitDependencies(ctx context.Context) {
	end := p.cfg.Clock.Now().Add(dependencyWait)
	for _, await := range []func(context.Context, time.Duration) error{p.services.watched.await, p.classes.watched.await} {
		if err := await(ctx, end.Sub(p.cfg.Clock.Now())); err != nil {
			p.cfg.Logger.WarnContext(ctx, "requesting the pods of the node before all services and runtime classes are known", "err", err)
			return
		}
	}
}

// own returns the pods that the agent runs, oldest first.
func (p *pods) own() []*corev1.Pod {
	own := p.watched.all(func(pod *corev1.Pod) bool { return !podspec.IsMirror(pod) })
	slices.SortFunc(own, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return own
}

// mirrors returns the mirror pods.
func (p *pods) mirrors() []*corev1.Pod {
	return p.watched.all(podspec.IsMirror)
}

// mirrorOf returns the mirror pod of the current version of a static pod. It returns false if the
// mirror pod does not exist or is being deleted.
func (p *pods) mirrorOf(static *corev1.Pod) (*corev1.Pod, bool) {
	mirror, ok := p.watched.get(static.Namespace, static.Name)
	if !ok || mirror.DeletionTimestamp != nil || !podmanager.Mirrors(mirror, static) {
		return nil, false
	}
	return mirror, true
}
