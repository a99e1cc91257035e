package fakecri_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// withAppetite configures a node whose demo/web:1 uses every kind of resource.
func withAppetite(c *fakecri.Config) {
	c.Programs["demo/web:1"] = fakecri.Program{
		Runtime:  time.Minute,
		CPUMilli: 250,
		Memory:   fakecri.Growth{Start: 10 << 20, PerSecond: 1 << 20, Max: 64 << 20},
		Disk:     fakecri.Growth{PerSecond: 4096},
		Inodes:   fakecri.Growth{Start: 3, PerSecond: 1},
	}
}

func (b *bed) stats(id string) *runtimeapi.ContainerStats {
	b.t.Helper()
	stats, err := b.ContainerStats(b.t.Context(), id)
	require.NoError(b.t, err)
	return stats
}

func TestStats_ReportTheUsageOfTheProgram(t *testing.T) {
	b := newBed(t, withAppetite)
	_, id := b.start("a", "demo/web:1")
	b.clock.Step(4 * time.Second)
	stats := b.stats(id)
	require.Equal(t, id, stats.GetAttributes().GetId())
	require.Equal(t, "app", stats.GetAttributes().GetMetadata().GetName())
	require.Equal(t, "app", stats.GetAttributes().GetLabels()["io.kubernetes.container.name"])
	require.Equal(t, epoch.Add(4*time.Second).UnixNano(), stats.GetCpu().GetTimestamp())
	require.EqualValues(t, time.Second, stats.GetCpu().GetUsageCoreNanoSeconds().GetValue())
	require.EqualValues(t, 250_000_000, stats.GetCpu().GetUsageNanoCores().GetValue())
	require.EqualValues(t, 14<<20, stats.GetMemory().GetWorkingSetBytes().GetValue())
	require.Nil(t, stats.GetMemory().GetAvailableBytes()) // the container has no limit
	require.EqualValues(t, 4*4096, stats.GetWritableLayer().GetUsedBytes().GetValue())
	require.EqualValues(t, 7, stats.GetWritableLayer().GetInodesUsed().GetValue())

	// An exited container keeps only its disk usage.
	b.clock.Step(time.Hour)
	_, err := b.ContainerStats(t.Context(), id)
	requireCode(t, codes.Unknown, err, "unexpected metrics response")
	list, err := b.ListContainerStats(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Nil(t, list[0].GetCpu())
	require.Nil(t, list[0].GetMemory())
	require.EqualValues(t, 60*4096, list[0].GetWritableLayer().GetUsedBytes().GetValue())

	_, err = b.ContainerStats(t.Context(), "nobody")
	requireCode(t, codes.NotFound, err)
}

func TestStats_IdleProgramHasSmallNonzeroUsage(t *testing.T) {
	b := newBed(t)
	sandbox := b.pod("a")
	id := b.make(sandbox, "a", "app", "demo/stubborn:1")
	list, err := b.ListContainerStats(t.Context(), &runtimeapi.ContainerStatsFilter{Id: id})
	require.NoError(t, err)
	require.Zero(t, list[0].GetWritableLayer().GetUsedBytes().GetValue()) // the container was not started
	require.NoError(t, b.StartContainer(t.Context(), id))
	b.clock.Step(time.Second)
	stats := b.stats(id)
	require.EqualValues(t, time.Millisecond, stats.GetCpu().GetUsageCoreNanoSeconds().GetValue())
	require.EqualValues(t, 1<<20, stats.GetMemory().GetUsageBytes().GetValue())
}

func TestStats_AvailableMemory(t *testing.T) {
	b := newBed(t, withAppetite)
	_, id := b.start("a", "demo/web:1")
	limit := func(bytes int64) {
		require.NoError(t, b.UpdateContainerResources(t.Context(), id, &runtimeapi.ContainerResources{
			Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: bytes},
		}))
	}
	limit(100 << 20)
	require.EqualValues(t, 90<<20, b.stats(id).GetMemory().GetAvailableBytes().GetValue())
}

func TestStatsFilters(t *testing.T) {
	b := newBed(t)
	one, app := b.start("a", "demo/web:1")
	two, _ := b.start("b", "demo/web:1")
	other := b.make(one, "a", "other", "demo/web:1")
	for name, tc := range map[string]struct {
		filter *runtimeapi.ContainerStatsFilter
		want   int
	}{
		"everything":     {nil, 3},
		"a pod":          {&runtimeapi.ContainerStatsFilter{PodSandboxId: one}, 2},
		"a container":    {&runtimeapi.ContainerStatsFilter{Id: app}, 1},
		"another's":      {&runtimeapi.ContainerStatsFilter{Id: app, PodSandboxId: two}, 0},
		"nobody":         {&runtimeapi.ContainerStatsFilter{Id: "nobody"}, 0},
		"by label":       {&runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{"io.kubernetes.container.name": "other"}}, 1},
		"by other label": {&runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{"app": "none"}}, 0},
	} {
		list, err := b.ListContainerStats(t.Context(), tc.filter)
		require.NoError(t, err)
		require.Len(t, list, tc.want, name)
	}
	_, err := b.ContainerStats(t.Context(), other)
	requireCode(t, codes.Unknown, err) // the container was not started
}

