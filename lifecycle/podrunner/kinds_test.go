package podrunner_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

func sidecar(name, image string) corev1.Container {
	return corev1.Container{Name: name, Image: image, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
}

func ephemeral(name, image string) corev1.EphemeralContainer {
	return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: image}}
}

// starts returns the containers that were started since the last call of
// starts.
func (b *bed) starts() (names []string) {
	for _, call := range b.did() {
		if name, ok := strings.CutPrefix(call, "StartContainer ns/pod/"); ok {
			names = append(names, name)
		}
	}
	return names
}

func TestSidecars_StartFirstAndOthersWait(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	slow := sidecar("slow", "app")
	slow.StartupProbe = &corev1.Probe{}
	pod.Spec.InitContainers = []corev1.Container{slow, {Name: "init", Image: "job"}, sidecar("quick", "app")}
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"slow"}, b.starts())

	id := b.look(pod.UID).Container("slow").GetId()
	b.probes[id] = podrunner.ProbeResults{}
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.starts(), "the next container must wait for the startup probe")
	delete(b.probes, id)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"init"}, b.starts())
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"quick"}, b.starts())
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"app"}, b.starts())

	require.NoError(t, b.node.Kill(id, 1))
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"slow"}, b.starts(), "the container must be restarted")
}

func TestSidecars_StoppedLastAndInReverse(t *testing.T) {
	t.Parallel()
	var recorded *stops
	b := newBed(t, func(c *podrunner.Config) {
		recorded = &stops{Containers: c.Containers}
		c.Containers = recorded
	})
	pod := podOf(nil, "app")
	pod.Spec.InitContainers = []corev1.Container{sidecar("first", "app"), sidecar("second", "app")}
	for range 3 {
		require.NoError(t, b.sync(pod))
	}
	b.did()
	req := podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: 9 * time.Second}
	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), req))
	require.Equal(t, []string{
		"StopContainer ns/pod/app", "StopContainer ns/pod/second", "StopContainer ns/pod/first", "StopPodSandbox ns/pod",
	}, b.did())
	require.Equal(t, []int64{9, 9, 9}, recorded.seconds)
}

func TestSidecars_StoppedWhenThePodHasEnded(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "job")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{sidecar("first", "app"), sidecar("second", "app")}
	for range 3 {
		require.NoError(t, b.sync(pod))
	}
	b.clock.Step(time.Second)
	b.did()
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"StopContainer ns/pod/second", "StopContainer ns/pod/first", "StopPodSandbox ns/pod"}, b.did())
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did())
}

func TestFailedProbe_KillsWithinItsGraceAndRestarts(t *testing.T) {
	t.Parallel()
	var recorded *stops
	e := &events{}
	b := newBed(t, func(c *podrunner.Config) {
		recorded = &stops{Containers: c.Containers}
		c.Containers, c.Events = recorded, e
	})
	pod := podOf(nil, "app")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(30))
	c := &pod.Spec.Containers[0]
	c.LivenessProbe, c.StartupProbe = &corev1.Probe{TerminationGracePeriodSeconds: new(int64(7))}, &corev1.Probe{}
	require.NoError(t, b.sync(pod))
	e.take()

	b.probes[b.look(pod.UID).Container("app").GetId()] = podrunner.ProbeResults{LivenessFailed: true}
	require.NoError(t, b.sync(pod))
	require.Equal(t, 1, podcache.RestartCount(b.look(pod.UID).Container("app")))
	require.Equal(t, "Normal Killing Container app failed liveness probe, will be restarted", e.take()[0])

	b.clock.Step(time.Second)
	b.probes[b.look(pod.UID).Container("app").GetId()] = podrunner.ProbeResults{StartupFailed: true}
	require.NoError(t, b.sync(pod))
	require.Equal(t, "Normal Killing Container app failed startup probe, will be restarted", e.take()[0])
	require.Equal(t, []int64{7, 30}, recorded.seconds)

	b.clock.Step(time.Second)
	b.probes[b.look(pod.UID).Container("app").GetId()] = podrunner.ProbeResults{LivenessFailed: true}
	_, ok := errors.AsType[*podworker.RetryError](b.sync(pod))
	require.True(t, ok, "the third start in a row must back off")
	require.Equal(t, "CrashLoopBackOff", b.runner.Waiting(pod.UID)["app"].Reason)
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, b.look(pod.UID).Container("app").GetState())
}

