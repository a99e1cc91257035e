package podrunner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// supplied is a bed whose Runner has all optional collaborators.
type supplied struct {
	*bed

	events  *events
	volumes *fakeVolumes
	cgroups *fakeCgroups
	ids     *podrunner.IDRanges
	facts   podrunner.Facts
}

func newSupplied(t *testing.T, change ...func(*podrunner.Config)) *supplied {
	t.Helper()
	s := &supplied{events: &events{}, volumes: &fakeVolumes{}, cgroups: &fakeCgroups{}}
	root := t.TempDir()
	var err error
	s.ids, err = podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: filepath.Join(root, "pods")})
	require.NoError(t, err)
	s.bed = newBed(t, append([]func(*podrunner.Config){func(c *podrunner.Config) {
		c.Events, c.Volumes, c.PodCgroups, c.UserIDs, c.RootDir = s.events, s.volumes, s.cgroups, s.ids, root
		c.Facts = func() podrunner.Facts { return s.facts }
	}}, change...)...)
	s.root = root
	return s
}

func (s *supplied) files() []string {
	s.t.Helper()
	var files []string
	require.NoError(s.t, filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
		if rel, _ := filepath.Rel(s.root, path); err == nil && rel != "." && rel != "pods" {
			files = append(files, strings.TrimPrefix(rel, "pods/"))
		}
		return err
	}))
	return files
}

// configs records the configurations of containers and sandboxes.
type configs struct {
	podrunner.Sandboxes
	podrunner.Containers

	box       *runtimeapi.PodSandboxConfig
	container *runtimeapi.ContainerConfig
	handler   string
}

func (c *configs) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	c.box, c.handler = config, handler
	return c.Sandboxes.RunPodSandbox(ctx, config, handler)
}

func (c *configs) CreateContainer(ctx context.Context, box string, config *runtimeapi.ContainerConfig, b *runtimeapi.PodSandboxConfig) (string, error) {
	c.container = config
	return c.Containers.CreateContainer(ctx, box, config, b)
}

func recording(c *configs) func(*podrunner.Config) {
	return func(cfg *podrunner.Config) {
		c.Sandboxes, c.Containers = cfg.Sandboxes, cfg.Containers
		cfg.Sandboxes, cfg.Containers = c, c
	}
}

func mounting(pod *corev1.Pod, names ...string) *corev1.Pod {
	for _, name := range names {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name})
		c := &pod.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
	}
	return pod
}

func TestSyncPod_PreparesBeforeTheSandboxAndReleases(t *testing.T) {
	t.Parallel()
	made := &configs{}
	s := newSupplied(t, recording(made))
	s.facts = testNode().Facts
	s.volumes.readOnly = map[string]bool{"fixed": true}
	pod := mounting(podOf(nil, "app"), "data", "fixed")
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	require.NoError(t, s.sync(pod))
	require.Equal(t, []string{"mount uid"}, s.volumes.take())
	require.Equal(t, []string{"ensure uid"}, s.cgroups.take())
	require.Equal(t, 100*time.Millisecond, s.cgroups.period)
	require.Equal(t, "/kubepods/poduid", made.box.GetLinux().GetCgroupParent())
	mounts := map[string]string{}
	for _, m := range made.container.GetMounts() {
		mounts[m.GetContainerPath()] = strings.TrimPrefix(m.GetHostPath(), s.root)
		require.Equal(t, m.GetContainerPath() == "/fixed", m.GetReadonly(), m.GetContainerPath())
	}
	require.Equal(t, map[string]string{
		"/data": "/volumes/data", "/fixed": "/volumes/fixed", "/etc/hosts": "/pods/uid/etc-hosts", "/dev/termination-log": "/pods/uid/containers/app/0",
	}, mounts)
	hosts, err := os.ReadFile(filepath.Join(s.root, "pods/uid/etc-hosts"))
	require.NoError(t, err)
	require.Contains(t, string(hosts), "10.88.0.2\tpod\n")

	require.NoError(t, s.sync(pod))
	require.Equal(t, []string{"refresh uid"}, s.volumes.take(), "a healthy pod's volumes must only be refreshed")

	require.NoError(t, s.terminate(pod, 10*time.Second))
	require.Empty(t, s.volumes.take(), "volumes must not be unmounted while the pod may be running")
	s.cgroups.busy, s.volumes.stuck = 1, 1
	end := func() error {
		return s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)})
	}
	require.ErrorContains(t, end(), "in use")
	require.Empty(t, s.cgroups.take(), "the cgroup must be removed last")
	err = end()
	_, transient := errors.AsType[*podworker.TransientError](err)
	require.True(t, transient, "%v", err)
	require.NoError(t, end())
	require.Equal(t, []string{"remove uid", "remove uid"}, s.cgroups.take())
	require.Empty(t, s.volumes.pods)
	require.Equal(t, []string{"uid", "uid/containers", "uid/containers/app", "uid/containers/app/0", "uid/etc-hosts"}, s.files(), "the files must be kept while the pod's containers exist")
	require.NoError(t, s.runner.RemovePod(t.Context(), s.look(pod.UID)))
	require.Empty(t, s.files())
}

