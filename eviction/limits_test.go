package eviction_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// checked returns the limits that the pod exceeds.
func checked(p eviction.Policy, layout eviction.Layout, pod *corev1.Pod, stats eviction.PodStats) []eviction.Breach {
	obs := eviction.Observations{
		Node: eviction.NodeStats{Layout: layout}, Pods: []*corev1.Pod{nil, pod}, PodStats: byUID(stats), CheckLimits: true,
	}
	return eviction.PlanEviction(eviction.State{}, obs, p, epoch()).Limits
}

func TestLocalStorageLimits(t *testing.T) {
	t.Parallel()
	const disk = corev1.ResourceEphemeralStorage
	two := func(options ...podOption) *corev1.Pod {
		pod := newPod("a", append([]podOption{emptyDir("data", "", "")}, options...)...)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other"})
		return pod
	}
	plain := func(options ...podOption) *corev1.Pod {
		return newPod("a", append([]podOption{emptyDir("data", "", "")}, options...)...)
	}
	for _, tt := range []struct {
		name                 string
		pod                  *corev1.Pod
		layout               eviction.Layout
		policy               eviction.Policy
		rootfs, logs, volume int64
		signal               eviction.Signal
		want                 string
	}{
		{
			name: "an emptyDir above its limit", pod: newPod("a", emptyDir("data", "1Gi", "")), volume: gi + 1,
			signal: eviction.EmptyDirFSLimit, want: `Usage of EmptyDir volume "data" exceeds the limit "1Gi". `,
		},
		{
			name: "in memory", pod: newPod("a", emptyDir("data", "1Gi", corev1.StorageMediumMemory)), volume: gi + 1,
			signal: eviction.EmptyDirFSLimit, want: `Usage of EmptyDir volume "data" exceeds the limit "1Gi". `,
		},
		{name: "at its limit", pod: newPod("a", emptyDir("data", "1Gi", "")), volume: gi},
		{name: "a limit of zero means no limit", pod: newPod("a", emptyDir("data", "0", "")), volume: gi},
		{
			name: "the whole pod", pod: two(limited(disk, "1Gi")), rootfs: gi / 2, volume: gi/2 + 1,
			signal: eviction.EphemeralPodFSLimit, want: "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
		},
		{
			name: "unless each container needs a limit", pod: two(limited(disk, "1Gi")), rootfs: gi / 2, volume: gi/2 + 1,
			policy: eviction.Policy{IgnorePartialPodLimits: true},
		},
		{
			name: "a container", pod: two(limited(disk, "1Gi")), logs: gi + 1, policy: eviction.Policy{IgnorePartialPodLimits: true},
			signal: eviction.EphemeralContainerFSLimit, want: `Container main exceeded its local ephemeral storage limit "1Gi". `,
		},
		{
			name: "a writable layer on the same disk", pod: two(limited(disk, "1Gi")), rootfs: gi + 1, policy: eviction.Policy{IgnorePartialPodLimits: true},
			signal: eviction.EphemeralContainerFSLimit, want: `Container main exceeded its local ephemeral storage limit "1Gi". `,
		},
		{
			name: "a writable layer with images", pod: two(limited(disk, "1Gi")), rootfs: gi + 1, layout: eviction.DedicatedImageFS,
			policy: eviction.Policy{IgnorePartialPodLimits: true},
		},
		{
			name: "row 8 of the defects: split filesystems", pod: two(limited(disk, "1Gi")), rootfs: 50 * gi, layout: eviction.SplitFS,
			policy: eviction.Policy{IgnorePartialPodLimits: true},
			signal: eviction.EphemeralContainerFSLimit, want: `Container main exceeded its local ephemeral storage limit "1Gi". `,
		},
		{name: "below", pod: plain(limited(disk, "1Gi")), rootfs: gi / 2, logs: gi / 4, volume: gi / 4},
		{name: "a container's limit of zero means no limit", pod: plain(limited(disk, "0")), rootfs: gi},
		{name: "no limits", pod: plain(), rootfs: gi},
		{name: "switched off", pod: newPod("a", emptyDir("data", "1Gi", "")), volume: gi + 1, policy: eviction.Policy{IgnoreLocalStorageLimits: true}},
		{name: "a critical pod", pod: newPod("a", emptyDir("data", "1Gi", ""), static), volume: gi + 1},
		{
			name: "a protected pod", pod: newPod("a", emptyDir("data", "1Gi", "")), volume: gi + 1,
			policy: eviction.Policy{Protect: func(*corev1.Pod) bool { return true }},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := checked(tt.policy, tt.layout, tt.pod, diskStats(tt.pod, tt.rootfs, tt.logs, tt.volume))
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, tt.want, got[0].Message)
			require.Equal(t, tt.signal, got[0].Signal)
			require.Greater(t, got[0].Used, got[0].Limit)
		})
	}
}