// TestFailedProbe_KillsAlthoughTheImageIsMissing checks that a changed container continues to
// run until its replacement is ready to start, but a container with a failed probe is killed
// in any case.
func TestFailedProbe_KillsAlthoughTheImageIsMissing(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{}
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.node.Fail("ImageStatus", fakecri.Fault{Err: errors.New("no images today")}))
	b.probes[b.look(pod.UID).Container("app").GetId()] = podrunner.ProbeResults{LivenessFailed: true}
	require.ErrorContains(t, b.sync(pod), "no images today")
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_EXITED, b.look(pod.UID).Container("app").GetState())
}

func anewPod() *corev1.Pod {
	pod := podOf([]string{"job"}, "app", "anew")
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug", "app")}
	c := &pod.Spec.Containers[1]
	c.RestartPolicy = new(corev1.ContainerRestartPolicyNever)
	c.RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	return pod
}

// upAndEnded starts the pod and waits until the container that requests a restart of all
// containers has exited.
func (b *bed) upAndEnded(pod *corev1.Pod) {
	b.t.Helper()
	for range 2 {
		require.NoError(b.t, b.sync(pod))
		b.clock.Step(time.Second)
	}
	b.did()
}

// TestRestartOfAll_AlwaysCompletes lets the sandbox stop, and then removes the container that
// requested the restart.
func TestRestartOfAll_AlwaysCompletes(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), anewPod()
	b.upAndEnded(pod)
	require.NoError(t, b.node.KillSandbox(b.look(pod.UID).Sandboxes[0].GetId()))
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.starts(), "no container must start in the new sandbox")
	require.NoError(t, b.node.RemoveSilently(b.look(pod.UID).Container("anew").GetId()))
	b.did()
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"RemoveContainer ns/pod/app", "RemoveContainer ns/pod/init-job"}, b.did())
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"init-job"}, b.starts())
}

// TestRestartOfAll_ContinuesAfterARestartOfTheAgent checks the case that only the pod's
// status records the restart.
func TestRestartOfAll_ContinuesAfterARestartOfTheAgent(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), anewPod()
	b.upAndEnded(pod)
	require.NoError(t, b.node.RemoveSilently(b.look(pod.UID).Container("anew").GetId()))
	b.runner.Forget(pod.UID)
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.AllContainersRestarting, Status: corev1.ConditionTrue}}
	require.NoError(t, b.sync(pod))
	require.Nil(t, b.look(pod.UID).Container("app"))
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"init-job"}, b.starts(), "the status may be outdated, but the restart must not start again")
}

func TestRestartOfAllContainers(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), anewPod()
	b.upAndEnded(pod)
	box := b.look(pod.UID).Sandboxes[0].GetId()
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{
		"StopContainer ns/pod/app",
		"RemoveContainer ns/pod/app", "RemoveContainer ns/pod/init-job", "RemoveContainer ns/pod/anew",
	}, b.did(), "the ephemeral container must continue to run")
	require.Equal(t, "RestartingAllContainers", b.runner.Waiting(pod.UID)["app"].Reason)

	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"init-job"}, b.starts(), "the ephemeral container must not be started again")
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"app", "anew"}, b.starts())
	status := b.look(pod.UID)
	require.Equal(t, box, status.Sandboxes[0].GetId())
	for _, name := range []string{"init-job", "app", "anew"} {
		require.Equal(t, 1, podcache.RestartCount(status.Container(name)), name)
	}

	b.clock.Step(time.Second) // the container requests the restart again, and is in back-off
	_, ok := errors.AsType[*podworker.RetryError](b.sync(pod))
	require.True(t, ok)
	require.Equal(t, []string{"StopContainer ns/pod/app"}, b.did())
	require.Equal(t, "CrashLoopBackOff", b.runner.Waiting(pod.UID)["anew"].Reason)
	b.clock.Step(10 * time.Second)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"RemoveContainer ns/pod/app", "RemoveContainer ns/pod/init-job", "RemoveContainer ns/pod/anew"}, b.did())
}

