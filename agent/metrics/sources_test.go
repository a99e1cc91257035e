package metrics_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestPods_AreCountedDuringScrapes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.none("kubelet_desired_pods")
	b.none("kubelet_running_pods")
	web, db, api := newPod("web", "app"), newPod("db", "app"), newPod("api", "app")
	api.Annotations = nil // makes it a pod of an API server
	db.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 2)
	b.Add(metrics.Source{
		Desired: func() []*corev1.Pod { return []*corev1.Pod{web, db, api, nil} },
		Mirrors: func() int { return 2 },
		Known: func() map[types.UID]podworker.Known {
			return map[types.UID]podworker.Known{
				web.UID:   {HasConfig: true, Static: true},
				api.UID:   {HasConfig: true, Phase: podworker.Terminating},
				"old":     {HasConfig: true, Static: true, Orphan: true, Phase: podworker.Finished},
				"foreign": {Phase: podworker.Terminating, Orphan: true},
			}
		},
	})
	b.is(`kubelet_desired_pods{static="true"}`, 2)
	b.is(`kubelet_desired_pods{static=""}`, 1)
	b.is(`kubelet_active_pods{static="true"}`, 1)
	b.is(`kubelet_active_pods{static=""}`, 1)
	b.is("kubelet_mirror_pods", 2)
	b.is("kubelet_managed_ephemeral_containers", 2)
	page := b.page()
	require.Len(t, series(page, "kubelet_working_pods{"), 15)
	sum := 0.0
	for _, labels := range []string{
		`{config="desired",lifecycle="sync",static="true"}`,
		`{config="desired",lifecycle="terminating",static=""}`,
		`{config="orphan",lifecycle="terminated",static="true"}`,
		`{config="runtime_only",lifecycle="terminating",static="unknown"}`,
	} {
		sum += value(t, page, "kubelet_working_pods"+labels)
	}
	require.InDelta(t, 4, sum, 0)
}

// In the kubelet the count of a state does not change when the last container leaves the state
// (kubernetes#98644).
func TestContainers_EveryStateIsExported(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	web := observed(newPod("web", "a", "b"))
	gone := &podcache.Status{UID: "gone", Containers: []*runtimeapi.ContainerStatus{
		container("x", runtimeapi.ContainerState_CONTAINER_EXITED), container("y", runtimeapi.ContainerState_CONTAINER_CREATED),
		container("z", runtimeapi.ContainerState_CONTAINER_UNKNOWN), container("\xff", 77), nil,
	}}
	b.Add(metrics.Source{Observed: func() []*podcache.Status { return []*podcache.Status{web, gone} }})
	b.is("kubelet_running_pods", 1)
	b.is(`kubelet_running_containers{container_state="running"}`, 2)
	b.is(`kubelet_running_containers{container_state="exited"}`, 1)
	b.is(`kubelet_running_containers{container_state="unknown"}`, 2)
	web.Containers = nil
	b.is(`kubelet_running_containers{container_state="running"}`, 0)
	require.Empty(t, b.log.String())
}

func cpu(seconds uint64) *statsapi.CPUStats {
	return &statsapi.CPUStats{Time: metav1.NewTime(epoch), UsageCoreNanoSeconds: new(seconds * uint64(time.Second))}
}

func memory(bytes uint64) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{Time: metav1.NewTime(epoch), WorkingSetBytes: new(bytes)}
}

func swap(used, available uint64) *statsapi.SwapStats {
	return &statsapi.SwapStats{Time: metav1.NewTime(epoch), SwapUsageBytes: new(used), SwapAvailableBytes: new(available)}
}