// The kubelet panics if a volume has no stats.
func TestLimits_VolumeWithoutStats(t *testing.T) {
	t.Parallel()
	pod := newPod("a", emptyDir("data", "1Gi", ""))
	require.Empty(t, checked(eviction.Policy{}, "", pod, eviction.PodStats{
		UID: pod.UID, Volumes: []eviction.VolumeStats{{Name: "data"}, {Name: "gone", DiskUsage: eviction.DiskUsage{Bytes: used(gi)}}},
	}))
	require.Empty(t, checked(eviction.Policy{}, "", newPod("b", emptyDir("data", "1Gi", "")), eviction.PodStats{UID: "other"}))
}

func TestLimits_InitContainersCount(t *testing.T) {
	t.Parallel()
	pod := newPod("a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	set(&pod.Spec.InitContainers[0].Resources.Limits, corev1.ResourceEphemeralStorage, "1Gi")
	pod.Spec.Overhead = corev1.ResourceList{}
	set(&pod.Spec.Overhead, corev1.ResourceEphemeralStorage, "1Mi")
	require.Empty(t, checked(eviction.Policy{}, "", pod, diskStats(pod, gi+mi, 0, 0)))
	got := checked(eviction.Policy{}, "", pod, diskStats(pod, gi+mi+1, 0, 0))
	require.Equal(t, "Pod ephemeral local storage usage exceeds the total limit of containers 1025Mi. ", got[0].Message)
	data, err := json.Marshal(got[0])
	require.NoError(t, err)
	require.JSONEq(t, `{"namespace":"default","name":"a","uid":"uid-a","signal":"ephemeralpodfs.limit",
		"message":"Pod ephemeral local storage usage exceeds the total limit of containers 1025Mi. ","used":1074790401,"limit":1074790400}`, string(data))
}

// TestLimits_CountForThresholds checks that a pod evicted for its limit counts for
// thresholds: if it frees enough, no other pod is evicted in the same evaluation.
func TestLimits_CountForThresholds(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	full := newPod("full", emptyDir("data", "1Gi", ""))
	stats := diskStats(full, 0, 0, 2*gi)
	stats.Memory = used(2 * gi)
	n.add(full, stats)
	n.add(newPod("calm", priority(-1)), memoryStats(newPod("calm"), 2*gi))
	m := newManager(t, n.config(hard(eviction.MemoryAvailable, gi)))
	d := n.has(m, 0, 0)
	require.Len(t, d.Limits, 1)
	require.Empty(t, d.Victims)
	require.Equal(t, "pods over their limits are evicted first", d.Thresholds[0].Why)
	require.Equal(t, "evictions in flight free enough", n.has(m, 0, time.Second).Thresholds[0].Why)
	n.waitCalls(1)
	n.end("full", errors.New("no such runtime"))
	m.Wait()

	d = n.has(m, 0, 20*time.Second)
	require.Len(t, d.Limits, 1, "the failed eviction must be retried")
	require.Equal(t, []string{"calm"}, victims(d), "the failed eviction must not delay others")
	n.waitCalls(2)
	n.end("full", nil)
	n.end("calm", nil)
	m.Wait()
}

// TestLimits_NameTheKubeletsFirst checks the message for several exceeded limits: it names
// the first volume in the spec, or the first container in the stats.
func TestLimits_NameTheKubeletsFirst(t *testing.T) {
	t.Parallel()
	const disk = corev1.ResourceEphemeralStorage
	pod := newPod("a", emptyDir("first", "1Mi", ""), emptyDir("second", "1Mi", ""))
	full := eviction.DiskUsage{Bytes: used(mi + 1)}
	stats := eviction.PodStats{UID: pod.UID, Volumes: []eviction.VolumeStats{{Name: "second", DiskUsage: full}, {Name: "first", DiskUsage: full}}}
	require.Equal(t, `Usage of EmptyDir volume "first" exceeds the limit "1Mi". `, checked(eviction.Policy{}, "", pod, stats)[0].Message)

	pod = newPod("a", limited(disk, "1Mi"))
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "other"}, corev1.Container{Name: "free"})
	set(&pod.Spec.Containers[1].Resources.Limits, disk, "1Mi")
	stats = eviction.PodStats{UID: pod.UID, Containers: []eviction.ContainerStats{{Name: "gone", Logs: full}, {Name: "other", Logs: full}, {Name: "main", Logs: full}}}
	got := checked(eviction.Policy{IgnorePartialPodLimits: true}, "", pod, stats)
	require.Equal(t, `Container other exceeded its local ephemeral storage limit "1Mi". `, got[0].Message)
}

func TestLimits_OverheadIsNoLimit(t *testing.T) {
	t.Parallel()
	const disk = corev1.ResourceEphemeralStorage
	pod := newPod("a", limited(disk, "0"), emptyDir("data", "", ""))
	pod.Spec.Overhead = corev1.ResourceList{}
	set(&pod.Spec.Overhead, disk, "1Mi")
	require.Empty(t, checked(eviction.Policy{}, "", pod, diskStats(pod, gi, 0, 0)), "a limit of zero means no limit")
}
