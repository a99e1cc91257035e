package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/podcache"
)

// cadvisorSource returns a source with a pod of one container. usage receives the requested
// containers.
func cadvisorSource(usage func([]stats.Container) (stats.Usage, error)) metrics.CadvisorSource {
	return metrics.CadvisorSource{
		Usage: func(_ context.Context, all []stats.Container) (stats.Usage, error) { return usage(all) },
		Node: func() *corev1.Node {
			return &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "boot", MachineID: "machine", SystemUUID: "system"}}}
		},
		Pods: func() []agent.Pod {
			return []agent.Pod{{}, {Runtime: cadvisorPod()}}
		},
	}
}

// cadvisorPod is a pod whose first container has restarted once.
func cadvisorPod() *podcache.Status {
	at := epoch.UnixNano()
	app := func(id string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
		return &runtimeapi.ContainerStatus{
			Id: id, State: state, StartedAt: at + 2e9, Image: &runtimeapi.ImageSpec{Image: "docker.io/library/busybox:1"}, ImageRef: "sha256:1",
			Labels: map[string]string{crilabels.ContainerName: "app"},
		}
	}
	return &podcache.Status{
		UID: "uid-web", Name: "web", Namespace: "ns",
		Sandboxes: []*runtimeapi.PodSandboxStatus{
			{Id: "sandbox2", State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: at + 1e9},
			{Id: "sandbox1", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: at},
		},
		Containers: []*runtimeapi.ContainerStatus{
			app("app2", runtimeapi.ContainerState_CONTAINER_RUNNING), app("app1", runtimeapi.ContainerState_CONTAINER_EXITED),
		},
	}
}

// allFigures returns a value for each figure of a cgroup.
func allFigures(scale uint64) map[stats.Figure]uint64 {
	all := map[stats.Figure]uint64{}
	for f := range stats.StartTime {
		all[f] = (uint64(f) + 1) * scale
	}
	return all
}

// fullUsage has every figure for the machine, a pod, its sandbox and its container.
func fullUsage([]stats.Container) (stats.Usage, error) {
	root := allFigures(1000)
	root[stats.StartTime] = 1_700_000_000
	io := []stats.DeviceUsage{{Device: "/dev/sda", ReadBytes: 1, WrittenBytes: 2, Reads: 3, Writes: 4}}
	network := []stats.InterfaceUsage{{Name: "eth0", RxBytes: 1, RxPackets: 2, RxErrors: 3, RxDropped: 4, TxBytes: 5, TxPackets: 6, TxErrors: 7, TxDropped: 8}}
	disk := []stats.FilesystemUsage{{Device: "/dev/sda1", UsedBytes: 1, CapacityBytes: 2, Inodes: 3, InodesFree: 4}}
	const pod = types.UID("uid-web")
	return stats.Usage{
		Machine: map[stats.Figure]uint64{stats.Cores: 8, stats.PhysicalCores: 4, stats.Sockets: 1, stats.MemoryTotal: 100, stats.SwapTotal: 0},
		Cgroups: []stats.Cgroup{
			{Path: "/", Figures: root, Devices: io, Interfaces: network, Filesystems: disk},
			{Path: "/kubepods", Figures: allFigures(100)},
			{Path: "/kubepods/poduid-web", Pod: pod, Figures: allFigures(10)},
			{Path: "/kubepods/poduid-web/sandbox2", Pod: pod, ContainerID: "sandbox2", Figures: allFigures(1), Interfaces: network},
			{Path: "/kubepods/poduid-web/app2", Pod: pod, ContainerID: "app2", Figures: allFigures(2), Devices: io, Filesystems: disk},
		},
	}, nil
}

func (b *bed) cadvisor() string {
	b.t.Helper()
	return get(b.t, b.Cadvisor(cadvisorSource(fullUsage)))
}

func TestCadvisor_RequestsTheRunningContainers(t *testing.T) {
	t.Parallel()
	var asked []stats.Container
	get(t, newBed(t).Cadvisor(cadvisorSource(func(all []stats.Container) (stats.Usage, error) {
		asked = all
		return stats.Usage{}, nil
	})))
	require.Equal(t, []stats.Container{{ID: "sandbox2", Pod: "uid-web", IsSandbox: true}, {ID: "app2", Pod: "uid-web"}}, asked)
}

