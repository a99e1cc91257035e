package podrunner_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestResizeInPlace(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "stubborn")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	b.did()
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "2")
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdateContainerResources ns/pod/app", "UpdateContainerResources ns/pod/app"}, b.did())
	shown := b.look(pod.UID).Container("app").GetResources().GetLinux()
	require.Equal(t, int64(128<<20), shown.GetMemoryLimitInBytes())
	require.Equal(t, int64(200_000), shown.GetCpuQuota())
	require.Equal(t, int64(2048), shown.GetCpuShares())
	pod.Spec.Containers[0].Resources.Limits = nil
	require.NoError(t, b.sync(pod))
	require.Len(t, b.did(), 2)
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did(), "a removed limit must be gone after one update")
	require.Equal(t, 0, podcache.RestartCount(b.look(pod.UID).Container("app")))
}

func TestResize_FailureStopsOnlyLaterResizes(t *testing.T) {
	t.Parallel()
	e := &events{}
	var resized []bool // whether each attempt has failed
	b := newBed(t, func(c *podrunner.Config) {
		c.Events = e
		c.Observer.Resized = func(_ *corev1.Pod, _ time.Duration, err error) { resized = append(resized, err != nil) }
	})
	pod := podOf(nil, "app", "stubborn", "job")
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	b.did()
	e.take()
	require.NoError(t, b.node.Fail("UpdateContainerResources", fakecri.Fault{Err: errors.New("no room"), Times: 1}))
	for i := range 2 {
		pod.Spec.Containers[i].Resources.Limits = limits("128Mi", "2")
	}
	err := b.sync(pod)
	require.ErrorContains(t, err, "resize memory of container app")
	require.ErrorContains(t, err, "no room")
	require.Equal(t, []string{"UpdateContainerResources ns/pod/app", "CreateContainer ns/pod/job", "StartContainer ns/pod/job"}, b.did())
	require.Contains(t, e.take(), "Warning ResizeError error resizing memory of app: no room")
	require.NoError(t, b.sync(pod))
	require.Len(t, b.did(), 4)
	require.Equal(t, []bool{true, false}, resized)
}

// TestResize_SendsAllResources checks that each update contains all resources. Resources that
// change later have their current values.
func TestResize_SendsAllResources(t *testing.T) {
	t.Parallel()
	s := &sent{}
	b := newBed(t, func(c *podrunner.Config) { s.Resizer, c.Resizer = c.Resizer, s })
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "2")
	require.NoError(t, b.sync(pod))
	require.Len(t, s.all, 2)
	require.Equal(t, int64(128<<20), s.all[0].GetMemoryLimitInBytes())
	require.Equal(t, int64(100_000), s.all[0].GetCpuQuota())
	require.Equal(t, int64(1024), s.all[0].GetCpuShares())
	require.Equal(t, int64(-997), s.all[0].GetOomScoreAdj())
	require.Equal(t, int64(128<<20), s.all[1].GetMemoryLimitInBytes())
	require.Equal(t, int64(200_000), s.all[1].GetCpuQuota())
	pod.Spec.Containers[0].Resources.Limits = limits("256Mi", "2")
	require.NoError(t, b.sync(pod))
	require.Len(t, s.all, 3)
	require.Equal(t, int64(200_000), s.all[2].GetCpuQuota())
}

// sent records the update requests.
type sent struct {
	podrunner.Resizer
	all   []*runtimeapi.LinuxContainerResources
	boxes []*runtimeapi.UpdatePodSandboxResourcesRequest
}

func (s *sent) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	s.boxes = append(s.boxes, r)
	return s.Resizer.UpdatePodSandboxResources(ctx, r)
}

func (s *sent) UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error {
	s.all = append(s.all, r.GetLinux())
	return s.Resizer.UpdateContainerResources(ctx, id, r)
}

// groups keeps the pods' cgroups in memory, and records the calls.
type groups struct {
	calls []string
	err   error
}

