package eviction_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// usesOf returns the stats of a pod that uses n of each resource.
func usesOf(pod *corev1.Pod, n int64) eviction.PodStats {
	stats := diskStats(pod, n, n, n)
	stats.Memory, stats.Processes = used(n), used(n)
	return stats
}

// The available amount falls below a soft threshold, then below a hard threshold, and rises
// again. All signals behave in the same way, with each layout in which pods use the signal's disk.
func TestEvaluate_EverySignalTakesTheSameCourse(t *testing.T) {
	t.Parallel()
	memory, disk, pids := corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure
	for _, tt := range []struct {
		signal    eviction.Signal
		layout    eviction.Layout
		condition corev1.NodeConditionType
	}{
		{eviction.MemoryAvailable, eviction.SingleFS, memory},
		{eviction.AllocatableMemoryAvailable, eviction.SingleFS, memory},
		{eviction.PIDAvailable, eviction.SingleFS, pids},
		{eviction.NodeFSAvailable, eviction.SingleFS, disk},
		{eviction.NodeFSAvailable, eviction.DedicatedImageFS, disk},
		{eviction.NodeFSAvailable, eviction.SplitFS, disk},
		{eviction.NodeFSInodesFree, eviction.SingleFS, disk},
		{eviction.NodeFSInodesFree, eviction.DedicatedImageFS, disk},
		{eviction.NodeFSInodesFree, eviction.SplitFS, disk},
		{eviction.ImageFSAvailable, eviction.SingleFS, disk},
		{eviction.ImageFSAvailable, eviction.DedicatedImageFS, disk},
		{eviction.ImageFSInodesFree, eviction.DedicatedImageFS, disk},
	} {
		t.Run(string(tt.signal)+" "+string(tt.layout), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.instant, n.layout = true, tt.layout
			for name, uses := range map[string]int64{"small": 10_000, "large": 20_000, "critical": 90_000} {
				pod := newPod(name, grace(30), emptyDir("data", "", ""))
				if name == "critical" {
					static(pod)
				}
				n.add(pod, usesOf(pod, uses))
			}
			cfg := n.config(soft(tt.signal, 2000, time.Minute), hard(tt.signal, 1000))
			cfg.Policy.MaxPodGracePeriodSeconds = 5
			m := newManager(t, cfg)
			under := func() []corev1.NodeConditionType {
				var all []corev1.NodeConditionType
				for c, is := range map[corev1.NodeConditionType]bool{
					memory: m.IsUnderMemoryPressure(), disk: m.IsUnderDiskPressure(), pids: m.IsUnderPIDPressure(),
				} {
					if is {
						all = append(all, c)
					}
				}
				return all
			}
			admits := func(class corev1.PodQOSClass) bool {
				return m.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: newPod("new", qos(class))}).Admit
			}
			look := func(after time.Duration, available int64) eviction.Decision {
				n.saw(tt.signal, available, 1_000_000)
				d := n.step(m, after)
				m.Wait()
				return d
			}

			require.True(t, new(look(0, 2000)).IsNoop())
			require.Empty(t, under())
			require.True(t, admits(corev1.PodQOSBestEffort))

			require.Empty(t, look(time.Minute, 1500).Victims, "the grace period has just started")
			require.Equal(t, []corev1.NodeConditionType{tt.condition}, under())
			require.False(t, admits(corev1.PodQOSBestEffort))
			require.Equal(t, tt.condition == memory, admits(corev1.PodQOSBurstable))

			d := look(time.Minute, 1500)
			require.Equal(t, []string{"large"}, victims(d), "the eviction of one pod frees enough")
			require.EqualValues(t, 5, d.Victims[0].GracePeriodSeconds)
			require.Equal(t, tt.signal, d.Signal)

			n.remove("large")
			require.True(t, new(look(time.Minute, 3000)).IsNoop())
			require.Equal(t, []corev1.NodeConditionType{tt.condition}, under(), "the condition must hold for the transition period")

			d = look(time.Minute, 500)
			require.Equal(t, []string{"small"}, victims(d), "a hard threshold must evict at once")
			require.EqualValues(t, 1, d.Victims[0].GracePeriodSeconds)

			n.remove("small")
			d = look(time.Minute, 500)
			require.Empty(t, d.Victims, "critical pods must never be evicted")
			require.Equal(t, []corev1.NodeConditionType{tt.condition}, under())
			require.True(t, new(look(5*time.Minute-1, 3000)).IsNoop())
			require.NotEmpty(t, under())
			look(1, 3000)
			require.Empty(t, under())
			require.True(t, admits(corev1.PodQOSBestEffort))
		})
	}
}

// The first pod frees enough for the threshold, but not for the minimum reclaim.
func TestMinReclaim_EvictsASecondPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	th := hard(eviction.MemoryAvailable, gi)
	th.MinReclaim = eviction.Value{Quantity: gi / 2}
	n.add(newPod("first", priority(-1)), memoryStats(newPod("first"), gi))
	n.add(newPod("second"), memoryStats(newPod("second"), gi))
	m := newManager(t, n.config(th))
	look := func(available int64) []string {
		n.saw(eviction.MemoryAvailable, available, 10*gi)
		got := victims(n.step(m, time.Second))
		m.Wait()
		return got
	}
	require.Equal(t, []string{"first"}, look(gi-1))
	n.remove("first")
	require.Equal(t, []string{"second"}, look(gi+mi), "a second pod must be evicted, because the first freed less than expected")
	n.remove("second")
	require.Empty(t, look(gi+gi/2))
	require.True(t, m.IsUnderMemoryPressure())
}

