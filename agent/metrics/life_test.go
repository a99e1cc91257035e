package metrics_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// lifeBed is an agent with metrics, in a bubble. set changes its pods.
type lifeBed struct {
	*agent.Agent

	t        *testing.T
	registry *prometheus.Registry
	pods     chan []*corev1.Pod
}

// startLife runs an agent with its files in root. The caller calls stop at the end.
func startLife(t *testing.T, root string, change ...func(*agent.Config)) (b *lifeBed, stop func()) {
	t.Helper()
	b = &lifeBed{t: t, registry: prometheus.NewRegistry(), pods: make(chan []*corev1.Pod, 1)}
	m, err := metrics.New(metrics.Config{Registerer: b.registry})
	require.NoError(t, err)
	c := agentConfig(t, "node1", m.Observers(agent.Observers{}))
	c.Root, c.PodLogs = root, filepath.Join(root, "logs")
	for _, f := range change {
		f(&c)
	}
	c.Sources[0].Run = func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
		for {
			select {
			case all := <-b.pods:
				set(ctx, all)
			case <-ctx.Done():
				return nil
			}
		}
	}
	b.Agent, err = agent.New(c)
	require.NoError(t, err)
	require.Empty(t, b.LogBytes(), "before Run, no log sizes are known")
	remove := m.AddAgent(b.Agent)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	return b, func() { cancel(); running.Wait(); remove() }
}

// set changes the pods and waits.
func (b *lifeBed) set(wait time.Duration, pods ...*corev1.Pod) {
	b.t.Helper()
	b.pods <- pods
	time.Sleep(wait)
	synctest.Wait()
}

func (b *lifeBed) is(name string, want float64) {
	b.t.Helper()
	require.InDelta(b.t, want, value(b.t, scrape(b.t, b.registry), name), 1e-9, name)
}

// moved checks that a counter, or the count of a histogram, is above 0.
func (b *lifeBed) moved(name string) {
	b.t.Helper()
	require.Positive(b.t, value(b.t, scrape(b.t, b.registry), name), name)
}

// A pod with volumes starts, is resized and terminates. Every metric about these events must
// change.
func TestObservers_LifeOfAPod(t *testing.T) {
	root := t.TempDir()
	leftover := filepath.Join(root, "pods", "gone", "volumes", "kubernetes.io~empty-dir", "e")
	require.NoError(t, os.MkdirAll(leftover, 0o750))
	synctest.Test(t, func(t *testing.T) {
		b, stop := startLife(t, root)
		defer stop()
		pod := ofAgent("web", "demo/web:1")
		pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
		pod.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
		pod.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
		pod.Spec.Containers[0].Resources.Limits = asks("1", "64Mi")
		b.set(90*time.Second, pod)
		b.is("kubelet_orphan_pod_cleaned_volumes_errors", 0)
		require.NoDirExists(t, leftover)
		b.is("kubelet_cgroup_version", 2)
		b.is("kubelet_pod_start_sli_duration_seconds_count", 1)
		b.is("kubelet_pod_start_total_duration_seconds_count", 1)
		b.is("kubelet_imagemanager_ondisk_pulledrecords", 1)
		b.is(`volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="actual_state_of_world"}`, 1)
		b.moved(`storage_operation_duration_seconds_count{migrated="false",operation_name="volume_mount",status="success",volume_plugin="kubernetes.io/empty-dir"}`)

		bigger := pod.DeepCopy()
		bigger.Spec.Containers[0].Resources.Limits = asks("2", "64Mi")
		b.set(10*time.Second, bigger)
		b.is(`kubelet_container_requested_resizes_total{operation="increase",requirement="limits",resource="cpu"}`, 1)
		b.moved(`kubelet_pod_resize_duration_milliseconds_count{success="true"}`)

		require.NoError(t, b.StopPods(t.Context(), podworker.ShutdownConfig{}))
		synctest.Wait()
		b.is(`volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"}`, 0)
		b.moved("kubelet_graceful_shutdown_start_time_seconds")
		b.moved("kubelet_graceful_shutdown_end_time_seconds")
	})
}

// A pod is removed and defined again. Its volumes must be counted once.
func TestObservers_SecondLifeOfAPod(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, stop := startLife(t, root)
		defer stop()
		const volumes = `volume_manager_total_volumes{plugin_name="kubernetes.io/empty-dir",state="desired_state_of_world"}`
		for i := range 3 {
			pod := ofAgent("web", "demo/web:1")
			pod.UID = types.UID(string(pod.UID) + string(rune('a'+i)))
			pod.Spec.Volumes = []corev1.Volume{{Name: "tmp"}}
			pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
			b.set(10*time.Second, pod)
			b.is(volumes, 1)
			b.is("kubelet_pod_start_total_duration_seconds_count", float64(i+1))
			b.set(2 * time.Minute)
			b.is(volumes, 0)
		}
	})
}

// Operations on cgroups are counted even if they fail. They fail here because the kernel's
// files are missing.
func TestObservers_CgroupsOfPods(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, stop := startLife(t, root, func(c *agent.Config) {
			c.Cgroups = &cgroups.Config{Root: filepath.Join(root, "cgroup"), Version: cgroups.V2}
		})
		defer stop()
		b.set(10*time.Second, ofAgent("web", "demo/web:1"))
		b.set(2 * time.Minute)
		for _, operation := range []string{"create", "update", "destroy"} {
			b.moved(`kubelet_cgroup_manager_duration_seconds_count{operation_type="` + operation + `"}`)
		}
	})
}

// The logs of a running container are measured in the background.
func TestObservers_Logs(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b, stop := startLife(t, root, func(c *agent.Config) { c.Host.Stats = logStats{} })
		defer stop()
		b.set(10*time.Second, ofAgent("web", "demo/web:1"))
		b.is(`kubelet_container_log_filesystem_used_bytes{container="app",namespace="ns",pod="web",uid="uid-web"}`, 4096)
	})
}

// logStats measures only logs.
type logStats struct{}

func (logStats) Node(context.Context) (eviction.NodeStats, error) { return eviction.NodeStats{}, nil }

func (logStats) Summary(context.Context, []*corev1.Pod) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}

func (logStats) Pods(_ context.Context, pods []*corev1.Pod) (all []eviction.PodStats, _ error) {
	all = append(all, eviction.PodStats{UID: "unknown"})
	for _, p := range pods {
		all = append(all, eviction.PodStats{UID: p.UID, Containers: []eviction.ContainerStats{
			{Name: "app", Logs: eviction.DiskUsage{Bytes: eviction.Usage{Value: 4096, Time: time.Now()}}}, {Name: "not measured"},
		}})
	}
	return all, nil
}
