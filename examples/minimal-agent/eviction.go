package main

import (
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// newEviction wires what ends pods before the machine runs out of something.
func (a *agent) newEviction() (err error) {
	a.policy = a.opts.policies.Eviction
	cfg := eviction.Config{
		Pods:        a.evictable,
		Killer:      killer{a},
		Policy:      a.policy,
		ContainerGC: a.containerGC,
		ImageGC:     imageReclaim{a},
		CleanedUp:   a.cleanedUp,
		Node:        a.reference(),
		Events:      a.events,
		Logger:      a.log,
		Observer: a.node.metrics.Eviction(eviction.Observer{
			ConditionsChanged: a.pressure,
			Evaluated:         a.state.evaluated,
			Evicted:           a.evicted,
		}),
	}
	if a.embedded() {
		cfg.Stats = fakeStats{a.node.fake}
	} else {
		provider, err := stats.New(stats.Config{
			Runtime: a.node.cri, Images: a.node.cri, NodeName: a.opts.nodeName,
			NodePath: a.node.rootDir, LogPath: a.logRoot(), PodsCgroup: a.podsCgroup(), Logger: a.log,
			WalkPeriod: a.opts.policies.VolumePeriod, UsageEvents: a.opts.policies.UsageEvents,
		})
		if err != nil {
			return err
		}
		a.stats = newStatistics(provider, a.policy.Thresholds, func() bool { return a.sourceReady() == nil })
		a.node.closers = append(a.node.closers, provider.Close)
		cfg.Stats, cfg.Waker = a.stats, a.stats
	}
	a.measures = cfg.Stats
	a.removedAt = map[types.UID]time.Time{}
	a.eviction, err = eviction.New(cfg)
	return err
}

func (a *agent) runStats(ctx context.Context) error {
	if a.stats == nil {
		return nil
	}
	return a.stats.run(ctx)
}

// podsCgroup is where the cgroups of all pods are, empty if the agent makes none.
func (a *agent) podsCgroup() string {
	if a.opts.cgroupParent() == "" {
		return ""
	}
	return path.Join(a.opts.cgroupParent(), "kubepods")
}

func (a *agent) logRoot() string {
	if a.opts.PodLogsDir != "" {
		return a.opts.PodLogsDir
	}
	return filepath.Join(a.node.rootDir, "logs", "pods")
}

// containerLogs is the folder with the links to containers' logs: the kubelet's if the
// logs are not in the agent's own folder.
func (a *agent) containerLogs() string {
	if a.opts.PodLogsDir != "" {
		return containergc.DefaultContainerLogs
	}
	return filepath.Join(a.node.rootDir, "logs", "containers")
}

// ordinary returns the pod as one of an API server's. To the kubelet what comes from
// a manifest is critical: it is never evicted or refused. Here all pods do, and there
// would be nobody left. A pod that must stay says so by its priority.
func ordinary(pod *corev1.Pod) *corev1.Pod {
	p := *pod
	p.Annotations = maps.Clone(p.Annotations)
	delete(p.Annotations, podspec.SourceAnnotation)
	return &p
}

// evictable are the pods that have not ended.
func (a *agent) evictable() []*corev1.Pod {
	a.mu.Lock()
	wanted := a.wanted()
	a.mu.Unlock()
	var out []*corev1.Pod
	for _, p := range wanted {
		if a.workers.IsPodKnownTerminated(p.UID) {
			continue
		}
		o := ordinary(p)
		if s, ok := a.statuses.GetPodStatus(p.UID); ok {
			o.Status = s
		}
		out = append(out, o)
	}
	return out
}

// admitUnderPressure refuses pods that the node has too little for. One that is here
// already and whose manifest has changed is not refused: it may go on. One that has
// come back while it ends is asked like any other. Callers hold mu.
func (a *agent) admitUnderPressure(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	if !a.awaitsSweep[attrs.Pod.UID] && a.workers.CouldHaveRunningContainers(attrs.Pod.UID) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	attrs.Pod = ordinary(attrs.Pod)
	return a.eviction.Admit(ctx, attrs)
}

// killer evicts by way of the pod's worker.
type killer struct{ *agent }

func (k killer) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
	if p, ok := k.pods.GetPodByUID(pod.UID); ok {
		pod = p // as its source gave it
	}
	grace := time.Duration(e.GracePeriodSeconds) * time.Second
	if err := k.workers.KillPod(ctx, pod, podworker.KillOptions{Evict: true, Grace: &grace, StatusFn: e.Apply}); err != nil {
		return err
	}
	// What it leaves may be what has filled the disk. If it can't be removed now,
	// containerGC does it later.
	s, _ := k.cache.Get(pod.UID)
	k.removals.start(ctx, s, func(ctx context.Context) error { return k.removePod(ctx, pod.UID) })
	return nil
}

// evicted tells how long it took.
func (a *agent) evicted(pod *corev1.Pod, e eviction.Eviction, took time.Duration, err error) {
	a.log.Info("evicted", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "signal", e.Signal, "decided", e.At, "took", took, "err", err)
}

// layersLinger is how long after a container is removed its layer may still be on the
// disk: containerd deletes it in the background.
const layersLinger = 5 * time.Second

// cleanedUp says whether an evicted pod has left nothing on the disk. It is called by
// one step at a time.
func (a *agent) cleanedUp(uid types.UID) bool {
	s, _ := a.cache.Get(uid)
	logs, err := filepath.Glob(filepath.Join(a.logRoot(), "*_"+string(uid)))
	if err != nil || len(s.Sandboxes)+len(s.Containers)+len(logs) > 0 || a.removals.underWay(uid) {
		return false
	}
	at, seen := a.removedAt[uid]
	if !seen {
		a.removedAt[uid] = time.Now()
		return false
	}
	if time.Since(at) < layersLinger {
		return false
	}
	delete(a.removedAt, uid)
	return true
}

// pressure tells of what the node is short of.
func (a *agent) pressure(conditions []corev1.NodeConditionType) {
	text := "has enough of everything"
	if len(conditions) > 0 {
		text = fmt.Sprintf("is short: %v", conditions)
	}
	a.console.node(a.opts.nodeName, text)
}

// imageReclaim removes as many unused images as are needed, and leaves the others for
// pods to come. Of inodes nobody knows how many an image has.
type imageReclaim struct{ *agent }

func (r imageReclaim) DeleteUnusedImages(ctx context.Context, need eviction.ReclaimPlan) error {
	if need.Amount > 0 && strings.HasSuffix(string(need.Signal), ".available") {
		_, err := r.imageGC.Free(ctx, uint64(need.Amount))
		return err
	}
	return r.imageGC.DeleteUnusedImages(ctx)
}

// fakeStats is the embedded runtime's disk. What the machine around it has does not
// matter: nothing real runs.
type fakeStats struct{ node *fakecri.Node }

func (s fakeStats) Node(context.Context) (eviction.NodeStats, error) {
	u := s.node.DiskUsage()
	stats := eviction.NodeStats{Layout: eviction.SingleFS}
	for _, signal := range []eviction.Signal{eviction.NodeFSAvailable, eviction.ImageFSAvailable} {
		stats.Observations = append(stats.Observations, eviction.Observation{
			Signal: signal, Available: int64(u.AvailableBytes), Capacity: int64(u.CapacityBytes),
		})
	}
	return stats, nil
}

func (fakeStats) Pods(context.Context, []*corev1.Pod) ([]eviction.PodStats, error) { return nil, nil }