func TestSyncPod_FailedMountStopsTheWholePod(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app", "job"), "data")
	s.volumes.err = errors.Join(errors.New(`MountVolume.SetUp failed for volume "data" : no`), errors.New(`MountVolume.SetUp failed for volume "more" : no`))
	require.ErrorContains(t, s.sync(pod), "prepare pod ns/pod: MountVolume.SetUp failed")
	require.Empty(t, s.did(), "nothing must be created or pulled")
	require.ElementsMatch(t, []string{
		`Warning FailedMount MountVolume.SetUp failed for volume "data" : no`,
		`Warning FailedMount MountVolume.SetUp failed for volume "more" : no`,
	}, s.events.take())
	for _, name := range []string{"app", "job"} {
		require.Equal(t, corev1.ContainerStateWaiting{
			Reason: "ContainerCreating", Message: `MountVolume.SetUp failed for volume "data" : no`,
		}, s.runner.Waiting(pod.UID)[name])
	}
	s.volumes.err = nil
	require.NoError(t, s.sync(pod))
	require.Empty(t, s.runner.Waiting(pod.UID))

	s.volumes.err = errors.New(`MountVolume.SetUp failed for volume "data" : gone`)
	s.events.take()
	require.Error(t, s.sync(pod), "a failed refresh must be reported")
	require.Equal(t, []string{`Warning FailedMount MountVolume.SetUp failed for volume "data" : gone`}, s.events.take())
	require.Empty(t, s.runner.Waiting(pod.UID))
	require.True(t, s.look(pod.UID).Running())
}

// The delay starts again after a success.
func TestSyncPod_FailedMountIsRepeatedSoon(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	waits := func() (all []time.Duration) {
		s.volumes.err = errors.New("no such Secret")
		for range 6 {
			err := s.sync(pod)
			require.ErrorContains(t, err, "no such Secret")
			retry, ok := errors.AsType[*podworker.RetryError](err)
			require.True(t, ok, "%v", err)
			all = append(all, retry.At.Sub(s.clock.Now()))
		}
		return all
	}
	want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second}
	require.Equal(t, want, waits())
	s.volumes.err = nil
	require.NoError(t, s.sync(pod))
	pod.Spec.Containers[0].Args = []string{"--new"}
	require.Equal(t, want, waits())
	s.runner.Forget(pod.UID)
	require.Equal(t, want, waits())
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.runner.SyncPod(cancelled, podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)})
	_, retry := errors.AsType[*podworker.RetryError](err)
	require.False(t, retry, "a cancelled sync does not count: %v", err)
}

// The reason is the one that a container of such a pod has before its first start.
func TestSyncPod_FailedMountOfAPodWithInitContainers(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "job"}}
	s.volumes.err = errors.New("no")
	require.Error(t, s.sync(pod))
	require.Equal(t, map[string]corev1.ContainerStateWaiting{"init": {Reason: "PodInitializing", Message: "no"}}, s.runner.Waiting(pod.UID))
}