func (c *groups) Ensure(context.Context, *corev1.Pod, time.Duration) (string, error) {
	return "/kubepods/pod", nil
}
func (c *groups) Remove(context.Context, types.UID) error { return nil }
func (c *groups) Update(context.Context, *corev1.Pod, time.Duration) error {
	c.calls = append(c.calls, "update")
	return c.err
}

// The pod's cgroup is at any time large enough for its containers. A runtime need not
// implement UpdatePodSandboxResources.
func TestResize_PodGrowsFirstAndShrinksLast(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *podrunner.Config) { c.PodCgroups = &groups{} })
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	b.did()
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "1")
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdatePodSandboxResources ns/pod", "UpdateContainerResources ns/pod/app"}, b.did())
	for size, err := range map[string]error{
		"64Mi": grpcstatus.Error(codes.Unimplemented, "what?"),
		"32Mi": grpcstatus.Error(codes.Unknown, "not implemented yet"), // as in containerd 2.2
	} {
		pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "1")
		require.NoError(t, b.sync(pod))
		b.did()
		pod.Spec.Containers[0].Resources.Limits = limits(size, "1")
		require.NoError(t, b.node.Fail("UpdatePodSandboxResources", fakecri.Fault{Err: err, Times: 1}))
		require.NoError(t, b.sync(pod), size)
		require.Equal(t, []string{"UpdateContainerResources ns/pod/app", "UpdatePodSandboxResources ns/pod"}, b.did(), size)
	}
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did())
}

// If the pod's cgroup can't be updated, the next sync retries although the
// containers have the desired resources.
func TestResize_UpdateOfThePodsCgroupIsRetried(t *testing.T) {
	t.Parallel()
	group := &groups{}
	b := newBed(t, func(c *podrunner.Config) { c.PodCgroups = group })
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "1")
	require.NoError(t, b.sync(pod))
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	group.err = errors.New("device or resource busy")
	require.ErrorContains(t, b.sync(pod), "device or resource busy")
	group.err, group.calls = nil, nil
	b.did()
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdatePodSandboxResources ns/pod"}, b.did())
	require.Equal(t, []string{"update"}, group.calls)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"update"}, group.calls, "after the retry, nothing must be left to do")
}

// The Runner sends the pod's resources without the overhead, because the
// runtime adds the overhead.
func TestResize_SandboxIsToldWithoutOverhead(t *testing.T) {
	t.Parallel()
	s := &sent{}
	b := newBed(t, func(c *podrunner.Config) {
		s.Resizer, c.Resizer, c.PodCgroups = c.Resizer, s, &groups{}
	})
	pod := podOf(nil, "app")
	pod.Spec.Overhead = limits("10Mi", "250m")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "2")
	require.NoError(t, b.sync(pod))
	require.Len(t, s.boxes, 2)
	memory, cpu := s.boxes[0], s.boxes[1]
	require.Equal(t, int64(128<<20), memory.GetResources().GetMemoryLimitInBytes())
	require.Equal(t, int64(100_000), memory.GetResources().GetCpuQuota(), "the CPU must change in a later update")
	require.Equal(t, int64(1024), memory.GetResources().GetCpuShares())
	require.Equal(t, int64(128<<20), cpu.GetResources().GetMemoryLimitInBytes())
	require.Equal(t, int64(200_000), cpu.GetResources().GetCpuQuota())
	require.Equal(t, int64(2048), cpu.GetResources().GetCpuShares())
	require.Equal(t, int64(10<<20), cpu.GetOverhead().GetMemoryLimitInBytes())
	require.Equal(t, int64(25_000), cpu.GetOverhead().GetCpuQuota())
}

