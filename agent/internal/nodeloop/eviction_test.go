package nodeloop_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
)

const gib = 1 << 30

// diskBelow10Percent is the threshold of the tests: the disk has 100Gi.
func diskBelow10Percent() eviction.Policy {
	return eviction.Policy{
		Thresholds:               []eviction.Threshold{{Signal: eviction.NodeFSAvailable, Value: eviction.Value{Fraction: 0.1}}},
		PressureTransitionPeriod: 30 * time.Second,
	}
}

func TestEviction_DiskPressure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		var pressureChanged, observed, evicted atomic.Int64
		b.cfg.Eviction = diskBelow10Percent()
		b.cfg.PressureChanged = func() { pressureChanged.Add(1) }
		b.cfg.Observers.Eviction.ConditionsChanged = func([]corev1.NodeConditionType) { observed.Add(1) }
		b.cfg.Observers.Eviction.Evicted = func(*corev1.Pod, eviction.Eviction, time.Duration, error) { evicted.Add(1) }
		b.pods.add("small", "large")
		b.figures.pods = []eviction.PodStats{used("small", gib, time.Now().Add(time.Hour)), used("large", 50*gib, time.Now().Add(time.Hour))}
		b.pods.evict = func(context.Context, *corev1.Pod) error {
			time.Sleep(3 * time.Second)
			return b.node.FillDisk(10*gib, 0)
		}
		b.start(t)
		wait(time.Minute)
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		wait(20 * time.Second)

		require.Equal(t, []string{"large"}, b.pods.evictedPods())
		e := b.pods.evictions[0]
		require.Same(t, b.pods.defined["large"], e.pod)
		require.True(t, e.evict)
		require.Equal(t, time.Second, e.grace)
		require.Equal(t, corev1.PodFailed, e.status.Phase)
		require.Equal(t, "Evicted", e.status.Reason)
		require.Equal(t, corev1.ConditionTrue, condition(b.Node(), corev1.NodeDiskPressure).Status)
		require.Equal(t, corev1.ConditionTrue, b.ready().Status)
		require.Equal(t, []string{"DiskPressure"}, b.check(t, "eviction").Notes)
		require.False(t, b.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: &corev1.Pod{}}).Admit)
		require.Equal(t, int64(1), pressureChanged.Load())
		require.Equal(t, int64(1), evicted.Load())
		require.Equal(t, 1, b.log.count("evicted a pod"))
		require.Contains(t, b.events.all(), "Node node1: EvictionThresholdMet")
		require.Contains(t, b.events.all(), "pod large: Evicted")

		wait(time.Minute)
		require.Equal(t, corev1.ConditionFalse, condition(b.Node(), corev1.NodeDiskPressure).Status)
		require.True(t, b.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: &corev1.Pod{}}).Admit)
		require.Equal(t, int64(2), pressureChanged.Load())
		require.Equal(t, int64(2), observed.Load())
		require.Equal(t, []string{"large"}, b.pods.evictedPods())
	})
}

func TestEviction_NothingBeforeReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.pods.notReady = errors.New("source file has not answered")
		b.pods.add("large")
		b.pods.active[0].Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceEphemeralStorage: *b.machine.facts.Capacity.StorageEphemeral(),
		}
		b.figures.pods = []eviction.PodStats{used("large", 200*gib, time.Now().Add(time.Hour))}
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		b.start(t)
		wait(time.Minute)
		require.Zero(t, b.figures.looks, "without thresholds and limits, nothing must be measured")
		require.Empty(t, b.pods.evictedPods())
		require.Equal(t, corev1.ConditionFalse, condition(b.Node(), corev1.NodeDiskPressure).Status)
		plan, err := b.Plan(t.Context())
		require.NoError(t, err)
		require.Empty(t, plan.Eviction.Victims)
		require.Empty(t, plan.Eviction.Limits)
		require.True(t, plan.Containers.NotReady)

		b.pods.change(func(p *fakePods) { p.notReady = nil })
		wait(15 * time.Second)
		require.Equal(t, []string{"large"}, b.pods.evictedPods())
	})
}

// Unused images are deleted before a pod is evicted, and only as many as necessary.
func TestEviction_DeletesImagesFirst(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal    eviction.Signal
		imageFS   bool
		remaining int // of three images
		evictions int
	}{
		"as many as are needed":     {eviction.NodeFSAvailable, true, 2, 0},
		"all for inodes":            {eviction.NodeFSInodesFree, true, 0, 0},
		"none without a filesystem": {eviction.NodeFSAvailable, false, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, bigImages("demo/a:1", "demo/b:1", "demo/c:1")...)
				b.cfg.Eviction = diskBelow10Percent()
				b.cfg.Eviction.Thresholds[0].Signal = c.signal
				b.cfg.TakeOver = true
				b.cfg.ImageGC = imagegc.Policy{HighThresholdPercent: new(100), LowThresholdPercent: new(100)}
				if !c.imageFS {
					b.cfg.Host.ImageFS = nil
				}
				b.pods.add("large")
				b.figures.pods = []eviction.PodStats{used("large", 50*gib, time.Now().Add(time.Hour))}
				b.pods.evict = func(context.Context, *corev1.Pod) error { return b.node.FillDisk(0, 0) }
				b.start(t)
				wait(10 * time.Minute)
				u := b.node.DiskUsage()
				if c.signal == eviction.NodeFSAvailable {
					require.NoError(t, b.node.FillDisk(u.AvailableBytes-u.CapacityBytes/10+1, 0))
				} else {
					require.NoError(t, b.node.FillDisk(0, u.InodesFree-u.Inodes/10+1))
				}
				require.NotNil(t, planned(t, b))
				wait(time.Minute)
				require.Len(t, b.images(t), c.remaining)
				require.Len(t, b.pods.evictedPods(), c.evictions)
			})
		})
	}
}

