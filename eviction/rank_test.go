package eviction_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ranked ranks pods that have the given stats.
func ranked(s eviction.Signal, layout eviction.Layout, p eviction.Policy, pods []*corev1.Pod, stats ...eviction.PodStats) []eviction.Candidate {
	obs := eviction.Observations{Node: eviction.NodeStats{Layout: layout}, Pods: pods, PodStats: byUID(stats...)}
	return eviction.Rank(s, eviction.State{}, obs, p, epoch())
}

func TestKubeletRank_OrdersByRequestPriorityAndExcess(t *testing.T) {
	t.Parallel()
	memory := corev1.ResourceMemory
	for _, tt := range []struct {
		name string
		pods []*corev1.Pod
		uses []int64
		want []string
	}{
		{
			"above the request comes before below it, whatever the priority",
			[]*corev1.Pod{newPod("below", asks(memory, "2Gi"), priority(-5)), newPod("above", asks(memory, "1Gi"), priority(5))},
			[]int64{gi, gi + 1},
			[]string{"above", "below"},
		},
		{
			"usage equal to the request is not above it",
			[]*corev1.Pod{newPod("equal", asks(memory, "1Gi")), newPod("above", asks(memory, "1Gi"), priority(9))},
			[]int64{gi, gi + 1},
			[]string{"above", "equal"},
		},
		{
			"lower priority comes first",
			[]*corev1.Pod{newPod("high", priority(100)), newPod("low", priority(-100)), newPod("none")},
			[]int64{3 * gi, gi, 2 * gi},
			[]string{"low", "none", "high"},
		},
		{
			"the larger excess comes first, not the larger usage",
			[]*corev1.Pod{newPod("large", asks(memory, "10Gi")), newPod("hog", asks(memory, "1Gi"))},
			[]int64{11 * gi, 5 * gi},
			[]string{"hog", "large"},
		},
		{
			"below the request, the pod nearer to it comes first",
			[]*corev1.Pod{newPod("far", asks(memory, "10Gi")), newPod("near", asks(memory, "2Gi"))},
			[]int64{gi, gi},
			[]string{"near", "far"},
		},
		{
			"a limit replaces a missing request",
			[]*corev1.Pod{newPod("limited", limited(memory, "2Gi")), newPod("free")},
			[]int64{gi, mi},
			[]string{"free", "limited"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var stats []eviction.PodStats
			for i, pod := range tt.pods {
				stats = append(stats, memoryStats(pod, tt.uses[i]))
			}
			for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.AllocatableMemoryAvailable} {
				require.Equal(t, tt.want, names(ranked(s, eviction.SingleFS, eviction.Policy{}, tt.pods, stats...)))
			}
		})
	}
}

func TestRank_ProcessesByPriorityThenCount(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{newPod("few"), newPod("many"), newPod("high", priority(1))}
	var stats []eviction.PodStats
	for i, n := range []int64{10, 500, 9000} {
		stats = append(stats, eviction.PodStats{UID: pods[i].UID, Processes: used(n)})
	}
	got := ranked(eviction.PIDAvailable, eviction.SingleFS, eviction.Policy{}, pods, stats...)
	require.Equal(t, []string{"many", "few", "high"}, names(got))
}

// Which parts of a pod count for which disk.
func TestRank_DiskUsageDependsOnTheLayout(t *testing.T) {
	t.Parallel()
	pod := newPod("a", emptyDir("data", "", ""))
	stats := diskStats(pod, 100, 10, 1)
	stats.Other.Bytes = used(1000)
	for _, tt := range []struct {
		layout                       eviction.Layout
		nodeFS, imageFS, containerFS int64
	}{
		{eviction.SingleFS, 1111, 1111, 1111},
		{eviction.UnknownLayout, 1111, 1111, 1111},
		{eviction.DedicatedImageFS, 1011, 100, 100},
		{eviction.SplitFS, 1111, -1, 1111},
	} {
		for signal, want := range map[eviction.Signal]int64{
			eviction.NodeFSAvailable: tt.nodeFS, eviction.ImageFSAvailable: tt.imageFS, eviction.ContainerFSAvailable: tt.containerFS,
		} {
			got := ranked(signal, tt.layout, eviction.Policy{}, []*corev1.Pod{pod}, stats)[0]
			if want < 0 {
				require.False(t, got.Usage.Known(), "no part of a pod uses this disk")
				require.False(t, got.Missing, "a figure that cannot exist must not count as missing")
				continue
			}
			require.Equal(t, want, got.Usage.Value, "%s on %s", signal, tt.layout)
		}
	}
	got := ranked(eviction.NodeFSInodesFree, eviction.SingleFS, eviction.Policy{}, []*corev1.Pod{pod}, stats)[0]
	require.EqualValues(t, 111, got.Usage.Value)
}