// A change of a request alone is a resize, even if no limit of the container changes.
func TestResize_RequestAlone(t *testing.T) {
	t.Parallel()
	pod := podOf(nil, "app", "app2")
	pod.Spec.Containers[1].Image = "app"
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = corev1.ResourceRequirements{Requests: limits("32Mi", "500m"), Limits: limits("64Mi", "1")}
	}
	pod.Spec.Containers[1].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	b := newBed(t)
	require.NoError(t, b.sync(pod))
	b.did()
	pod.Spec.Containers[0].Resources.Requests = limits("48Mi", "500m")
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdateContainerResources ns/pod/app"}, b.did())
	enforced := b.runner.Enforced(t.Context(), pod.UID)["app"]
	require.Equal(t, int64(48<<20), enforced.Requests.Memory().Value())
	pod.Spec.Containers[1].Resources.Requests = limits("48Mi", "500m")
	b.plans = nil
	require.NoError(t, b.sync(pod))
	require.Len(t, b.plans, 1)
	require.Contains(t, b.plans[0], "Container app2 resize requires restart")
	require.NoError(t, b.sync(pod))
	require.Len(t, b.plans, 1)
}

func TestResize_InitContainerThatRuns(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "app"}}
	pod.Spec.InitContainers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	b.did()
	pod.Spec.InitContainers[0].Resources.Limits = limits("128Mi", "1")
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdateContainerResources ns/pod/init"}, b.did())
}

// blind is a Resizer that returns success without an effect.
type blind struct{ podrunner.Resizer }

func (blind) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// Plans compare the enforced resources, not the runtime's status, which may round or omit
// them.
func TestResize_RuntimeThatDoesNotShowIt(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t, func(c *podrunner.Config) { c.Resizer = blind{c.Resizer} }), podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("32Mi", "1")
	require.NoError(t, b.sync(pod))
	for _, size := range []string{"64Mi", "32Mi", "128Mi"} {
		pod.Spec.Containers[0].Resources.Limits = limits(size, "1")
		before := len(b.plans)
		for range 3 {
			require.NoError(t, b.sync(pod))
		}
		require.Len(t, b.plans, before+1, size)
		require.Contains(t, b.plans[before], "resize memory of container app", size)
	}
}

// The record survives a restart of the agent. If the record is missing or
// damaged, the runtime's status is used, and running containers are not
// changed.
func TestEnforced_SurvivesARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	root := t.TempDir()
	b := newBed(t, func(c *podrunner.Config) {
		c.RootDir, c.State, c.Resizer, c.Logger = root, state.Files(root), blind{c.Resizer}, slog.New(slog.NewTextHandler(&log, nil))
	})
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, b.sync(pod))
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "1")
	require.NoError(t, b.sync(pod))
	restart := func() {
		again, err := podrunner.New(podrunner.Config{
			Sandboxes: b.node, Containers: b.node, Images: newImages(t, images.Config{Images: b.node}), Resizer: b.node, LogRoot: b.logs, RootDir: root, State: state.Files(root), Agent: "agent",
			Clock: b.clock, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return b.look(pod.UID), nil },
		})
		require.NoError(t, err)
		b.runner = again
		b.did()
	}
	restart()
	enforced := b.runner.Enforced(t.Context(), pod.UID)["app"]
	require.Equal(t, int64(128<<20), enforced.Limits.Memory().Value())
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did(), "nothing must change, although the runtime still reports 64Mi")

	file := filepath.Join(root, "pods", string(pod.UID), "resources")
	require.NoError(t, os.WriteFile(file, []byte(`{"containers":`), 0o600))
	restart()
	require.Empty(t, b.runner.Enforced(t.Context(), pod.UID))
	require.Equal(t, 1, strings.Count(log.String(), "could not read the stored resources of a pod"))
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"UpdateContainerResources ns/pod/app"}, b.did(), "without a record, the 64Mi that the runtime reports must be changed")
	restart()
	enforced = b.runner.Enforced(t.Context(), pod.UID)["app"]
	require.Equal(t, int64(128<<20), enforced.Limits.Memory().Value(), "the damaged file must be replaced")

	require.NoError(t, b.terminate(pod, 0))
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}))
	require.NoFileExists(t, file)
	require.Empty(t, b.runner.Enforced(t.Context(), pod.UID))
}