func TestPodSandboxStats_AreTheSumOfItsContainers(t *testing.T) {
	b := newBed(t, withAppetite)
	sandbox, _ := b.start("a", "demo/web:1")
	second := b.make(sandbox, "a", "second", "demo/web:1")
	b.make(sandbox, "a", "third", "demo/web:1")
	require.NoError(t, b.StartContainer(t.Context(), second))
	b.clock.Step(4 * time.Second)
	stats, err := b.PodSandboxStats(t.Context(), sandbox)
	require.NoError(t, err)
	linux := stats.GetLinux()
	require.Equal(t, "a", stats.GetAttributes().GetMetadata().GetName())
	require.Equal(t, "demo", stats.GetAttributes().GetLabels()["app"])
	require.EqualValues(t, 2*time.Second, linux.GetCpu().GetUsageCoreNanoSeconds().GetValue())
	require.EqualValues(t, 28<<20+512<<10, linux.GetMemory().GetWorkingSetBytes().GetValue())
	require.EqualValues(t, 3, linux.GetProcess().GetProcessCount().GetValue())
	require.Len(t, linux.GetContainers(), 2)
	require.Equal(t, "eth0", linux.GetNetwork().GetDefaultInterface().GetName())

	list, err := b.ListPodSandboxStats(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.True(t, proto.Equal(stats, list[0]))
	list, err = b.ListPodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsFilter{LabelSelector: map[string]string{"app": "x"}})
	require.NoError(t, err)
	require.Empty(t, list)

	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	_, err = b.PodSandboxStats(t.Context(), sandbox)
	requireCode(t, codes.Unavailable, err, "not in ready state")
	list, err = b.ListPodSandboxStats(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = b.PodSandboxStats(t.Context(), "nobody")
	requireCode(t, codes.NotFound, err)
}

func TestPodSandboxStats_HostNetworkHasNoNetworkStats(t *testing.T) {
	b := newBed(t)
	config := podConfig("a", 0)
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
	}}
	id, err := b.RunPodSandbox(t.Context(), config, "")
	require.NoError(t, err)
	stats, err := b.PodSandboxStats(t.Context(), id)
	require.NoError(t, err)
	require.Nil(t, stats.GetLinux().GetNetwork())
}

func TestMetrics_MatchTheirDescriptors(t *testing.T) {
	b := newBed(t, withAppetite)
	sandbox, id := b.start("a", "demo/web:1")
	b.make(sandbox, "a", "idle", "demo/web:1")
	gone := b.pod("gone")
	require.NoError(t, b.StopPodSandbox(t.Context(), gone))
	b.clock.Step(8 * time.Second)
	descriptors, err := b.ListMetricDescriptors(t.Context())
	require.NoError(t, err)
	pods, err := b.ListPodSandboxMetrics(t.Context())
	require.NoError(t, err)
	require.Len(t, pods, 1)
	require.Equal(t, sandbox, pods[0].GetPodSandboxId())
	require.Len(t, pods[0].GetContainerMetrics(), 1)
	got := pods[0].GetContainerMetrics()[0]
	require.Equal(t, id, got.GetContainerId())
	values := map[string]uint64{}
	for i, m := range got.GetMetrics() {
		require.Equal(t, descriptors[i].GetName(), m.GetName())
		require.NotEmpty(t, descriptors[i].GetHelp())
		require.Len(t, m.GetLabelValues(), len(descriptors[i].GetLabelKeys()))
		require.Equal(t, []string{"default", "a", "app"}, m.GetLabelValues()[3:])
		values[m.GetName()] = m.GetValue().GetValue()
	}
	require.Equal(t, map[string]uint64{
		"container_cpu_usage_seconds_total":  2,
		"container_memory_usage_bytes":       18 << 20,
		"container_memory_working_set_bytes": 18 << 20,
		"container_fs_usage_bytes":           8 * 4096,
		"container_fs_inodes_used":           11,
	}, values)
}

func BenchmarkListContainerStats(b *testing.B) {
	n := fill(b, 1000)
	b.ReportAllocs()
	for b.Loop() {
		list, err := n.ListContainerStats(b.Context(), nil)
		require.NoError(b, err)
		require.NotEmpty(b, list)
	}
}

