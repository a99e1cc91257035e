package stats_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
)

// criStats is a runtime that returns the values of its fields.
type criStats struct {
	containers []*runtimeapi.ContainerStats
	sandboxes  []*runtimeapi.PodSandboxStats
	err        error
}

func (r *criStats) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return r.containers, r.err
}

func (r *criStats) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return r.sandboxes, r.err
}

func n64(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func labels(uid types.UID) map[string]string {
	return map[string]string{"io.kubernetes.pod.uid": string(uid)}
}

// used is the usage of a container: CPU time in nanoseconds, and bytes.
type used struct{ cpu, memory, layer uint64 }

// container returns the statistics of a running container.
func container(uid types.UID, name string, attempt uint32, at time.Time, use used) *runtimeapi.ContainerStats {
	return &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: name + string(rune('0'+attempt)), Labels: labels(uid),
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		},
		Cpu:           &runtimeapi.CpuUsage{Timestamp: at.UnixNano(), UsageCoreNanoSeconds: n64(use.cpu)},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: at.UnixNano(), WorkingSetBytes: n64(use.memory)},
		WritableLayer: &runtimeapi.FilesystemUsage{Timestamp: at.UnixNano(), UsedBytes: n64(use.layer), InodesUsed: n64(use.layer / 1000)},
	}
}

func TestPods_ContainerStatsOfTheRuntime(t *testing.T) {
	t.Parallel()
	cfg := tree(t, "v2-systemd")
	then := epoch().Add(-5 * time.Second)
	dead := container(burstable, "app", 0, then, used{0, 0, 7000})
	dead.Cpu, dead.Memory = nil, nil
	runtime := &criStats{containers: []*runtimeapi.ContainerStats{
		dead, container(burstable, "app", 1, then, used{1_000_000_000, 100, 3000}), container(burstable, "side", 0, then, used{1_000_000_000, 50, 1000}),
		container("aaaaaaaa-0000-0000-0000-000000000000", "fresh", 0, then, used{1, 77, 1}),
		container("aaaaaaaa-0000-0000-0000-000000000000", "second", 0, then.Add(-time.Second), used{1, 23, 1}),
		container("somebody-elses", "x", 0, then, used{1, 1, 1}),
	}}
	cfg.Runtime = runtime
	p := newProvider(t, cfg)
	pods, err := p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	require.Empty(t, pods[0].Containers, "Pods must not call the runtime")
	_, _ = p.Refresh(t.Context())
	runtime.err = errors.New("hangs")
	_, err = p.Refresh(t.Context())
	require.ErrorContains(t, err, "container stats: hangs")

	pods, err = p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	at := func(n int64) eviction.Usage { return eviction.Usage{Value: n, Time: time.Unix(0, then.UnixNano())} }
	require.Equal(t, []eviction.ContainerStats{
		{Name: "app", Rootfs: eviction.DiskUsage{Bytes: at(7000), Inodes: at(7)}},
		{Name: "app", Memory: at(100), Rootfs: eviction.DiskUsage{Bytes: at(3000), Inodes: at(3)}},
		{Name: "side", Memory: at(50), Rootfs: eviction.DiskUsage{Bytes: at(1000), Inodes: at(1)}},
	}, pods[0].Containers, "figures must have their own times, and the disk usage of an exited container must count")
	require.Equal(t, epoch(), pods[0].Memory.Time, "the pod's own memory must be measured now")
	require.Len(t, pods, 4)
	require.EqualValues(t, 100, pods[3].Memory.Value, "without a cgroup, the pod's memory must be the sum of its containers")
	require.True(t, pods[3].Memory.Time.Equal(then.Add(-time.Second)), "the sum must have the time of its oldest part")
}

