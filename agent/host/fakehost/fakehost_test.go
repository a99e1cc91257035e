package fakehost_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	mib = 1 << 20
	gib = 1 << 30
)

// newNode returns a node with a disk of 10 GiB, whose program "hog" allocates 1 MiB of
// memory a second, writes 1 MiB a second, and uses half a processor. Program "job" writes
// 100 MiB and ends after 10 s.
func newNode(tb testing.TB) *fakecri.Node {
	tb.Helper()
	node, err := fakecri.New(fakecri.Config{
		Images: []fakecri.Image{{Name: "hog", SizeBytes: gib}, {Name: "job", SizeBytes: gib}},
		Programs: map[string]fakecri.Program{
			"hog": {
				CPUMilli: 500, Memory: fakecri.Growth{Start: 100 * mib, PerSecond: mib},
				Disk: fakecri.Growth{PerSecond: mib}, Inodes: fakecri.Growth{PerSecond: 1},
			},
			"job": {Runtime: 10 * time.Second, Disk: fakecri.Growth{Start: 100 * mib}, Inodes: fakecri.Growth{Start: 5}},
		},
		Disk:   fakecri.Disk{CapacityBytes: 10 * gib, Inodes: 1_000_000},
		Record: true,
	})
	require.NoError(tb, err)
	return node
}

// run starts a pod whose containers are named after their images.
func run(tb testing.TB, node *fakecri.Node, name string, images ...string) *corev1.Pod {
	tb.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	labels := map[string]string{"io.kubernetes.pod.uid": string(pod.UID)}
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: pod.Namespace, Name: name, Uid: string(pod.UID)}, Labels: labels,
	}
	sandboxID, err := node.RunPodSandbox(tb.Context(), sandbox, "")
	require.NoError(tb, err)
	for _, image := range images {
		id, err := node.CreateContainer(tb.Context(), sandboxID, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: image}, Image: &runtimeapi.ImageSpec{Image: image}, Labels: labels,
		}, sandbox)
		require.NoError(tb, err)
		require.NoError(tb, node.StartContainer(tb.Context(), id))
	}
	return pod
}

func TestFacts_AreThoseOfTheFakeMachine(t *testing.T) {
	h := fakehost.New(newNode(t))
	f, err := h.Facts(t.Context())
	require.NoError(t, err)
	got := map[corev1.ResourceName]string{}
	for name, q := range f.Capacity {
		got[name] = q.String()
	}
	require.Equal(t, map[corev1.ResourceName]string{"cpu": "8", "memory": "32Gi", "ephemeral-storage": "10Gi"}, got)
	require.Equal(t, "fakecri", f.Info.OSImage)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1")}, f.Addresses)
	require.NotEmpty(t, f.ResolvConf)
	require.NoError(t, f.ResolvConfErr)
	require.True(t, f.CgroupV2)

	// The caller may modify the results.
	clear(f.Capacity)
	f, err = h.Facts(t.Context())
	require.NoError(t, err)
	require.Len(t, f.Capacity, 3)

	require.Nil(t, h.Waker)
	require.Nil(t, h.Mounter)
	require.Nil(t, h.Run)
	require.Empty(t, h.OOM)
}

func TestFacts_ADiskLargerThanAnInt64(t *testing.T) {
	node, err := fakecri.New(fakecri.Config{Disk: fakecri.Disk{CapacityBytes: math.MaxUint64}})
	require.NoError(t, err)
	f, err := fakehost.New(node).Facts(t.Context())
	require.NoError(t, err)
	disk := f.Capacity[corev1.ResourceEphemeralStorage]
	require.EqualValues(t, math.MaxInt64, disk.Value())
}

// observe returns the available amount and the capacity of each signal.
func observe(tb testing.TB, h *host.Host) map[eviction.Signal][2]int64 {
	tb.Helper()
	node, err := h.Stats.Node(tb.Context())
	require.NoError(tb, err)
	require.Equal(tb, eviction.SingleFS, node.Layout)
	out := map[eviction.Signal][2]int64{}
	for _, o := range node.Observations {
		out[o.Signal] = [2]int64{o.Available, o.Capacity}
	}
	return out
}