// planned returns what would be reclaimed.
func planned(t *testing.T, b *bed) []eviction.ReclaimPlan {
	t.Helper()
	plan, err := b.Plan(t.Context())
	require.NoError(t, err)
	return plan.Eviction.Reclaim
}

// The space of an evicted pod counts as not yet freed until 5 s after the last observation of
// its remaining data. During this time no other pod is evicted for the same space.
func TestEviction_LeftoversOfAnEvictedPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.pods.add("first", "second")
		b.figures.pods = []eviction.PodStats{used("first", 50*gib, time.Now().Add(time.Hour)), used("second", 40*gib, time.Now().Add(time.Hour))}
		sandbox, _ := b.run(t, "first")
		b.start(t)
		wait(time.Minute)
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		wait(12 * time.Second)
		require.Equal(t, []string{"first"}, b.pods.evictedPods())
		wait(5 * time.Second)
		require.NoError(t, b.node.StopPodSandbox(t.Context(), sandbox))
		require.NoError(t, b.node.RemovePodSandbox(t.Context(), sandbox))
		removed := time.Now()
		for len(b.pods.evictedPods()) == 1 {
			b.EvaluateThresholds()
			wait(100 * time.Millisecond)
		}
		require.Equal(t, []string{"first", "second"}, b.pods.evictedPods(), "evicted pods, with an unchanged usage of the disk")
		require.InDelta(t, 5*time.Second, b.pods.evictions[1].decided.Sub(removed), float64(time.Second))
	})
}

// One pod is defined again while its old data is being removed. The data of another pod is
// never removed.
func TestEviction_LeftoversThatStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.pods.add("first", "second")
		b.figures.pods = []eviction.PodStats{used("first", 50*gib, time.Now().Add(time.Hour)), used("second", 40*gib, time.Now().Add(time.Hour))}
		b.run(t, "first")
		b.start(t)
		wait(time.Minute)
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		wait(12 * time.Second)
		require.Equal(t, []string{"first"}, b.pods.evictedPods())
		wait(40 * time.Second)
		require.Equal(t, []string{"first", "second"}, b.pods.evictedPods(), "the eviction must wait at most 30 s for the data to be removed")
	})
}

func TestEviction_FailedKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.pods.add("only")
		b.pods.defined = nil
		b.pods.evict = func(context.Context, *corev1.Pod) error { return errors.New("no worker") }
		b.figures.pods = []eviction.PodStats{used("only", 50*gib, time.Now().Add(time.Hour))}
		b.start(t)
		require.NoError(t, b.node.FillDisk(95*gib, 0))
		wait(15 * time.Second)
		require.Equal(t, "only", b.pods.evictedPods()[0], "an orphaned pod must be evicted under its own name")
		require.Zero(t, b.log.count("evicted a pod"))
		require.Positive(t, b.log.count("no worker"))
	})
}

func TestEviction_MissingStatistics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.figures.err = errors.New("no meminfo")
		b.start(t)
		before := b.changed.Load()
		require.Equal(t, []string{"some measurements failed: measure the node: no meminfo"}, b.check(t, "eviction").Notes)
		require.NoError(t, b.check(t, "eviction").Err)
		b.figures.change(func(f *figures) { f.err = nil })
		wait(11 * time.Second)
		require.Empty(t, b.check(t, "eviction").Notes)
		require.Greater(t, b.changed.Load(), before)
	})
}

func TestRanking_OrdersPodsForEachThreshold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.cfg.Eviction = diskBelow10Percent()
		b.cfg.Eviction.Thresholds = append(b.cfg.Eviction.Thresholds, eviction.Threshold{Signal: eviction.NodeFSAvailable, Value: eviction.Value{Quantity: gib}, GracePeriod: time.Minute})
		b.pods.add("small", "large")
		b.figures.pods = []eviction.PodStats{used("small", gib, time.Now()), used("large", 50*gib, time.Now())}
		b.start(t)
		ranking, err := b.Ranking(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[eviction.Signal]int{eviction.NodeFSAvailable: 1}, ranking.Places("large"))
		require.Equal(t, map[eviction.Signal]int{eviction.NodeFSAvailable: 2}, ranking.Places("small"))
		require.Empty(t, ranking.Places("other"))
		require.Regexp(t, `^number 1 of 2 in the eviction order for nodefs.available \(nodefs.available<10%, nodefs.available<1Gi; [0-9.]+Gi available\): `+
			`priority 0, QoS class BestEffort, uses 50Gi and requests 0$`, ranking.Words("large"))

		b.figures.change(func(f *figures) { f.err = errors.New("no meminfo") })
		wait(time.Second)
		ranking, err = b.Ranking(t.Context())
		require.EqualError(t, err, "measure the pods: no meminfo")
		require.Len(t, ranking.Places("large"), 1, "with an error, the ranking must contain the known pods")
		_, err = b.Plan(t.Context())
		require.EqualError(t, err, "plan evictions: no meminfo")
	})
}