// TestRestartOfAll_ContinuesAfterAFailure checks the order of removals: if the container that
// requested the restart were removed before the others, these would count as already
// restarted.
func TestRestartOfAll_ContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), anewPod()
	b.upAndEnded(pod)
	require.NoError(t, b.node.Fail("RemoveContainer", fakecri.Fault{Object: "ns/pod/init-job", Times: 1, Err: errors.New("busy")}))
	require.ErrorContains(t, b.sync(pod), "busy")
	require.NotNil(t, b.look(pod.UID).Container("anew"))
	require.NoError(t, b.sync(pod))
	require.Nil(t, b.look(pod.UID).Container("anew"))
	require.NoError(t, b.sync(pod))
	require.Contains(t, b.starts(), "init-job")
}

func TestEphemeralContainer_SharesTheProcessesOfItsTarget(t *testing.T) {
	t.Parallel()
	created := map[string]*runtimeapi.ContainerConfig{}
	b := newBed(t, func(c *podrunner.Config) { c.Containers = &creations{c.Containers, created} })
	pod := podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	lost := ephemeral("lost", "app")
	lost.TargetContainerName = "nobody"
	debug := ephemeral("debug", "app")
	debug.TargetContainerName = "app"
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{lost, debug, ephemeral("alone", "app")}
	require.ErrorContains(t, b.sync(pod), "CreateContainerConfigError: unable to find target container nobody")
	require.Equal(t, "unable to find target container nobody", b.runner.Waiting(pod.UID)["lost"].Message)

	options := created["debug"].GetLinux().GetSecurityContext().GetNamespaceOptions()
	require.Equal(t, runtimeapi.NamespaceMode_TARGET, options.GetPid())
	require.Equal(t, b.look(pod.UID).Container("app").GetId(), options.GetTargetId())
	require.Empty(t, created["alone"].GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId())
}

// A target is used only if each container has its own process namespace.
func TestEphemeralContainer_PodInTheNodesProcessNamespace(t *testing.T) {
	t.Parallel()
	created := map[string]*runtimeapi.ContainerConfig{}
	b := newBed(t, func(c *podrunner.Config) { c.Containers = &creations{c.Containers, created} })
	pod := podOf(nil, "app")
	pod.Spec.HostPID = true
	require.NoError(t, b.sync(pod))
	debug := ephemeral("debug", "app")
	debug.TargetContainerName = "app"
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{debug}
	require.NoError(t, b.sync(pod))
	options := created["debug"].GetLinux().GetSecurityContext().GetNamespaceOptions()
	require.Equal(t, runtimeapi.NamespaceMode_NODE, options.GetPid())
	require.Empty(t, options.GetTargetId())
}

// creations records the configurations of created containers.
type creations struct {
	podrunner.Containers
	configs map[string]*runtimeapi.ContainerConfig
}

func (c *creations) CreateContainer(ctx context.Context, box string, config *runtimeapi.ContainerConfig, b *runtimeapi.PodSandboxConfig) (string, error) {
	c.configs[config.GetMetadata().GetName()] = config
	return c.Containers.CreateContainer(ctx, box, config, b)
}

func limits(memory, cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourceCPU: resource.MustParse(cpu)}
}

// TestSyncPod_RestartedAgentTouchesNothing checks that running containers of every kind are
// recognized, and that restart counts continue.
func TestSyncPod_RestartedAgentTouchesNothing(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "crash")
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "job"}, sidecar("proxy", "app")}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{ephemeral("debug", "job")}
	pod.Spec.Containers[0].Resources.Limits = limits("64Mi", "500m")
	for range 4 {
		require.NoError(t, b.sync(pod))
		b.clock.Step(900 * time.Millisecond)
	}
	b.did()
	again, err := podrunner.New(podrunner.Config{
		Sandboxes: b.node, Containers: b.node, Images: newImages(t, images.Config{Images: b.node}), Resizer: b.node, LogRoot: b.logs, Agent: "agent", Clock: b.clock,
		Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return b.look(pod.UID), nil },
	})
	require.NoError(t, err)
	b.runner = again
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did())
	b.clock.Step(time.Second)
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"crash"}, b.starts())
	require.Equal(t, 1, podcache.RestartCount(b.look(pod.UID).Container("crash")))
}