func TestNode_FollowsTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		h := fakehost.New(node)
		const imageInodes = 2 * gib >> 14
		check := func(bytes, inodes int64) {
			t.Helper()
			require.Equal(t, map[eviction.Signal][2]int64{
				eviction.NodeFSAvailable: {bytes, 10 * gib}, eviction.NodeFSInodesFree: {inodes, 1_000_000},
				eviction.ImageFSAvailable: {bytes, 10 * gib}, eviction.ImageFSInodesFree: {inodes, 1_000_000},
			}, observe(t, h))
			usage, err := h.ImageFS.Usage(t.Context())
			require.NoError(t, err)
			require.Equal(t, imagegc.Usage{CapacityBytes: 10 * gib, AvailableBytes: uint64(bytes)}, usage)
		}
		check(8*gib, 1_000_000-imageInodes)
		run(t, node, "a", "hog")
		time.Sleep(time.Minute)
		check(8*gib-60*mib, 1_000_000-imageInodes-60)
		require.NoError(t, node.FillDisk(7*gib, 1000))
		check(gib-60*mib, 1_000_000-imageInodes-1060)
		require.NoError(t, node.RemoveImage(t.Context(), &runtimeapi.ImageSpec{Image: "job"}))
		check(2*gib-60*mib, 1_000_000-imageInodes/2-1060)
	})
}

func TestNode_MakesNoCalls(t *testing.T) {
	node := newNode(t)
	require.NoError(t, node.Fail("ListContainerStats", fakecri.Fault{Err: errors.New("down")}))
	require.NoError(t, node.Fail("ListPodSandboxStats", fakecri.Fault{Err: errors.New("down")}))
	require.NoError(t, node.Fail("ImageFsInfo", fakecri.Fault{Err: errors.New("down")}))
	h := fakehost.New(node)
	_, err := h.Facts(t.Context())
	require.NoError(t, err)
	observe(t, h)
	_, err = h.ImageFS.Usage(t.Context())
	require.NoError(t, err)
	require.Empty(t, node.Calls())
}

func TestPods_FollowThePrograms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		h := fakehost.New(node)
		a, b := run(t, node, "a", "hog", "job"), run(t, node, "b")
		unknown := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "unknown"}}
		time.Sleep(time.Minute)
		now := time.Now()

		pods, err := h.Stats.Pods(t.Context(), []*corev1.Pod{b, nil, unknown, a})
		require.NoError(t, err)
		const pause = 512 << 10
		known := func(v int64) eviction.Usage { return eviction.Usage{Value: v, Time: time.Unix(0, now.UnixNano())} }
		require.Equal(t, []eviction.PodStats{
			{UID: b.UID, Memory: known(pause), Processes: known(1)},
			{UID: a.UID, Memory: known(160*mib + pause), Processes: known(2), Containers: []eviction.ContainerStats{
				{Name: "hog", Memory: known(160 * mib), Rootfs: eviction.DiskUsage{Bytes: known(60 * mib), Inodes: known(60)}},
				{Name: "job", Rootfs: eviction.DiskUsage{Bytes: known(100 * mib), Inodes: known(5)}},
			}},
		}, pods)
	})
}

func TestPods_PartialFiguresWithAnError(t *testing.T) {
	node := newNode(t)
	h := fakehost.New(node)
	a := run(t, node, "a", "hog")
	require.NoError(t, node.Fail("ListContainerStats", fakecri.Fault{Err: errors.New("down"), Times: 2}))

	pods, err := h.Stats.Pods(t.Context(), []*corev1.Pod{a})
	require.EqualError(t, err, "fakehost: measure pods: down")
	require.True(t, pods[0].Memory.Known())
	require.Empty(t, pods[0].Containers)

	summary, err := h.Stats.Summary(t.Context(), []*corev1.Pod{a})
	require.EqualError(t, err, "fakehost: measure pods: down")
	require.NotNil(t, summary.Pods[0].Memory.WorkingSetBytes)
	require.NotNil(t, summary.Node.Fs)
}