// kubernetes#35017, kubernetes#128604: data that is not deleted with the pod must not make
// the pod a victim.
func TestRank_VolumesThatAreNotDeletedWithThePod(t *testing.T) {
	t.Parallel()
	for name, volume := range map[string]podOption{
		"host path": hostPath("data"),
		"memory":    emptyDir("data", "", corev1.StorageMediumMemory),
		"not in the spec": func(*corev1.Pod) {
		},
	} {
		pod := newPod("a", volume)
		got := ranked(eviction.NodeFSAvailable, eviction.SingleFS, eviction.Policy{}, []*corev1.Pod{pod}, diskStats(pod, 0, 0, 50*gi))[0]
		require.Zero(t, got.Usage.Value, name)
		require.Equal(t, eviction.KeptUseless, got.Kept, name)
	}
}

// The kubelet compares requested bytes with inodes.
func TestRank_InodesAreNotComparedWithBytes(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{newPod("ten"), newPod("hog", asks(corev1.ResourceEphemeralStorage, "10Gi"))}
	got := ranked(eviction.NodeFSInodesFree, eviction.SingleFS, eviction.Policy{}, pods,
		diskStats(pods[0], 10, 0, 0), diskStats(pods[1], 9_000_000, 0, 0))
	require.Equal(t, []string{"hog", "ten"}, names(got))
	require.Zero(t, got[0].Request)
}

// The kubelet evicts a pod without stats first.
func TestRank_PodWithoutStatsIsNotEvictedDuringStatsGrace(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{newPod("new", priority(1000)), newPod("hog", priority(-1))}
	rank := func(state eviction.State, now time.Time, stats ...eviction.PodStats) []eviction.Candidate {
		return eviction.Rank(eviction.MemoryAvailable, state, eviction.Observations{Pods: pods, PodStats: byUID(stats...)}, eviction.Policy{}, now)
	}
	hog := memoryStats(pods[1], 50*gi)
	early := rank(eviction.State{}, epoch(), hog)
	require.Equal(t, []string{"hog", "new"}, names(early))
	require.True(t, early[1].Missing)

	since := eviction.State{StatsMissingSince: map[types.UID]time.Time{pods[0].UID: epoch()}}
	require.Equal(t, []string{"hog", "new"}, names(rank(since, epoch().Add(2*time.Minute-1), hog)))
	require.Equal(t, []string{"new", "hog"}, names(rank(since, epoch().Add(2*time.Minute), hog)), "after StatsGrace, the order must be the kubelet's")
	require.Equal(t, []string{"hog", "new"}, names(rank(since, epoch().Add(2*time.Minute-1), hog,
		eviction.PodStats{UID: pods[0].UID})), "stats without this value count as missing")
}

// The cgroup of a pod that has just succeeded is removed while the pod is still active.
func TestRank_PodThatLosesItsStatsIsNotFirst(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("old", priority(1000)), memoryStats(newPod("old"), gi))
	h.add(newPod("hog"), memoryStats(newPod("hog"), 5*gi))
	h.look(0, memoryIs(2*gi))
	delete(h.stats, newPod("old").UID)
	require.Equal(t, []string{"hog"}, victims(h.look(time.Hour, memoryIs(gi/2))))
	require.Equal(t, []string{"hog"}, victims(h.look(time.Minute, memoryIs(gi/2))))
	require.Equal(t, []string{"old"}, victims(h.look(time.Minute, memoryIs(gi/2))), "stats are missing for two minutes")

	h.look(time.Second, memoryIs(2*gi))
	require.Equal(t, []string{"hog"}, victims(h.look(time.Hour, memoryIs(gi/2))), "an earlier period without stats must not count")
	st := memoryStats(newPod("old"), gi)
	h.stats[st.UID] = &st
	h.look(time.Minute, memoryIs(gi/2))
	delete(h.stats, newPod("old").UID)
	require.Equal(t, []string{"hog"}, victims(h.look(2*time.Minute, memoryIs(gi/2))), "a period with stats in between must reset StatsGrace")
}