func TestResource_FiguresHaveMeasurementTimes(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.summary = func(context.Context) (*statsapi.Summary, error) {
		return &statsapi.Summary{
			Node: statsapi.NodeStats{CPU: cpu(9), Memory: memory(900), Swap: swap(90, 10)},
			Pods: []statsapi.PodStats{{
				PodRef: statsapi.PodReference{Name: "web", Namespace: "ns"}, CPU: cpu(5), Memory: memory(500), Swap: swap(50, 0),
				Containers: []statsapi.ContainerStats{{
					Name: "app", StartTime: metav1.NewTime(epoch), CPU: cpu(4), Memory: memory(400), Swap: swap(40, 60),
				}},
			}},
		}, nil
	}
	page := b.resource()
	const at = " 1767225600000"
	for _, line := range []string{
		"node_cpu_usage_seconds_total 9" + at,
		"node_memory_working_set_bytes 900" + at,
		"node_swap_usage_bytes 90" + at,
		`pod_cpu_usage_seconds_total{namespace="ns",pod="web"} 5` + at,
		`pod_memory_working_set_bytes{namespace="ns",pod="web"} 500` + at,
		`pod_swap_usage_bytes{namespace="ns",pod="web"} 50` + at,
		`container_cpu_usage_seconds_total{container="app",namespace="ns",pod="web"} 4` + at,
		`container_memory_working_set_bytes{container="app",namespace="ns",pod="web"} 400` + at,
		`container_swap_usage_bytes{container="app",namespace="ns",pod="web"} 40` + at,
		`container_swap_limit_bytes{container="app",namespace="ns",pod="web"} 100` + at,
		`container_start_time_seconds{container="app",namespace="ns",pod="web"} 1.7672256e+09`,
		"scrape_error 0",
		"resource_scrape_error 0",
	} {
		require.Contains(t, page, "\n"+line+"\n")
	}
	require.Contains(t, page, "# HELP container_cpu_usage_seconds_total [STABLE]")
	require.Contains(t, page, "# TYPE container_cpu_usage_seconds_total counter")
}

func TestCollect_UnknownValuesAreMissing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.summary = func(context.Context) (*statsapi.Summary, error) {
		return &statsapi.Summary{
			// The kubelet uses the time of the node's memory for the node's swap, if the memory
			// has a time.
			Node: statsapi.NodeStats{CPU: &statsapi.CPUStats{}, Swap: &statsapi.SwapStats{SwapUsageBytes: new(uint64(7))}},
			Pods: []statsapi.PodStats{{
				PodRef: statsapi.PodReference{Name: "\xff"}, Memory: memory(5),
				Containers: []statsapi.ContainerStats{{Name: "app", Memory: &statsapi.MemoryStats{}, Swap: &statsapi.SwapStats{SwapAvailableBytes: new(uint64(3))}}},
			}},
		}, errNo
	}
	require.Equal(t, []string{
		`container_swap_limit_bytes{container="app",namespace="",pod="` + "\uFFFD" + `"} 3`,
		"node_swap_usage_bytes 7",
		`pod_memory_working_set_bytes{namespace="",pod="` + "\uFFFD" + `"} 5 1767225600000`,
		"resource_scrape_error 0",
		"scrape_error 0",
	}, values(b.resource()))
	require.Contains(t, b.log.String(), "could not measure some or all resource usage, its metrics are missing")

	b.summary = func(context.Context) (*statsapi.Summary, error) { return nil, errNo }
	require.Equal(t, []string{"resource_scrape_error 1", "scrape_error 1"}, values(b.resource()))
}

// values returns the series of a page.
func values(page string) (lines []string) {
	for _, line := range series(page, "") {
		if line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestResource_MeasurementEndsWithTheRequest(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.summary = func(ctx context.Context) (*statsapi.Summary, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	w := httptest.NewRecorder()
	b.Resource(b.summary).ServeHTTP(w, httptest.NewRequestWithContext(canceled(t), http.MethodGet, "/", nil))
	require.Contains(t, w.Body.String(), "scrape_error 1")
}

// If two pods of the same name have containers of the same name, the page contains only one
// of these containers. The other series must not be affected.
func TestResource_DuplicateNamesDoNotBreakThePage(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.summary = func(context.Context) (*statsapi.Summary, error) {
		pod := statsapi.PodStats{PodRef: statsapi.PodReference{Name: "web", Namespace: "ns"}, CPU: cpu(5)}
		return &statsapi.Summary{Node: statsapi.NodeStats{CPU: cpu(9)}, Pods: []statsapi.PodStats{pod, pod}}, nil
	}
	page := b.resource()
	require.InDelta(t, 9, value(t, page, "node_cpu_usage_seconds_total"), 0)
	require.Len(t, series(page, "pod_cpu_usage_seconds_total"), 1)
	require.Contains(t, b.log.String(), "could not export some metrics")
}

func TestNew_InstancesAreIndependent(t *testing.T) {
	t.Parallel()
	a, b := newBed(t), newBed(t)
	a.Rejected("Evicted")
	b.none("kubelet_admission_rejections_total")
}