func TestSyncPod_MissingVolumesDoNotKillRunningContainers(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app", "job"), "data")
	require.NoError(t, s.sync(pod))
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Args = []string{"--new"}
	}
	s.volumes.take()
	s.volumes.err = errors.New("no such Secret")
	require.ErrorContains(t, s.sync(pod), "no such Secret")
	require.Equal(t, []string{"mount uid", "refresh uid"}, s.volumes.take(), "a sync must try the mount only once")
	require.True(t, running(s.look(pod.UID).Container("app")))
	s.volumes.err = nil
	require.NoError(t, s.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(s.look(pod.UID).Container("app")))
}

func TestSyncPod_CgroupCannotBeCreated(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	s.cgroups.err = errors.New("read-only file system")
	require.ErrorContains(t, s.sync(podOf(nil, "app")), "read-only file system")
	require.Empty(t, s.did())
	require.Equal(t, []string{"Warning FailedCreatePodContainer unable to ensure pod container exists: read-only file system"}, s.events.take())
}

// While the network is not ready, only pods in the host network get a sandbox. A pod that has a
// sandbox is not affected.
func TestSyncPod_NetworkIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod, onHost := podOf(nil, "crash"), podOf(nil, "app")
	onHost.Name, onHost.UID, onHost.Spec.HostNetwork = "host", "host", true
	s.facts.NetworkErr = errors.New("cni plugin not initialized")
	require.NoError(t, s.sync(onHost))
	s.did()
	s.events.take()
	err := s.sync(pod)
	require.ErrorContains(t, err, "network is not ready: cni plugin not initialized")
	require.ErrorAs(t, err, new(*podworker.TransientError), "the next attempt must follow soon")
	require.Empty(t, s.did())
	require.Equal(t, []string{"Warning NetworkNotReady network is not ready: cni plugin not initialized"}, s.events.take())
	require.Equal(t, "network is not ready: cni plugin not initialized", s.runner.Waiting(pod.UID)["crash"].Message)

	s.facts.NetworkErr = nil
	require.NoError(t, s.sync(pod))
	s.facts.NetworkErr = errors.New("cni plugin not initialized")
	s.clock.Step(time.Minute)
	require.NoError(t, s.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(s.look(pod.UID).Container("crash")))
}

func TestSyncPod_SandboxFails(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{
		"RunPodSandbox":    "Warning FailedCreatePodSandBox Failed to create pod sandbox: broken",
		"PodSandboxStatus": "Warning FailedPodSandBoxStatus Unable to get pod sandbox status: broken",
	} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			s := newSupplied(t)
			pod, none := podOf(nil, "app"), s.look("uid")
			require.NoError(t, s.node.Fail(method, fakecri.Fault{Err: errors.New("broken")}))
			_, err := s.runner.SyncPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: none})
			require.ErrorContains(t, err, "broken")
			require.Contains(t, s.events.take(), want)
		})
	}
}

// The pod is deleted while its sandbox is being created. That is not a failure of the pod.
func TestSyncPod_DeletedDuringTheCreationOfItsSandbox(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	require.NoError(t, s.node.Fail("RunPodSandbox", fakecri.Fault{Hang: true}))
	ctx, cancel := context.WithCancel(t.Context())
	done, req := make(chan error, 1), podworker.SyncRequest{Pod: podOf(nil, "app"), Status: s.look("uid")}
	go func() {
		_, err := s.runner.SyncPod(ctx, req)
		done <- err
	}()
	for !slices.ContainsFunc(s.node.Calls(), func(c fakecri.Call) bool { return c.Method == "RunPodSandbox" }) {
		require.Empty(t, done)
	}
	cancel()
	require.ErrorContains(t, <-done, "context canceled")
	require.NotContains(t, strings.Join(s.events.take(), "\n"), "FailedCreatePodSandBox")
}

func TestResize_UpdatesThePodsCgroup(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "500m")
	require.NoError(t, s.sync(pod))
	s.cgroups.take()
	for _, memory := range []string{"128Mi", "32Mi"} {
		pod.Spec.Containers[0].Resources.Limits = limits(memory, "500m")
		require.NoError(t, s.sync(pod))
	}
	require.Equal(t, []string{"update uid", "update uid", "update uid"}, s.cgroups.take(), "the cgroup must be updated before and after it grows, and after it shrinks")
}

