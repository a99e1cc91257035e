package cluster

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/status"
)

const (
	// mirrorPause is the shortest time between two passes. In this time the watch delivers the mirror
	// pods that the previous pass has created.
	mirrorPause = time.Second
	// mirrorRetry is the time until the next pass after a failure.
	mirrorRetry = 10 * time.Second
)

// mirrors creates and deletes mirror pods, so that clients of the API server see the static pods
// of the node.
type mirrors struct {
	cfg    Config
	pods   *pods
	client *podmanager.MirrorClient
	wake   chan struct{} // capacity 1
}

func newMirrors(cfg Config, p *pods, n *node) (*mirrors, error) {
	client, err := podmanager.NewMirrorClient(podmanager.MirrorConfig{
		Pods: func(namespace string) podmanager.PodClient { return cfg.Client.CoreV1().Pods(namespace) },
		Node: n.owner,
	})
	return &mirrors{cfg: cfg, pods: p, client: client, wake: make(chan struct{}, 1)}, err
}

// trigger requests a pass. It never blocks.
func (m *mirrors) trigger() {
	select {
	case m.wake <- struct{}{}:
	default: // a request is pending
	}
}

// run does a pass after each change of the pods until ctx is done.
func (m *mirrors) run(ctx context.Context, a *agent.Agent) {
	changes := a.Changes(ctx)
	for ctx.Err() == nil {
		wait := mirrorPause
		if err := m.pass(ctx, a); err != nil && ctx.Err() == nil {
			wait = mirrorRetry
			m.cfg.Logger.WarnContext(ctx, "could not create or delete mirror pods, will retry", "retryIn", wait, "err", err)
			m.trigger()
		}
		sleepUntil(ctx, m.cfg.Clock, m.cfg.Clock.Now().Add(wait))
		select {
		case <-ctx.Done():
		case <-changes:
		case <-m.wake:
		}
	}
}

// pass creates missing mirror pods, and deletes outdated and orphaned ones. It does nothing until
// the mirror pods are known. It deletes no orphaned mirror pod until every source of the agent has
// defined its pods. It makes the agent publish the status of a static pod again if the mirror pod
// has another status.
func (m *mirrors) pass(ctx context.Context, a *agent.Agent) error {
	if !m.pods.watched.isSynced() {
		return nil
	}
	known := sourcesKnown(a) // before the pods are read, so that no pod of a known source is missing
	var static []*corev1.Pod
	ending := map[types.NamespacedName]bool{}
	for _, p := range a.Pods() {
		name := types.NamespacedName{Namespace: p.Spec.Namespace, Name: p.Spec.Name}
		switch {
		case p.Source == "" && p.State.MayRun():
			ending[name] = true
		case p.Source != "" && p.Source != podspec.SourceAPI:
			static = append(static, p.Spec)
			m.republish(a, p.Spec)
		}
	}
	plan := podmanager.PlanMirrors(static, m.pods.mirrors(), func(mirror *corev1.Pod) bool {
		return !known || ending[types.NamespacedName{Namespace: mirror.Namespace, Name: mirror.Name}]
	})
	for _, action := range plan {
		pod := cmp.Or(action.Create, action.Delete)
		m.cfg.Logger.DebugContext(ctx, "changing a mirror pod", "pod", pod.Namespace+"/"+pod.Name, "reason", action.Reason)
	}
	return m.client.Apply(ctx, plan)
}

// republish makes the agent publish the status of a static pod again if its mirror pod has another
// status. The mirror pod may be new, or another client may have changed it.
func (m *mirrors) republish(a *agent.Agent, static *corev1.Pod) {
	mirror, ok := m.pods.mirrorOf(static)
	if !ok || static.Status.Phase == "" {
		return
	}
	merged, _ := status.Merge(mirror, &static.Status, true, m.cfg.Clock.Now())
	if patch, err := status.Patch(mirror, &merged); err == nil && patch != nil {
		a.Sync(static.UID)
	}
}

// sourcesKnown reports whether every source of the agent has defined its pods.
func sourcesKnown(a *agent.Agent) bool {
	for _, c := range a.Health() {
		if c.Name == "sources" {
			return c.Err == nil
		}
	}
	return false
}