func TestSummary_FollowsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		h := fakehost.New(node)
		a, b := run(t, node, "a", "hog", "job"), run(t, node, "b", "hog")
		started := metav1.NewTime(time.Now())
		a.Status.StartTime = &started
		time.Sleep(time.Minute)

		summary, err := h.Stats.Summary(t.Context(), []*corev1.Pod{a, nil, {ObjectMeta: metav1.ObjectMeta{UID: "unknown"}}, b})
		require.NoError(t, err)
		require.Len(t, summary.Pods, 2)
		p := summary.Pods[0]
		require.Equal(t, "default/a uid-a", p.PodRef.Namespace+"/"+p.PodRef.Name+" "+p.PodRef.UID)
		require.Equal(t, started, p.StartTime)
		require.EqualValues(t, 500_000_000, *p.CPU.UsageNanoCores)
		require.EqualValues(t, 160*mib+512<<10, *p.Memory.WorkingSetBytes)
		require.EqualValues(t, 160*mib, *p.EphemeralStorage.UsedBytes, "the terminated job's writable layer must still count")
		require.EqualValues(t, 65, *p.EphemeralStorage.InodesUsed)
		require.EqualValues(t, 2, *p.ProcessStats.ProcessCount)
		require.Len(t, p.Containers, 1, "the terminated job must not be listed")
		require.Equal(t, "hog", p.Containers[0].Name)
		require.EqualValues(t, 30_000_000_000, *p.Containers[0].CPU.UsageCoreNanoSeconds)
		require.EqualValues(t, 60*mib, *p.Containers[0].Rootfs.UsedBytes)
		require.Nil(t, p.Containers[0].Memory.AvailableBytes, "available memory must be nil without a limit")

		n := summary.Node
		require.EqualValues(t, 1_000_000_000, *n.CPU.UsageNanoCores)
		require.EqualValues(t, 2*(160*mib+512<<10), *n.Memory.WorkingSetBytes)
		require.EqualValues(t, 32*gib, *n.Memory.WorkingSetBytes+*n.Memory.AvailableBytes)
		require.EqualValues(t, 10*gib, *n.Fs.CapacityBytes)
		require.Equal(t, *n.Fs.CapacityBytes, *n.Fs.UsedBytes+*n.Fs.AvailableBytes)
		require.Equal(t, time.Now(), n.Fs.Time.Time)
	})
}

// Two nodes that receive the same calls report identical figures.
func TestSummary_IsDeterministic(t *testing.T) {
	var texts [2]string
	for i := range texts {
		synctest.Test(t, func(t *testing.T) {
			node := newNode(t)
			h := fakehost.New(node)
			pods := []*corev1.Pod{run(t, node, "a", "hog", "job"), run(t, node, "b", "hog")}
			time.Sleep(1234 * time.Millisecond)
			texts[i] = dump(t.Context(), t, h, pods)
		})
	}
	require.Equal(t, texts[0], texts[1])
}

func dump(ctx context.Context, tb testing.TB, h *host.Host, pods []*corev1.Pod) string {
	tb.Helper()
	summary, err := h.Stats.Summary(ctx, pods)
	require.NoError(tb, err)
	figures, err := h.Stats.Pods(ctx, pods)
	require.NoError(tb, err)
	text, err := json.Marshal([]any{summary, figures})
	require.NoError(tb, err)
	return string(text)
}

// The eviction manager detects a program that fills the disk, from the figures of the fake
// machine.
func TestStats_ServeTheEvictionManager(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		h := fakehost.New(node)
		a, b := run(t, node, "a", "job"), run(t, node, "b", "hog")
		require.NoError(t, node.FillDisk(7*gib, 0))
		thresholds, err := eviction.ParseThresholds(eviction.ThresholdSettings{EvictionHard: map[string]string{"nodefs.available": "512Mi"}})
		require.NoError(t, err)
		killed := make(chan types.UID, 2)
		manager, err := eviction.New(eviction.Config{
			Stats: h.Stats, Policy: eviction.Policy{Thresholds: thresholds},
			Pods:   func() []*corev1.Pod { return []*corev1.Pod{a, b} },
			Killer: killer(func(pod *corev1.Pod) { killed <- pod.UID }),
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- manager.Run(ctx) }()
		require.Equal(t, b.UID, <-killed)
		// At first 924 MiB are available, then one MiB less each second.
		require.InDelta(t, 412, time.Since(began).Seconds(), 2)
		cancel()
		require.NoError(t, <-done)
	})
}

type killer func(*corev1.Pod)

func (k killer) Kill(_ context.Context, pod *corev1.Pod, _ eviction.Eviction) error {
	k(pod)
	return nil
}