func TestSyncPod_SandboxFailureAffectsOnlyItsPod(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*corev1.Pod){
		"runtime does not support user namespaces": func(p *corev1.Pod) { p.Spec.HostUsers = new(false) },
		"failed to get RuntimeClass gvisor":        func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("gvisor") },
		`forbidden sysctl: "kernel.x"`: func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.x"}}}
		},
		`pod Hostname "a_b" is not a valid`: func(p *corev1.Pod) { p.Spec.Hostname = "a_b" },
	} {
		s := newSupplied(t)
		pod := podOf(nil, "app")
		change(pod)
		require.ErrorContains(t, s.sync(pod), want)
		require.Empty(t, s.did(), want)
		require.Contains(t, s.events.take()[0], "Warning FailedCreatePodSandBox Failed to create pod sandbox: ", want)
		require.Contains(t, s.runner.Waiting(pod.UID)["app"].Message, want)
		require.NoError(t, s.terminate(pod, time.Second))
		require.NoError(t, s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)}))
		require.NoError(t, s.runner.RemovePod(t.Context(), s.look(pod.UID)))
		require.Empty(t, s.files(), want)
	}
}

func TestUserIDs_AcquiredAndReleased(t *testing.T) {
	t.Parallel()
	made := &configs{}
	s := newSupplied(t, recording(made))
	s.facts.Handler = func(string) *runtimeapi.RuntimeHandlerFeatures {
		return &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}
	}
	pod := podOf(nil, "app")
	pod.Spec.HostUsers = new(false)
	require.NoError(t, s.sync(pod))
	require.Equal(t, uint32(65536), made.box.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetUids()[0].GetHostId())
	_, has := s.ids.Lookup(pod.UID)
	require.True(t, has)
	require.NoError(t, s.terminate(pod, time.Second))
	require.NoError(t, s.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)}))
	_, has = s.ids.Lookup(pod.UID)
	require.False(t, has)
	require.NoError(t, s.runner.RemovePod(t.Context(), s.look(pod.UID)))
	require.Empty(t, s.files())
}

func TestSyncPod_RuntimeClassSelectsTheHandler(t *testing.T) {
	t.Parallel()
	made := &configs{}
	s := newSupplied(t, recording(made))
	s.facts.RuntimeHandler = func(class string) (string, error) { return map[string]string{"normal": "runc"}[class], nil }
	pod := podOf(nil, "app")
	pod.Spec.RuntimeClassName = new("normal")
	require.NoError(t, s.sync(pod))
	require.Equal(t, "runc", made.handler)
	require.Empty(t, made.container.GetImage().GetRuntimeHandler(), "the runtime handler must be set only with the kubelet's gate RuntimeClassInImageCriAPI")
}

func TestSyncPod_DNSWarningsAreEvents(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	require.NoError(t, s.sync(pod))
	require.Contains(t, strings.Join(s.events.take(), "\n"), "Warning MissingClusterDNS pod: ")
	require.NoError(t, s.sync(pod))
	require.Empty(t, s.events.take(), "the event must be recorded once per sandbox")
}

func TestHostsFile_WrittenInPlaceAndOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app")
	require.NoError(t, s.sync(pod))
	file := filepath.Join(s.root, "pods/uid/etc-hosts")
	was, err := os.Stat(file)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(file, time.Time{}, time.Unix(7, 0)))
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "second", Image: "app"})
	require.NoError(t, s.sync(pod))
	now, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, time.Unix(7, 0), now.ModTime())
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"db"}}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "third", Image: "app"})
	require.NoError(t, s.sync(pod))
	now, err = os.Stat(file)
	require.NoError(t, err)
	require.True(t, os.SameFile(was, now), "the file must not be replaced, because containers have mounted it")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Contains(t, string(text), "192.0.2.9\tdb\n")
}