func TestRank_MemoryOfContainersReplacesThatOfThePod(t *testing.T) {
	t.Parallel()
	pod := newPod("a")
	got := ranked(eviction.MemoryAvailable, "", eviction.Policy{}, []*corev1.Pod{pod}, eviction.PodStats{
		UID: pod.UID, Containers: []eviction.ContainerStats{{Memory: used(3)}, {}, {Memory: used(4)}},
	})
	require.EqualValues(t, 7, got[0].Usage.Value)
	got = ranked(eviction.MemoryAvailable, "", eviction.Policy{}, []*corev1.Pod{pod}, eviction.PodStats{
		UID: pod.UID, Memory: used(9), Containers: []eviction.ContainerStats{{Memory: used(7)}},
	})
	require.EqualValues(t, 9, got[0].Usage.Value, "the usage of the whole pod cgroup must count, including the sandbox and tmpfs files")
}

func TestQoSFirst(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{
		newPod("guaranteed", qos(corev1.PodQOSGuaranteed), priority(-9)),
		newPod("burstable", qos(corev1.PodQOSBurstable), priority(-5)),
		newPod("best-small", qos(corev1.PodQOSBestEffort), priority(5)),
		newPod("best-large", qos(corev1.PodQOSBestEffort), priority(5)),
	}
	var stats []eviction.PodStats
	for i, pod := range pods {
		stats = append(stats, memoryStats(pod, gi+int64(i)))
	}
	got := ranked(eviction.MemoryAvailable, "", eviction.Policy{Rank: eviction.QoSFirst}, pods, stats...)
	require.Equal(t, []string{"best-large", "best-small", "burstable", "guaranteed"}, names(got))
	got = ranked(eviction.MemoryAvailable, "", eviction.Policy{}, pods, stats...)
	require.Equal(t, []string{"guaranteed", "burstable", "best-large", "best-small"}, names(got))
	byName := func(a, b *eviction.Candidate) int { return strings.Compare(a.Pod.Name, b.Pod.Name) }
	got = ranked(eviction.MemoryAvailable, "", eviction.Policy{Rank: byName}, pods, stats...)
	require.Equal(t, []string{"best-large", "best-small", "burstable", "guaranteed"}, names(got))
}

func TestProtectAndPrefer(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{newPod("a"), newPod("b"), newPod("c", priority(99)), newPod("d", static), newPod("e", priority(2_000_000_000)), nil}
	var stats []eviction.PodStats
	for _, pod := range pods[:5] {
		stats = append(stats, memoryStats(pod, gi))
	}
	p := eviction.Policy{
		Protect: func(p *corev1.Pod) bool { return p.Name == "a" },
		Prefer:  func(p *corev1.Pod) bool { return p.Name == "c" },
	}
	for _, p.Rank = range []func(a, b *eviction.Candidate) int{nil, eviction.KubeletRank} {
		got := ranked(eviction.MemoryAvailable, "", p, pods, stats...)
		require.Equal(t, []string{"c", "a", "b", "d", "e"}, names(got))
		var why []string
		for _, c := range got {
			why = append(why, c.Kept)
		}
		require.Equal(t, []string{"", eviction.KeptProtected, "", eviction.KeptCritical, eviction.KeptCritical}, why)
	}
}

// The order must not depend on the order of the input, and must equal the order that the test
// computes independently.
func TestRank_IsIndependentOfTheInputOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		pods, stats := randomPods(r, 40)
		p := eviction.Policy{Prefer: func(p *corev1.Pod) bool { return strings.HasSuffix(p.Name, "3") }}
		signal := []eviction.Signal{eviction.MemoryAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree, eviction.PIDAvailable}[r.IntN(4)]
		want := names(ranked(signal, eviction.SingleFS, p, pods, stats...))
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		require.Equal(t, want, names(ranked(signal, eviction.SingleFS, p, pods, stats...)), "seed %d", seed)
		p.Rank = eviction.KubeletRank
		require.Equal(t, want, names(ranked(signal, eviction.SingleFS, p, pods, stats...)), "seed %d", seed)
	}
}