// A pod that runs again with the same UID gets a new record, and a query about
// a pod leaves nothing in memory.
func TestEnforced_DeletedWithThePod(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	b := newBed(t, func(c *podrunner.Config) { c.RootDir, c.State = root, state.Files(root) })
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	file := filepath.Join(root, "pods", string(pod.UID), "resources")
	for range 2 {
		require.NoError(t, b.sync(pod))
		require.FileExists(t, file)
		require.Equal(t, 1, b.runner.EnforcedInMemory())
		require.NoError(t, b.terminate(pod, 0))
		require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}))
		require.NoFileExists(t, file)
	}
	require.Empty(t, b.runner.Enforced(t.Context(), pod.UID))
	require.Zero(t, b.runner.EnforcedInMemory())
}

// A failed write of the record does not prevent the start of a container.
func TestEnforced_FileThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	root := t.TempDir()
	b := newBed(t, func(c *podrunner.Config) {
		c.RootDir, c.State, c.Logger = root, state.Files(root), slog.New(slog.NewTextHandler(&log, nil))
	})
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "1")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "pods", string(pod.UID), "resources.new"), 0o700))
	require.NoError(t, b.sync(pod))
	require.Contains(t, log.String(), "could not store the enforced resources of a pod")
	require.NotEmpty(t, b.runner.Enforced(t.Context(), pod.UID))
}

// watchedCgroups calls the function limited before it sets the limits of a pod's cgroup.
type watchedCgroups struct {
	podrunner.PodCgroups

	limited func(pod *corev1.Pod)
}

func (c *watchedCgroups) Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (string, error) {
	c.limited(pod)
	return c.PodCgroups.Ensure(ctx, pod, quotaPeriod)
}

func (c *watchedCgroups) Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error {
	c.limited(pod)
	return c.PodCgroups.Update(ctx, pod, quotaPeriod)
}

// newShrinking returns a bed with a running container whose memory limit has shrunk in the spec.
// The resize policy of the container requires a restart. The test fails if the limit of the pod's
// cgroup shrinks while the old container runs.
func newShrinking(t *testing.T) (s *supplied, pod *corev1.Pod) {
	t.Helper()
	cgroups := &watchedCgroups{limited: func(*corev1.Pod) {}}
	s = newSupplied(t, func(c *podrunner.Config) { cgroups.PodCgroups, c.PodCgroups = c.PodCgroups, cgroups })
	pod = podOf(nil, "app")
	c := &pod.Spec.Containers[0]
	c.ImagePullPolicy = corev1.PullAlways
	c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
	c.Resources.Limits = limits("128Mi", "1")
	require.NoError(t, s.sync(pod))
	old := s.look(pod.UID).Container("app").GetId()
	c.Resources.Limits = limits("64Mi", "1")
	cgroups.limited = func(*corev1.Pod) {
		answer, err := s.node.ContainerStatus(t.Context(), old, false)
		require.NoError(t, err)
		require.NotEqual(t, runtimeapi.ContainerState_CONTAINER_RUNNING, answer.GetStatus().GetState(), "the old container still has the old limit")
	}
	return s, pod
}

func TestResize_PodShrinksAfterTheOldContainerHasStopped(t *testing.T) {
	t.Parallel()
	s, pod := newShrinking(t)
	require.NoError(t, s.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(s.look(pod.UID).Container("app")))
	require.Contains(t, s.cgroups.take(), "update uid")
}

func TestResize_PodDoesNotShrinkIfTheOldContainerKeepsRunning(t *testing.T) {
	t.Parallel()
	s, pod := newShrinking(t)
	require.NoError(t, s.node.Fail("PullImage", fakecri.Fault{Times: 1, Err: errors.New("no route to host")}))
	require.Error(t, s.sync(pod))
	require.Equal(t, 0, podcache.RestartCount(s.look(pod.UID).Container("app")))
	s.clock.Step(time.Minute)
	require.NoError(t, s.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(s.look(pod.UID).Container("app")))
}