func TestEtcHosts_HostNetworkWithUnknownHostsFile(t *testing.T) {
	t.Parallel()
	made := &configs{}
	s := newSupplied(t, recording(made))
	pod := podOf(nil, "app")
	pod.Spec.HostNetwork = true
	require.NoError(t, s.sync(pod))
	require.Empty(t, made.container.GetMounts())
}

func TestLeases_HeldUntilTheContainerIsCreated(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "app", "crash", "nowhere")
	require.Error(t, s.sync(pod))
	require.Equal(t, 2+2+1, s.held.all, "leases by name, and by ID where the image was found")
	require.Empty(t, s.held.left())
}

func TestImageVolumes(t *testing.T) {
	t.Parallel()
	made := &configs{}
	s := newSupplied(t, recording(made))
	pod := podOf(nil, "app", "job")
	pod.Spec.Volumes = []corev1.Volume{{Name: "models", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: "crash", PullPolicy: corev1.PullIfNotPresent},
	}}}
	mount := []corev1.VolumeMount{{Name: "models", MountPath: "/models"}, {Name: "models", MountPath: "/part", SubPath: "a"}}
	pod.Spec.Containers[1].VolumeMounts = mount
	require.NoError(t, s.sync(pod))
	require.Equal(t, "crash", made.container.GetMounts()[0].GetImage().GetUserSpecifiedImage())
	require.Equal(t, "a", made.container.GetMounts()[1].GetImageSubPath())
	require.Len(t, slices.DeleteFunc(s.did(), func(c string) bool { return c != "PullImage crash:latest" }), 1)
	require.Empty(t, s.held.left())

	broken := podOf(nil, "app", "job")
	broken.UID = "broken"
	broken.Spec.Volumes = []corev1.Volume{{Name: "models", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "nowhere"}}}}
	broken.Spec.Containers[0].VolumeMounts = mount
	require.Error(t, s.sync(broken))
	require.Equal(t, images.ErrImagePull, s.runner.Waiting("broken")["app"].Reason)
	require.True(t, running(s.look("broken").Container("job")), "the failing container must not delay the other one")
}

func TestSubPaths_MissingVolume(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := mounting(podOf(nil, "app"), "data")
	pod.Spec.Containers[0].VolumeMounts[0].SubPath = "part"
	require.Error(t, s.sync(pod))
	require.Equal(t, corev1.ContainerStateWaiting{
		Reason: "CreateContainerConfigError", Message: `failed to prepare subPath for volumeMount "data" of container "app"`,
	}, s.runner.Waiting(pod.UID)["app"])
}

func TestTerminationMessage(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "crash")
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	require.NoError(t, s.sync(pod))
	require.Empty(t, podrunner.TerminationMessage(s.look(pod.UID).Containers[0]), "a container that has not exited must have no message")
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "pods/uid/containers/crash/0"), []byte("it is over"), 0o600))
	s.clock.Step(time.Second)
	require.Equal(t, "it is over", podrunner.TerminationMessage(s.look(pod.UID).Containers[0]))
	require.Empty(t, podrunner.TerminationMessage(nil))

	pod.UID, pod.Spec.Containers[0].TerminationMessagePolicy = "other", corev1.TerminationMessageFallbackToLogsOnError
	require.NoError(t, s.sync(pod))
	log := filepath.Join(s.logs, "ns_pod_other/crash/0.log")
	require.NoError(t, os.WriteFile(log, []byte("2026-01-01T00:00:00Z stderr F panic\n"), 0o600))
	s.clock.Step(time.Second)
	ended := s.look("other").Containers[0]
	require.Equal(t, "panic\n", podrunner.TerminationMessage(ended))
	ended.Reason = "ContainerCannotRun"
	require.Empty(t, podrunner.TerminationMessage(ended), "without a log, there must be no message")
}