// TestPods_MalformedRuntimeStats checks that missing fields of the runtime cause no nil
// dereference (kubernetes#58541).
func TestPods_MalformedRuntimeStats(t *testing.T) {
	t.Parallel()
	cfg := tree(t, "v1-systemd")
	cfg.Runtime = &criStats{
		containers: []*runtimeapi.ContainerStats{
			nil,
			{},
			{Attributes: &runtimeapi.ContainerAttributes{Labels: labels(burstable)}},
			{
				Attributes: &runtimeapi.ContainerAttributes{Labels: labels(burstable)},
				Cpu:        &runtimeapi.CpuUsage{}, Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: n64(1)},
				WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: n64(1)}, Swap: &runtimeapi.SwapUsage{},
				Io: &runtimeapi.IoUsage{Psi: &runtimeapi.PsiStats{}},
			},
		},
		sandboxes: []*runtimeapi.PodSandboxStats{
			nil,
			{},
			{Attributes: &runtimeapi.PodSandboxAttributes{Labels: labels(burstable)}, Linux: &runtimeapi.LinuxPodSandboxStats{
				Network: &runtimeapi.NetworkUsage{Interfaces: []*runtimeapi.NetworkInterfaceUsage{nil, {}}},
			}},
		},
	}
	p := newProvider(t, cfg)
	_, _ = p.Refresh(t.Context())
	pods, err := p.Pods(t.Context(), treePods())
	require.NoError(t, err)
	require.Len(t, pods[0].Containers, 2)
	for _, c := range pods[0].Containers {
		require.False(t, c.Memory.Known(), "a figure without a time must be unknown")
		require.False(t, c.Rootfs.Bytes.Known())
	}
	s, err := p.Summary(t.Context(), treePods())
	require.Error(t, err, "a node without disks must return an error")
	require.Len(t, s.Pods[0].Containers, 1)
	require.Nil(t, s.Pods[0].Containers[0].CPU.UsageNanoCores)
	require.Nil(t, s.Pods[0].Containers[0].Rootfs.UsedBytes)
}

// summaryOf returns the summary, and one container of its first pod.
func summaryOf(t *testing.T, p *stats.Provider, name string) (*statsapi.Summary, statsapi.ContainerStats) {
	t.Helper()
	s, _ := p.Summary(t.Context(), treePods())
	for _, c := range s.Pods[0].Containers {
		if c.Name == name {
			return s, c
		}
	}
	require.Fail(t, "container is missing", name)
	return nil, statsapi.ContainerStats{}
}

func TestCPURate_NeedsTwoSamples(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v2-systemd")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	runtime := &criStats{}
	cfg.Runtime = runtime
	p := newProvider(t, cfg)
	sample := func(attempt uint32, nanoseconds uint64) {
		runtime.containers = []*runtimeapi.ContainerStats{container(burstable, "app", attempt, clock.Now(), used{nanoseconds, 1, 1})}
	}
	sample(0, 1e9)
	s, c := summaryOf(t, p, "app")
	require.Nil(t, c.CPU.UsageNanoCores, "one sample must not result in a rate")
	require.Nil(t, s.Node.CPU.UsageNanoCores)
	require.EqualValues(t, 1_000_000_000, *c.CPU.UsageCoreNanoSeconds)

	clock.Step(10 * time.Second)
	sample(0, 6e9)
	write(t, "usage_usec 25000000\n", cfg.CgroupRoot, "cpu.stat")
	s, c = summaryOf(t, p, "app")
	require.EqualValues(t, 500_000_000, *c.CPU.UsageNanoCores, "5 s of CPU time in 10 s: half a CPU")
	require.EqualValues(t, 2_000_000_000, *s.Node.CPU.UsageNanoCores)
	require.Zero(t, *s.Pods[0].CPU.UsageNanoCores)

	clock.Step(10 * time.Millisecond)
	sample(0, 7e9)
	_, c = summaryOf(t, p, "app")
	require.EqualValues(t, 500_000_000, *c.CPU.UsageNanoCores, "a sample that follows too soon must keep the previous rate")

	clock.Step(10 * time.Second)
	sample(0, 1e9)
	_, c = summaryOf(t, p, "app")
	require.Nil(t, c.CPU.UsageNanoCores, "a counter that decreased must not result in a rate")

	clock.Step(10 * time.Second)
	sample(1, 2e9)
	_, c = summaryOf(t, p, "app")
	require.Nil(t, c.CPU.UsageNanoCores, "the next attempt must not reuse the samples of the previous one")

	clock.Step(time.Hour)
	runtime.containers = nil
	_, _ = p.Refresh(t.Context())
	sample(1, 3e9)
	_, c = summaryOf(t, p, "app")
	require.Nil(t, c.CPU.UsageNanoCores, "forgotten")

	runtime.containers[0].Cpu.UsageNanoCores = n64(42)
	_, c = summaryOf(t, p, "app")
	require.EqualValues(t, 42, *c.CPU.UsageNanoCores, "the runtime's own rate must be used")
}