// The minimum reclaim of a threshold applies only to that threshold. It makes no other threshold
// due, and a threshold stays due even if another threshold is not met.
func TestMinReclaim_IsPerSignal(t *testing.T) {
	t.Parallel()
	memory, pids := hard(eviction.MemoryAvailable, 1000), hard(eviction.PIDAvailable, 100)
	memory.MinReclaim, pids.MinReclaim = eviction.Value{Quantity: 500}, eviction.Value{Fraction: 0.1}
	h := newHistory(t, memory, pids)
	look := func(available, processes int64) (states []eviction.ThresholdState) {
		d := h.look(time.Second, saw(eviction.MemoryAvailable, available, 10_000), saw(eviction.PIDAvailable, processes, 1000))
		for _, r := range d.Thresholds {
			states = append(states, r.State)
		}
		return states
	}
	require.Equal(t, []eviction.ThresholdState{eviction.Met, eviction.Fine}, look(999, 150))
	require.Equal(t, []eviction.ThresholdState{eviction.Reclaiming, eviction.Met}, look(1499, 99))
	require.Equal(t, []eviction.ThresholdState{eviction.Fine, eviction.Reclaiming}, look(1500, 199))
	require.Equal(t, []eviction.ThresholdState{eviction.Fine, eviction.Fine}, look(1499, 200))
}

// After the deletion of images, the disk is above its threshold but below its minimum
// reclaim.
func TestReclaim_BelowTheMinimumIsFollowedByEvictions(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.instant = true
	n.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
	th := hard(eviction.ImageFSAvailable, gi)
	th.MinReclaim = eviction.Value{Quantity: gi / 2}
	cfg := n.config(th)
	cfg.ImageGC = n
	m := newManager(t, cfg)
	look := func(available int64) eviction.Decision {
		n.saw(eviction.ImageFSAvailable, available, 10*gi)
		d := n.step(m, time.Second)
		m.Wait()
		return d
	}
	require.Len(t, look(0).Reclaim, 1)
	d := look(gi + gi/4)
	require.Empty(t, d.Reclaim)
	require.Equal(t, []string{"a"}, victims(d))
	require.Equal(t, gi/4, d.Thresholds[0].Shortfall)
}

// The loop, wake-ups and other callers evaluate concurrently. The kubelet's notifier does so
// without a lock, and evicts twice.
func TestEvaluate_ConcurrentCallsEvictOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.now = time.Now
		n.saw(eviction.MemoryAvailable, 0, 10*gi)
		for _, name := range []string{"a", "b", "c"} {
			n.add(newPod(name), memoryStats(newPod(name), gi))
		}
		cfg := n.config(hard(eviction.MemoryAvailable, gi))
		cfg.Clock = clock.RealClock{}
		m, stop := running(t, n, cfg)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 20 {
					m.Trigger()
					if _, err := m.Evaluate(t.Context()); err != nil {
						t.Error(err)
					}
					m.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: newPod("new")})
					m.IsUnderMemoryPressure()
				}
			})
		}
		all.Wait()
		synctest.Wait()
		require.Len(t, n.waitCalls(1), 1, "only one pod must be evicted")
		stop()
	})
}

// The parts of a pod that count for its pod-level limit.
func TestLimits_WhatCountsTowardsThePodsLimit(t *testing.T) {
	t.Parallel()
	const disk = corev1.ResourceEphemeralStorage
	init := func(amount string, sidecar bool) podOption {
		return func(p *corev1.Pod) {
			c := corev1.Container{Name: "init"}
			if sidecar {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			set(&c.Resources.Limits, disk, amount)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
	}
	for _, tt := range []struct {
		name  string
		pod   *corev1.Pod
		limit int64
	}{
		{"its containers", newPod("a", limited(disk, "2Mi"), emptyDir("data", "", "")), 2 * mi},
		{"an init container that may use more alone", newPod("a", limited(disk, "2Mi"), init("5Mi", false), emptyDir("data", "", "")), 5 * mi},
		{"an init container that may use less", newPod("a", limited(disk, "2Mi"), init("1Mi", false), emptyDir("data", "", "")), 2 * mi},
		{"containers and a sidecar", newPod("a", limited(disk, "2Mi"), init("1Mi", true), emptyDir("data", "", "")), 3 * mi},
		{"a sidecar alone", newPod("a", init("1Mi", true), emptyDir("data", "", "")), 1 * mi},
		{"an init container and the sidecar before it", newPod("a", limited(disk, "2Mi"), init("1Mi", true), init("4Mi", false), emptyDir("data", "", "")), 5 * mi},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, checked(eviction.Policy{}, "", tt.pod, diskStats(tt.pod, 0, 0, tt.limit)))
			got := checked(eviction.Policy{}, "", tt.pod, diskStats(tt.pod, 0, 0, tt.limit+1))
			require.Len(t, got, 1)
			require.Equal(t, eviction.EphemeralPodFSLimit, got[0].Signal)
			require.Equal(t, tt.limit, got[0].Limit)
			require.Equal(t, tt.limit+1, got[0].Used)
		})
	}
	for name, volume := range map[string]podOption{
		"an emptyDir in memory does not count": emptyDir("data", "", corev1.StorageMediumMemory), "a host path is not the pod's": hostPath("data"),
	} {
		pod := newPod("a", limited(disk, "2Mi"), volume)
		require.Empty(t, checked(eviction.Policy{}, "", pod, diskStats(pod, mi, mi, gi)), name)
	}
	pod := newPod("a", init("1Mi", true))
	stats := diskStats(pod, 0, mi+1, 0)
	stats.Containers[0].Name = "init"
	require.Equal(t, eviction.EphemeralPodFSLimit, checked(eviction.Policy{}, "", pod, stats)[0].Signal, "the usage of a sidecar must count")
}