// A container that crashes for weeks must not leave one file per crash: only the termination
// messages of existing instances are kept, because a status shows no others.
func TestTerminationLog_RemovedWithItsContainer(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	pod := podOf(nil, "crash")
	pod.Spec.Containers[0].TerminationMessagePath = "/dev/termination-log"
	folder := filepath.Join(s.root, "pods/uid/containers/crash")
	for attempt := range 8 {
		require.NoError(t, s.sync(pod))
		entries, err := os.ReadDir(folder)
		require.NoError(t, err)
		var files []string
		for _, e := range entries {
			files = append(files, e.Name())
		}
		require.Contains(t, files, strconv.Itoa(attempt))
		require.LessOrEqual(t, len(files), 3, files)
		for _, c := range s.look(pod.UID).Containers {
			require.Contains(t, files, strconv.Itoa(int(c.GetMetadata().GetAttempt())), "the messages of existing instances must be kept")
		}
		s.clock.Step(20 * time.Minute)
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "somebody-elses"), nil, 0o600))
	require.NoError(t, s.sync(pod))
	require.FileExists(t, filepath.Join(folder, "somebody-elses"))
}

func TestLeftovers_RemovedPods(t *testing.T) {
	t.Parallel()
	s := newSupplied(t)
	for _, uid := range []types.UID{"b", "a"} {
		pod := podOf(nil, "app")
		pod.UID = uid
		require.NoError(t, s.sync(pod))
		s.lose(uid)
	}
	s.volumes.pods["c"] = true
	left, err := s.runner.Leftovers()
	require.NoError(t, err)
	require.Equal(t, []types.UID{"a", "b", "c"}, left)
	require.DirExists(t, filepath.Join(s.logs, "ns_pod_a"))
	for _, uid := range left {
		require.NoError(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: uid}))
	}
	left, err = s.runner.Leftovers()
	require.NoError(t, err)
	require.Empty(t, left)
	require.Empty(t, s.files())
	logs, err := os.ReadDir(s.logs)
	require.NoError(t, err)
	require.Empty(t, logs, "logs that only the directory name assigns to the pod must be removed")
	require.Error(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "../a"}))

	require.NoError(t, os.MkdirAll(filepath.Join(s.root, "pods/z/somebody-elses"), 0o755))
	require.NoError(t, s.runner.RemovePod(t.Context(), &podcache.Status{UID: "z"}))
	require.DirExists(t, filepath.Join(s.root, "pods/z/somebody-elses"))
}

// TestRemovePod_FailedRefreshRemovesNothing checks the case of an agent that has just started
// and calls RemovePod before it knows the runtime's state.
func TestRemovePod_FailedRefreshRemovesNothing(t *testing.T) {
	t.Parallel()
	var fails error
	s := newSupplied(t, func(c *podrunner.Config) {
		refresh := c.Refresh
		c.Refresh = func(ctx context.Context, uid types.UID) (*podcache.Status, error) {
			if fails != nil {
				return nil, fails
			}
			return refresh(ctx, uid)
		}
	})
	pod := mounting(podOf(nil, "app"), "data")
	require.NoError(t, s.sync(pod))
	before := s.files()
	silence := &podcache.Status{UID: pod.UID}
	require.ErrorContains(t, s.runner.RemovePod(t.Context(), silence), "remove pod uid: containers of the pod are still running")
	fails = errors.New("it does not answer")
	require.ErrorIs(t, s.runner.RemovePod(t.Context(), silence), fails)
	require.Equal(t, before, s.files())
	require.True(t, s.volumes.pods[pod.UID], "the volumes of a pod that may be running must be kept")

	fails = nil
	require.NoError(t, s.terminate(pod, 10*time.Second))
	require.NoError(t, s.runner.RemovePod(t.Context(), silence))
	require.Empty(t, s.look(pod.UID).Containers, "all containers in the runtime must be removed")
	require.Empty(t, s.files())
}

// lose removes the pod from the runtime.
func (s *supplied) lose(uid types.UID) {
	status := s.look(uid)
	for _, c := range status.Containers {
		require.NoError(s.t, s.node.StopContainer(s.t.Context(), c.GetId(), 0))
	}
	for _, b := range status.Sandboxes {
		require.NoError(s.t, s.node.StopPodSandbox(s.t.Context(), b.GetId()))
		require.NoError(s.t, s.node.RemovePodSandbox(s.t.Context(), b.GetId()))
	}
}