func TestSummary_PodWithAllFigures(t *testing.T) {
	t.Parallel()
	cfg := live(t, "v1-cgroupfs")
	cfg.Images = &images{image: cfg.NodePath, container: cfg.NodePath}
	started := metav1.NewTime(epoch().Add(-time.Minute))
	described := pod("burstable", burstable)
	described.Status.StartTime = &started
	described.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "other"}, {Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}},
	}
	described.Spec.Volumes = []corev1.Volume{
		{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
	}
	unseen := pod("unseen", "bbbbbbbb-0000-0000-0000-000000000000")
	running := container(burstable, "app", 3, epoch(), used{1_000_000_000, 500, 3000})
	running.Swap = &runtimeapi.SwapUsage{Timestamp: epoch().UnixNano(), SwapUsageBytes: n64(9)}
	running.Io = &runtimeapi.IoUsage{Timestamp: epoch().UnixNano(), Psi: &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Total: 5, Avg10: 1}}}
	sandbox := &runtimeapi.LinuxPodSandboxStats{
		Network: &runtimeapi.NetworkUsage{
			Timestamp:        epoch().UnixNano(),
			DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: n64(11), TxBytes: n64(22)},
			Interfaces:       []*runtimeapi.NetworkInterfaceUsage{{Name: "net1", RxBytes: n64(33)}},
		},
		Process: &runtimeapi.ProcessUsage{ProcessCount: n64(8)},
		Cpu:     &runtimeapi.CpuUsage{Timestamp: epoch().UnixNano(), UsageCoreNanoSeconds: n64(4)},
		Memory:  &runtimeapi.MemoryUsage{Timestamp: epoch().UnixNano(), WorkingSetBytes: n64(66)},
	}
	cfg.Runtime = &criStats{
		containers: []*runtimeapi.ContainerStats{container(burstable, "app", 2, epoch(), used{9, 9, 4000}), running},
		sandboxes: []*runtimeapi.PodSandboxStats{
			{Attributes: &runtimeapi.PodSandboxAttributes{Labels: labels(burstable)}, Linux: sandbox},
			{Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(unseen.UID)}}, Linux: sandbox},
		},
	}
	p := newProvider(t, cfg)
	_, _ = p.Refresh(t.Context())
	s, _ := p.Summary(t.Context(), []*corev1.Pod{described, unseen})
	require.Len(t, s.Pods, 2)
	got := s.Pods[0]
	require.Equal(t, started, got.StartTime)
	require.Equal(t, "eth0", got.Network.Name)
	require.EqualValues(t, 22, *got.Network.TxBytes)
	require.Len(t, got.Network.Interfaces, 2)
	require.EqualValues(t, 12, *got.ProcessStats.ProcessCount, "the newer figure, from the cgroup, must be used")
	require.EqualValues(t, 7000, *got.EphemeralStorage.UsedBytes, "sum of two writable layers")
	require.EqualValues(t, 4096, *got.Swap.SwapUsageBytes)
	require.Len(t, got.Containers, 1, "only the last attempt must be listed")
	app := got.Containers[0]
	require.Equal(t, started, app.StartTime)
	require.EqualValues(t, 500, *app.Memory.WorkingSetBytes)
	require.EqualValues(t, 3000, *app.Rootfs.UsedBytes)
	require.EqualValues(t, 9, *app.Swap.SwapUsageBytes)
	require.InDelta(t, 1, app.IO.PSI.Some.Avg10, 0)
	require.EqualValues(t, 66, *s.Pods[1].Memory.WorkingSetBytes, "without a cgroup, the sandbox's figure must be used")
	require.EqualValues(t, 8, *s.Pods[1].ProcessStats.ProcessCount)
	require.EqualValues(t, 4, *s.Pods[1].CPU.UsageCoreNanoSeconds)
	_, err := json.Marshal(s)
	require.NoError(t, err)
}

// cgroupless is a runtime that fails to list sandbox stats if one of the sandboxes has no
// cgroup, as containerd does.
type cgroupless struct {
	criStats
	without map[types.UID]bool
	calls   int
}

func (r *cgroupless) ListPodSandboxStats(_ context.Context, filter *runtimeapi.PodSandboxStatsFilter) (all []*runtimeapi.PodSandboxStats, err error) {
	r.calls++
	for _, s := range r.sandboxes {
		uid := s.Attributes.Labels["io.kubernetes.pod.uid"]
		if only, ok := filter.GetLabelSelector()["io.kubernetes.pod.uid"]; ok && only != uid {
			continue
		}
		if r.without[types.UID(uid)] {
			return nil, errors.New("cgroupPath is empty")
		}
		all = append(all, s)
	}
	return all, nil
}