func TestSyncPod_WithoutResizerNothingIsResized(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t, func(c *podrunner.Config) { c.Resizer = nil }), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	b.did()
	pod.Spec.Containers[0].Resources.Limits = limits("128Mi", "2")
	require.NoError(t, b.sync(pod))
	require.Empty(t, b.did())
}

// TestSyncPod_CallsOfAPodStart counts the calls: the calls for the sandbox, and for each
// container one create call, one start call and at most two status calls, including the status
// of the image. There is no list call.
func TestSyncPod_CallsOfAPodStart(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "stubborn", "job")
	pod.Spec.InitContainers = []corev1.Container{sidecar("proxy", "app")}
	calls := map[string]int{}
	for range 2 {
		status, before := b.look(pod.UID), len(b.node.Calls())
		_, err := b.runner.SyncPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: status})
		require.NoError(t, err)
		for _, c := range b.node.Calls()[before:] {
			calls[c.Method]++
		}
	}
	require.Equal(t, map[string]int{
		"RunPodSandbox": 1, "PodSandboxStatus": 1, "ImageStatus": 4, "CreateContainer": 4, "StartContainer": 4,
	}, calls)
}

// TestPullsOverlap checks that pulls run concurrently with each other and with the creation
// of the sandbox.
func TestPullsOverlap(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		pod := podOf(nil, "crash", "crash2")
		pod.Spec.Containers[1].Image = "docker.io/library/crash:latest"
		for _, method := range []string{"RunPodSandbox", "PullImage"} {
			require.NoError(b.t, b.node.Fail(method, fakecri.Fault{Delay: time.Minute}))
		}
		began := time.Now()
		require.NoError(b.t, b.sync(pod))
		require.Equal(b.t, time.Minute, time.Since(began))
	})
}

// TestPulls_EndWithTheirSync checks that no goroutine is left after the creation of a sandbox
// failed.
func TestPulls_EndWithTheirSync(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "crash")
	require.NoError(t, b.node.Fail("PullImage", fakecri.Fault{Hang: true}))
	require.NoError(t, b.node.Fail("RunPodSandbox", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no network")}))
	require.ErrorContains(t, b.sync(pod), "no network")
	require.Empty(t, b.runner.Waiting(pod.UID), "a pull that the agent cancelled must not be a waiting reason")
}

func TestAttempts_ContinueFromTheLogs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files []string
		want  int
	}{
		"none":           {nil, 0},
		"one":            {[]string{"0.log"}, 1},
		"several":        {[]string{"0.log", "10.log", "9.log"}, 11},
		"rotated":        {[]string{"4.log.20260102-030405", "3.log.20260102-030405.gz"}, 5},
		"other files":    {[]string{"7.txt", "x.log", "-1.log", "12", "8.logs"}, 0},
		"beyond a count": {[]string{"99999999999999999999.log", "4294967295.log"}, 0},
	} {
		b, pod := newBed(t), podOf(nil, "app")
		folder := filepath.Join(b.logs, "ns_pod_uid", "app")
		require.NoError(t, os.MkdirAll(folder, 0o755))
		for _, f := range tt.files {
			require.NoError(t, os.WriteFile(filepath.Join(folder, f), nil, 0o600))
		}
		require.NoError(t, b.sync(pod), name)
		require.Equal(t, tt.want, podcache.RestartCount(b.look(pod.UID).Container("app")), name)
	}
}

func TestAttempts_LinksOutOfTheLogRootAreNotFollowed(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	elsewhere := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(elsewhere, "5.log"), nil, 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(b.logs, "ns_pod_uid"), 0o755))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(b.logs, "ns_pod_uid", "app")))
	require.Error(t, b.sync(pod)) // the directory of its log can't be created either
	require.Contains(t, b.plans[0], "start container app, attempt 0")
}