// randomPods returns pods whose stats are often equal or missing.
func randomPods(r *rand.Rand, n int) (pods []*corev1.Pod, stats []eviction.PodStats) {
	for i := range n {
		pod := newPod(fmt.Sprintf("p%d", i), priority(int32(r.IntN(4)-1)), emptyDir("data", "", ""))
		switch r.IntN(8) {
		case 0:
			static(pod)
		case 1:
			priority(2_000_000_000)(pod)
		}
		if r.IntN(2) == 0 {
			asks(corev1.ResourceMemory, fmt.Sprint(r.IntN(4)*1000))(pod)
			asks(corev1.ResourceEphemeralStorage, fmt.Sprint(r.IntN(4)*1000))(pod)
		}
		start := metav1.NewTime(epoch().Add(time.Duration(r.IntN(3)) * time.Second))
		pod.Status.StartTime = &start
		pods = append(pods, pod)
		st := diskStats(pod, r.Int64N(3)*1000, r.Int64N(3)*1000, 0)
		if r.IntN(5) > 0 {
			st.Memory = used(r.Int64N(4) * 1000)
			st.Processes = used(r.Int64N(4))
		}
		if r.IntN(5) > 0 {
			stats = append(stats, st)
		}
	}
	return pods, stats
}

// Rank uses the request that package podspec computes, but the pod's overhead counts only if the
// pod requests anything.
func TestRank_RequestIsThatOfPodspec(t *testing.T) {
	t.Parallel()
	amounts := []string{"0", "1", "1500m", "0.3Gi", "64Mi", "1Gi", "100M"}
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 2))
		list := func() corev1.ResourceList {
			l := corev1.ResourceList{}
			for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourceCPU} {
				if r.IntN(2) == 0 {
					l[name] = resource.MustParse(amounts[r.IntN(len(amounts))])
				}
			}
			return l
		}
		pod := newPod("a")
		pod.Spec.Containers = nil
		for range 1 + r.IntN(2) {
			pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}})
		}
		for range r.IntN(3) {
			c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(), Limits: list()}}
			if r.IntN(2) == 0 {
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
		if r.IntN(2) == 0 {
			pod.Spec.Overhead = list()
		}
		if r.IntN(3) == 0 {
			whole := corev1.ResourceRequirements{Requests: list(), Limits: list()}
			delete(whole.Requests, corev1.ResourceEphemeralStorage)
			delete(whole.Limits, corev1.ResourceEphemeralStorage)
			pod.Spec.Resources = &whole
		}
		want, bare := podspec.Requests(pod), *pod
		bare.Spec.Overhead = nil
		for name, asked := range podspec.Requests(&bare) {
			if asked.IsZero() {
				delete(want, name)
			}
		}
		for name := range pod.Spec.Overhead {
			if _, ok := podspec.Requests(&bare)[name]; !ok {
				delete(want, name)
			}
		}
		before := pod.DeepCopy()
		got := ranked(eviction.MemoryAvailable, "", eviction.Policy{}, []*corev1.Pod{pod})[0]
		require.Equal(t, want.Memory().Value(), got.Request, "memory, seed %d", seed)
		got = ranked(eviction.NodeFSAvailable, "", eviction.Policy{}, []*corev1.Pod{pod})[0]
		require.Equal(t, want.StorageEphemeral().Value(), got.Request, "ephemeral storage, seed %d", seed)
		require.True(t, equality.Semantic.DeepEqual(before, pod), "the pod must not be modified, seed %d", seed)
	}
}

func TestRank_KeptPods(t *testing.T) {
	t.Parallel()
	pods := []*corev1.Pod{newPod("ended"), newPod("ending"), newPod("failed"), newPod("retried"), newPod("useless")}
	pods[0].Status.Phase = corev1.PodSucceeded
	var stats []eviction.PodStats
	for _, pod := range pods {
		stats = append(stats, memoryStats(pod, gi))
	}
	stats[4] = memoryStats(pods[4], 0)
	state := eviction.State{
		InFlight:  []eviction.InFlight{{UID: pods[1].UID}},
		NotBefore: map[types.UID]time.Time{pods[2].UID: epoch().Add(1), pods[3].UID: epoch()},
	}
	got := eviction.Rank(eviction.MemoryAvailable, state, eviction.Observations{Pods: pods, PodStats: byUID(stats...)}, eviction.Policy{}, epoch())
	slices.SortFunc(got, func(a, b eviction.Candidate) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	var why []string
	for _, c := range got {
		why = append(why, c.Kept)
	}
	require.Equal(t, []string{eviction.KeptEnded, eviction.KeptEnding, eviction.KeptFailed, "", eviction.KeptUseless}, why)
}