// TestCadvisor_Values checks units, labels and start times.
func TestCadvisor_Values(t *testing.T) {
	t.Parallel()
	page := newBed(t).cadvisor()
	const app = `id="/kubepods/poduid-web/app2",image="docker.io/library/busybox:1",name="app2",namespace="ns",pod="web"`
	for name, want := range map[string]float64{
		`container_cpu_usage_seconds_total{container="app",cpu="total",` + app + `}`:                               2e-9 * float64(stats.CPUUsage+1),
		`container_spec_cpu_quota{container="app",` + app + `}`:                                                    2 * float64(stats.CPUQuota+1),
		`container_memory_working_set_bytes{container="app",` + app + `}`:                                          2 * float64(stats.MemoryWorkingSet+1),
		`container_pressure_io_stalled_seconds_total{container="app",` + app + `}`:                                 2e-9 * float64(stats.IOStalled+1),
		`container_fs_writes_total{container="app",device="/dev/sda",` + app + `}`:                                 4,
		`container_fs_usage_bytes{container="app",device="/dev/sda1",` + app + `}`:                                 1,
		`container_start_time_seconds{container="app",` + app + `}`:                                                float64(epoch.Unix() + 2),
		`container_last_seen{container="app",` + app + `}`:                                                         float64(epoch.Unix()),
		`container_memory_failures_total{container="app",failure_type="pgmajfault",` + app + `,scope="container"}`: 2 * float64(stats.OwnMajorPageFaults+1),

		`container_network_transmit_packets_dropped_total{container="",id="/kubepods/poduid-web/sandbox2",image="pause",interface="eth0",name="sandbox2",namespace="ns",pod="web"}`: 8,
		`container_start_time_seconds{container="",id="/kubepods/poduid-web/sandbox2",image="pause",name="sandbox2",namespace="ns",pod="web"}`:                                      float64(epoch.Unix() + 1),
		`container_start_time_seconds{container="",id="/kubepods/poduid-web",image="",name="",namespace="ns",pod="web"}`:                                                            float64(epoch.Unix() + 1),
		`container_start_time_seconds{container="",id="/",image="",name="",namespace="",pod=""}`:                                                                                    1_700_000_000,
		`container_threads{container="",id="/kubepods",image="",name="",namespace="",pod=""}`:                                                                                       100 * float64(stats.Threads+1),
		`machine_cpu_physical_cores{boot_id="boot",machine_id="machine",system_uuid="system"}`:                                                                                      4,
		`container_scrape_error`: 0,
		`machine_scrape_error`:   0,
	} {
		require.InEpsilon(t, 1+want, 1+value(t, page, name), 1e-12, name)
	}
	require.Empty(t, series(page, `container_start_time_seconds{container="",id="/kubepods",`), "a start time that the kernel does not report must be omitted")
}

// TestCadvisor_NoQuotaNoPeriods checks that the counters of the CPU quota exist only for a
// container with a quota, as queries for throttled containers expect.
func TestCadvisor_NoQuotaNoPeriods(t *testing.T) {
	t.Parallel()
	page := get(t, newBed(t).Cadvisor(cadvisorSource(func([]stats.Container) (stats.Usage, error) {
		u, err := fullUsage(nil)
		for i := range u.Cgroups {
			delete(u.Cgroups[i].Figures, stats.CPUQuota)
		}
		return u, err
	})))
	require.Empty(t, series(page, "container_cpu_cfs_"))
	require.Empty(t, series(page, "container_spec_cpu_quota"))
	require.NotEmpty(t, series(page, "container_spec_cpu_period"))
}

// TestCadvisor_ServesWhatCouldBeRead checks that the page contains the readable figures, and
// that the error is reported.
func TestCadvisor_ServesWhatCouldBeRead(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	page := get(t, b.Cadvisor(cadvisorSource(func([]stats.Container) (stats.Usage, error) {
		return stats.Usage{Cgroups: []stats.Cgroup{{Path: "/", Figures: map[stats.Figure]uint64{stats.Threads: 7}}}}, errors.New("broken")
	})))
	require.Contains(t, page, "container_threads{")
	require.Contains(t, page, "\ncontainer_scrape_error 1\n")
	require.Contains(t, page, "\nmachine_scrape_error 1\n")
	require.Contains(t, b.log.String(), "could not measure some or all cgroups, their metrics are missing")
	require.Contains(t, b.log.String(), "err=broken")
}

// TestCadvisor_LeavesOutUnknownCgroups checks that cgroups without known labels are omitted.
func TestCadvisor_LeavesOutUnknownCgroups(t *testing.T) {
	t.Parallel()
	page := get(t, newBed(t).Cadvisor(cadvisorSource(func([]stats.Container) (stats.Usage, error) {
		figures := map[stats.Figure]uint64{stats.Threads: 7}
		return stats.Usage{Cgroups: []stats.Cgroup{
			{Path: "/x", Pod: "unknown", Figures: figures}, {Path: "/y", ContainerID: "app1", Pod: "uid-web", Figures: figures},
		}}, nil
	})))
	require.NotContains(t, page, "container_threads")
}

// BenchmarkCadvisor writes the page of 110 pods, each with a sandbox and a container, without
// reading their cgroups: see BenchmarkCgroups in package stats.
func BenchmarkCadvisor(b *testing.B) {
	var pods []agent.Pod
	u := stats.Usage{Cgroups: []stats.Cgroup{{Path: "/", Figures: allFigures(1)}, {Path: "/kubepods", Figures: allFigures(1)}}}
	for i := range 110 {
		s := cadvisorPod()
		s.UID, s.Name = types.UID(fmt.Sprintf("uid-%d", i)), fmt.Sprintf("web-%d", i)
		s.Sandboxes[0].Id, s.Containers[0].Id = fmt.Sprintf("sandbox-%d", i), fmt.Sprintf("app-%d", i)
		pods = append(pods, agent.Pod{Runtime: s})
		full, err := fullUsage(nil)
		require.NoError(b, err)
		for _, g := range full.Cgroups[2:] {
			g.Pod = s.UID
			g.ContainerID = map[string]string{"": "", "sandbox2": s.Sandboxes[0].GetId(), "app2": s.Containers[0].GetId()}[g.ContainerID]
			g.Path = strings.Replace(g.Path, "uid-web", string(s.UID), 1)
			u.Cgroups = append(u.Cgroups, g)
		}
	}
	source := cadvisorSource(func([]stats.Container) (stats.Usage, error) { return u, nil })
	source.Pods = func() []agent.Pod { return pods }
	h := newBed(b).Cadvisor(source)
	b.ReportAllocs()
	var page string
	for b.Loop() {
		page = get(b, h)
	}
	b.ReportMetric(float64(strings.Count(page, "\n")), "lines")
	b.ReportMetric(float64(len(page)), "page-bytes")
}
