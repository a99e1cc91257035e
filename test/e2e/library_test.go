//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// wholeRuntime is the bed's runtime with all methods that a Runner needs.
type wholeRuntime struct {
	plainRuntime

	images runtimeapi.ImageServiceClient
}

func (r wholeRuntime) RunPodSandbox(ctx context.Context, c *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	a, err := r.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: c, RuntimeHandler: handler})
	return a.GetPodSandboxId(), err
}

func (r wholeRuntime) StopPodSandbox(ctx context.Context, id string) error {
	_, err := r.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func (r wholeRuntime) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := r.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (r wholeRuntime) CreateContainer(ctx context.Context, box string, c *runtimeapi.ContainerConfig, b *runtimeapi.PodSandboxConfig) (string, error) {
	a, err := r.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: box, Config: c, SandboxConfig: b})
	return a.GetContainerId(), err
}

func (r wholeRuntime) StartContainer(ctx context.Context, id string) error {
	_, err := r.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (r wholeRuntime) StopContainer(ctx context.Context, id string, seconds int64) error {
	_, err := r.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds})
	return err
}

func (r wholeRuntime) RemoveContainer(ctx context.Context, id string) error {
	_, err := r.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

func (r wholeRuntime) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	a, err := r.client.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: int64(timeout / time.Second)})
	return a.GetStdout(), a.GetStderr(), err
}

func (r wholeRuntime) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	return r.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: image, Verbose: verbose})
}

func (r wholeRuntime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, box *runtimeapi.PodSandboxConfig) (string, error) {
	a, err := r.images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: box})
	return a.GetImageRef(), err
}

// lookingCache is a cache that inspects the pod on every request.
type lookingCache struct{ wholeRuntime }

func (c lookingCache) Get(uid types.UID) (*podcache.Status, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.GetNewerThan(ctx, uid, time.Time{})
}

func (c lookingCache) Known(types.UID) bool { return true }

func (c lookingCache) GetNewerThan(ctx context.Context, uid types.UID, _ time.Time) (*podcache.Status, error) {
	s := &podcache.Status{UID: uid, SandboxOf: map[string]string{}}
	selector := map[string]string{labelPodUID: string(uid)}
	boxes, err := c.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	for _, b := range boxes {
		a, err := c.PodSandboxStatus(ctx, b.GetId(), false)
		if err != nil {
			return nil, err
		}
		s.Sandboxes = append(s.Sandboxes, a.GetStatus())
		s.Name, s.Namespace = b.GetMetadata().GetName(), b.GetMetadata().GetNamespace()
	}
	containers, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	for _, i := range containers {
		a, err := c.ContainerStatus(ctx, i.GetId(), false)
		if err != nil {
			return nil, err
		}
		s.Containers = append(s.Containers, a.GetStatus())
		s.SandboxOf[i.GetId()] = i.GetPodSandboxId()
	}
	podcache.SortSandboxes(s.Sandboxes)
	podcache.SortContainers(s.Containers)
	return s, nil
}

// library runs the packages without an agent, for requests that no manifest can make.
type library struct {
	*podworker.Workers

	t    *testing.T
	logs string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	rt := wholeRuntime{plainRuntime{client: bed.runtime}, bed.images}
	cache, l := lookingCache{rt}, &library{t: t, logs: filepath.Join(t.TempDir(), "logs")}
	puller, err := images.New(images.Config{Images: rt})
	require.NoError(t, err)
	hooks, err := lifecycle.NewHookRunner(lifecycle.HookConfig{Exec: rt})
	require.NoError(t, err)
	runner, err := podrunner.New(podrunner.Config{
		Sandboxes: rt, Containers: rt, Images: puller, Hooks: hooks, LogRoot: l.logs, Agent: t.Name(),
		Refresh: func(ctx context.Context, uid types.UID) (*podcache.Status, error) {
			return cache.GetNewerThan(ctx, uid, time.Time{})
		},
	})
	require.NoError(t, err)
	l.Workers, err = podworker.New(podworker.Config{Syncer: runner, Cache: cache, AfterSync: func(types.UID) {}})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
		require.NoError(t, bed.removeSandboxes(map[string]string{labelAgent: t.Name()}))
	})
	return l
}

// run starts a pod with one container and returns the container's process ID.
func (l *library) run(name string, grace int64, main corev1.Container) (*corev1.Pod, int) {
	l.t.Helper()
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = name, "default", types.UID(name)
	main.Name, main.Image = "main", "kubeparts.test/busybox:1"
	pod.Spec = corev1.PodSpec{TerminationGracePeriodSeconds: new(grace), Containers: []corev1.Container{main}}
	l.UpdatePod(podworker.Update{Type: podworker.Create, Pod: pod})
	waitFor(l.t, startTimeout, name+" to run", func() (string, bool) {
		all := bed.instances(l.t, podLabels(pod))
		return "", len(all) == 1 && all[0].running()
	})
	return pod, pidOf(l.t, pod, "main")
}

// TestKillPod_ShorterGracePeriodAppliesAtOnce checks that a shorter grace period takes effect at
// once, while a hook hangs and while a container that ignores SIGTERM is being stopped
// (kubernetes#127339). Not parallel: it measures.
func TestKillPod_ShorterGracePeriodAppliesAtOnce(t *testing.T) {
	l := newLibrary(t)
	for name, hook := range map[string]*corev1.Lifecycle{
		"hook": {PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sleep", "3600"}}}},
		"stop": nil,
	} {
		pod, pid := l.run("shorter-"+name, 600, corev1.Container{
			Command: []string{"sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"}, Lifecycle: hook,
		})
		l.UpdatePod(podworker.Update{Type: podworker.Kill, Pod: pod})
		stays(t, 2*time.Second, name+" runs", func() (string, bool) { return "the process has exited", alive(pid) })
		begin, stalled := time.Now(), stalls(t)
		require.NoError(t, l.KillPod(t.Context(), pod, podworker.KillOptions{Grace: new(3 * time.Second)}))
		took := time.Since(begin)
		t.Logf("%s: grace period of 600 s shortened to 3 s: ended after %v", name, took.Round(10*time.Millisecond))
		require.Greater(t, took, 2500*time.Millisecond)
		require.Less(t, took-stalled(), 7*time.Second)
		require.False(t, alive(pid))
	}
}

// TestEphemeralContainer_IsAddedToRunningPod checks that an ephemeral container sees the
// processes of its target.
func TestEphemeralContainer_IsAddedToRunningPod(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	pod, pid := l.run("debugged", 1, corev1.Container{Command: []string{"sleep", "3599"}})
	debugged := pod.DeepCopy()
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
		TargetContainerName: "main",
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "kubeparts.test/busybox:1", Command: []string{"sh", "-c", `tr '\000' ' ' < /proc/1/cmdline; echo`},
		},
	}}
	l.UpdatePod(podworker.Update{Type: podworker.Change, Pod: debugged})
	log := filepath.Join(podrunner.LogDirectory(l.logs, pod), "debug", "0.log")
	waitFor(t, startTimeout, "the debugger to run", func() (string, bool) {
		text, err := os.ReadFile(log)
		return fmt.Sprint(string(text), err), strings.Contains(string(text), "sleep 3599")
	})
	require.True(t, alive(pid))
	for _, i := range bed.instances(t, podLabels(pod)) {
		require.Equal(t, "0", i.Restarts, i.Name)
	}
	require.NoError(t, l.KillPod(t.Context(), debugged, podworker.KillOptions{}))
}