func TestServe_ReturnsTheSameStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withAppetite)
		rt, _ := serve(t, b.Node)
		ctx := t.Context()
		sandbox, id := b.start("a", "demo/web:1")
		b.clock.Step(3 * time.Second)

		one, err := rt.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
		require.NoError(t, err)
		require.True(t, proto.Equal(b.stats(id), one.GetStats()))
		list, err := rt.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: id}})
		require.NoError(t, err)
		requireSame(t, []*runtimeapi.ContainerStats{one.GetStats()}, list.GetStats())

		pod, err := rt.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: sandbox})
		require.NoError(t, err)
		want, err := b.PodSandboxStats(ctx, sandbox)
		require.NoError(t, err)
		require.True(t, proto.Equal(want, pod.GetStats()))
		pods, err := rt.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
		require.NoError(t, err)
		requireSame(t, []*runtimeapi.PodSandboxStats{want}, pods.GetStats())

		descriptors, err := rt.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
		require.NoError(t, err)
		require.Len(t, descriptors.GetDescriptors(), 5)
		metrics, err := rt.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
		require.NoError(t, err)
		require.Len(t, metrics.GetPodMetrics(), 1)
	})
}

func TestStats_AreReproducible(t *testing.T) {
	run := func() string {
		b := newBed(t)
		for _, name := range []string{"leaky", "busy", "writer", "crash", "chatty"} {
			b.start(name, "demo/"+name+":1")
			b.clock.Step(700 * time.Millisecond)
		}
		sum := sha256.New()
		note := func(m proto.Message) {
			raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			require.NoError(t, err)
			sum.Write(raw)
		}
		containers, err := b.ListContainerStats(t.Context(), nil)
		require.NoError(t, err)
		pods, err := b.ListPodSandboxStats(t.Context(), nil)
		require.NoError(t, err)
		metrics, err := b.ListPodSandboxMetrics(t.Context())
		require.NoError(t, err)
		fs, err := b.ImageFsInfo(t.Context())
		require.NoError(t, err)
		note(&runtimeapi.ListContainerStatsResponse{Stats: containers})
		note(&runtimeapi.ListPodSandboxStatsResponse{Stats: pods})
		note(&runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: metrics})
		note(fs)
		return fmt.Sprintf("%x", sum.Sum(nil))
	}
	first := run()
	for range 1000 {
		require.Equal(t, first, run())
	}
}

func TestStats_Faults(t *testing.T) {
	b := newBed(t)
	sandbox, id := b.start("a", "demo/web:1")
	b.Restart(time.Minute)
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"ContainerStats":        func() error { _, err := b.ContainerStats(ctx, id); return err },
		"ListContainerStats":    func() error { _, err := b.ListContainerStats(ctx, nil); return err },
		"PodSandboxStats":       func() error { _, err := b.PodSandboxStats(ctx, sandbox); return err },
		"ListPodSandboxStats":   func() error { _, err := b.ListPodSandboxStats(ctx, nil); return err },
		"ListMetricDescriptors": func() error { _, err := b.ListMetricDescriptors(ctx); return err },
		"ListPodSandboxMetrics": func() error { _, err := b.ListPodSandboxMetrics(ctx); return err },
		"ImageFsInfo":           func() error { _, err := b.ImageFsInfo(ctx); return err },
		"PullImage":             func() error { _, err := b.PullImage(ctx, spec("demo/web:1"), nil, nil); return err },
		"Exec":                  func() error { _, err := b.Exec(ctx, nil); return err },
		"CheckpointContainer":   func() error { return b.CheckpointContainer(ctx, nil) },
	} {
		err := call()
		require.Error(t, err, name)
		requireCode(t, codes.Unavailable, err)
	}
}

func TestStats_DoNotDependOnTheWallClock(t *testing.T) {
	b := newBed(t, withAppetite)
	_, id := b.start("a", "demo/web:1")
	b.clock.Step(4 * time.Second)
	b.StepClock(-time.Hour)
	stats := b.stats(id)
	require.EqualValues(t, time.Second, stats.GetCpu().GetUsageCoreNanoSeconds().GetValue())
	require.Equal(t, epoch.Add(4*time.Second-time.Hour).UnixNano(), stats.GetCpu().GetTimestamp())
	require.NoError(t, b.Kill(id, 1))
	list, err := b.ListContainerStats(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 4*4096, list[0].GetWritableLayer().GetUsedBytes().GetValue())
}

func TestReboot_KeepsTheWritableLayer(t *testing.T) {
	b := newBed(t, withAppetite)
	b.start("a", "demo/web:1")
	b.clock.Step(4 * time.Second)
	b.Reboot(0)
	list, err := b.ListContainerStats(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 4*4096, list[0].GetWritableLayer().GetUsedBytes().GetValue())
}