// TestSummary_OfPodsWithoutCgroups checks a pod for which the runtime reports only the
// containers, and a pod for which the runtime also reports the sandbox.
func TestSummary_OfPodsWithoutCgroups(t *testing.T) {
	t.Parallel()
	cfg := tree(t, "v2-systemd")
	bare, whole := types.UID("bare"), types.UID("whole")
	pods := []*corev1.Pod{pod("bare", bare), nil, pod("whole", whole), pod("waiting", "waiting")}
	runtime := &cgroupless{without: map[types.UID]bool{bare: true}}
	for _, uid := range []types.UID{bare, whole} {
		runtime.sandboxes = append(runtime.sandboxes, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{Labels: labels(uid)},
			Linux: &runtimeapi.LinuxPodSandboxStats{
				Cpu:     &runtimeapi.CpuUsage{Timestamp: epoch().UnixNano(), UsageCoreNanoSeconds: n64(1000)},
				Network: &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0"}},
			},
		})
		ended := container(uid, "init", 0, epoch(), used{1, 1, 1})
		ended.Cpu, ended.Memory = nil, nil
		runtime.containers = append(runtime.containers, ended,
			container(uid, "app", 0, epoch(), used{5e9, 100, 1}), container(uid, "side", 0, epoch().Add(-time.Second), used{1e9, 11, 1}))
	}
	runtime.containers[1].Memory.RssBytes = n64(7)
	cfg.Runtime = runtime
	p := newProvider(t, cfg)
	s, err := p.Summary(t.Context(), pods)
	require.ErrorContains(t, err, "pod sandbox stats: cgroupPath is empty")
	require.Len(t, s.Pods, 3)
	require.EqualValues(t, 6_000_000_000, *s.Pods[0].CPU.UsageCoreNanoSeconds)
	require.Nil(t, s.Pods[0].CPU.UsageNanoCores, "no container has a rate yet")
	require.True(t, s.Pods[0].CPU.Time.Equal(&metav1.Time{Time: epoch().Add(-time.Second)}), "the sum must have the time of its oldest part")
	require.EqualValues(t, 111, *s.Pods[0].Memory.WorkingSetBytes)
	require.EqualValues(t, 7, *s.Pods[0].Memory.RSSBytes, "the sum of the known figures must be used")
	require.Nil(t, s.Pods[0].Memory.UsageBytes)
	require.Nil(t, s.Pods[0].Network)

	require.EqualValues(t, 1000, *s.Pods[1].CPU.UsageCoreNanoSeconds, "the runtime's figure of the sandbox must be used")
	require.EqualValues(t, 111, *s.Pods[1].Memory.WorkingSetBytes)
	require.Equal(t, "eth0", s.Pods[1].Network.Name)
	require.Nil(t, s.Pods[2].CPU)
	require.Nil(t, s.Pods[2].Memory)

	runtime.without, runtime.calls = nil, 0
	s, err = p.Summary(t.Context(), pods)
	require.NotContains(t, err.Error(), "sandbox")
	require.Equal(t, 1, runtime.calls)
	require.NotNil(t, s.Pods[0].Network)
}

// TestFakeNode uses a fakecri.Node as the runtime.
func TestFakeNode(t *testing.T) {
	t.Parallel()
	clock := testingclock.NewFakeClock(epoch())
	node, err := fakecri.New(fakecri.Config{
		Clock:  clock,
		Images: []fakecri.Image{{Name: "app:1"}},
	})
	require.NoError(t, err)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "burstable", Namespace: "ns", Uid: string(burstable)},
		Labels:   labels(burstable),
	}
	sandbox, err := node.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
	id, err := node.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Labels: labels(burstable),
		Image: &runtimeapi.ImageSpec{Image: "app:1"},
	}, config)
	require.NoError(t, err)
	require.NoError(t, node.StartContainer(t.Context(), id))

	cfg := tree(t, "v2-systemd")
	cfg.Clock, cfg.Runtime = clock, node
	p := newProvider(t, cfg)
	clock.Step(5 * time.Second)
	_, c := summaryOf(t, p, "app")
	require.NotNil(t, c.CPU)
	require.NotNil(t, c.Memory.WorkingSetBytes)
	require.NotNil(t, c.Rootfs.UsedBytes)
	require.NoError(t, node.Fail("ListPodSandboxStats", fakecri.Fault{Err: errors.New("not there")}))
	_, err = p.Summary(t.Context(), treePods())
	require.ErrorContains(t, err, "pod sandbox stats")
}
