package podrunner_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// events records events.
type events struct {
	mu   sync.Mutex
	seen []string
}

func (e *events) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, fmt.Sprintf("%s %s %s", kind, reason, fmt.Sprintf(format, args...)))
}

// take returns the events since the last call of take.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	seen := e.seen
	e.seen = nil
	return seen
}

// paths records the reason and the container of each event.
type paths struct {
	mu   sync.Mutex
	seen map[string]bool
}

func (p *paths) Eventf(object runtime.Object, _, reason, _ string, _ ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ref, ok := object.(*corev1.ObjectReference); ok {
		reason += " " + ref.FieldPath
		if ref.Kind == "Node" {
			reason += fmt.Sprintf("%s %s %s", ref.APIVersion, ref.Kind, ref.UID)
		}
	}
	p.seen[reason] = true
}

func TestEvents_NameTheirContainer(t *testing.T) {
	t.Parallel()
	p := &paths{seen: map[string]bool{}}
	b := newBed(t, func(c *podrunner.Config) {
		c.Events, c.Facts = p, func() podrunner.Facts { return podrunner.Facts{Name: "node"} }
	})
	pod := podOf([]string{"job"}, "app", "crash", "nowhere")
	pod.Spec.Containers[2].Name = "lost"
	for range 4 {
		_ = b.sync(pod) // fails, because one image does not exist and a container is in back-off
		b.clock.Step(time.Second)
	}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CHANGED", Value: "yes"}}
	_ = b.sync(pod)
	require.Equal(t, []string{
		"BackOff spec.containers{crash}", "BackOff spec.containers{lost}",
		"Created spec.containers{app}", "Created spec.containers{crash}", "Created spec.initContainers{init-job}",
		"Failed spec.containers{lost}", "Killing spec.containers{app}", "MissingClusterDNS", "MissingClusterDNS v1 Node node",
		"Pulled spec.containers{app}", "Pulled spec.containers{crash}", "Pulled spec.initContainers{init-job}",
		"Pulling spec.containers{crash}", "Pulling spec.containers{lost}",
		"Started spec.containers{app}", "Started spec.containers{crash}", "Started spec.initContainers{init-job}",
	}, slices.Sorted(maps.Keys(p.seen)))
}

func newBedWithEvents(t *testing.T) (*bed, *events) {
	t.Helper()
	e := &events{}
	return newBed(t, func(c *podrunner.Config) { c.Events = e }), e
}

func TestSyncPod_StaleStatus(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	stale := b.look(pod.UID)
	stale.Stale = true
	_, err := b.runner.SyncPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: stale})
	require.EqualError(t, err, "sync pod ns/pod: the pod's status is stale")
	require.EqualError(t, b.runner.RemovePod(t.Context(), stale), "remove pod uid: the pod's status is stale")
	require.Empty(t, b.did())
}

func TestSyncTerminatingPod_UnknownStateIsNotStopped(t *testing.T) {
	t.Parallel()
	for name, seen := range map[string]*podcache.Status{"nothing": nil, "stale": {UID: "uid", Stale: true}} {
		b := newBed(t, func(c *podrunner.Config) {
			c.Refresh = func(context.Context, types.UID) (*podcache.Status, error) { return seen, nil }
		})
		pod := podOf(nil, "app")
		require.NoError(t, b.sync(pod))
		err := b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: time.Second})
		require.EqualError(t, err, "read the state of pod uid after killing it: the pod's status is stale", name)
	}
}

// slowCreate creates containers, but returns only after the caller's timeout. Until then the
// container's name is reserved.
type slowCreate struct {
	podrunner.Containers
	answers []error
}

func (s *slowCreate) CreateContainer(ctx context.Context, box string, c *runtimeapi.ContainerConfig, b *runtimeapi.PodSandboxConfig) (string, error) {
	if len(s.answers) == 0 {
		return s.Containers.CreateContainer(ctx, box, c, b)
	}
	err := s.answers[0]
	if s.answers = s.answers[1:]; len(s.answers) == 0 {
		if _, err := s.Containers.CreateContainer(ctx, box, c, b); err != nil {
			return "", err
		}
	}
	return "", err
}

func TestSyncPod_LateCreatedContainerIsAdopted(t *testing.T) {
	t.Parallel()
	late := grpcstatus.Error(codes.DeadlineExceeded, "context deadline exceeded")
	reserved := grpcstatus.Error(codes.FailedPrecondition, `failed to reserve container name "app_pod_ns_uid_0": name is reserved`)
	b := newBed(t, func(c *podrunner.Config) {
		c.Containers = &slowCreate{Containers: c.Containers, answers: []error{late, reserved, reserved}}
	})
	pod := podOf(nil, "app")
	for _, want := range []error{late, reserved, reserved} {
		require.ErrorIs(t, b.sync(pod), want)
		require.Equal(t, "CreateContainerError", b.runner.Waiting(pod.UID)["app"].Reason)
	}
	require.NoError(t, b.sync(pod))
	s := b.look(pod.UID)
	require.Len(t, s.Containers, 1, "no second container with this name must be created")
	require.Equal(t, runtimeapi.ContainerState_CONTAINER_RUNNING, s.Containers[0].GetState())
	require.Zero(t, podcache.RestartCount(s.Containers[0]))
}

func TestSyncPod_SandboxThatDiesAtOnceBacksOff(t *testing.T) {
	t.Parallel()
	b, events := newBedWithEvents(t)
	pod := podOf(nil, "app")
	for range 600 { // the exit of a container is detected within a second
		_ = b.sync(pod)
		if s := b.look(pod.UID).ReadySandbox(); s != nil {
			require.NoError(t, b.node.KillSandbox(s.GetId()))
		}
		b.clock.Step(time.Second)
	}
	made := len(slices.DeleteFunc(b.did(), func(call string) bool { return call != "RunPodSandbox ns/pod" }))
	require.Equal(t, 7, made, "sandboxes: the first two at once, then after 10 s, 20 s, 40 s, ... up to 5 min")
	waiting := b.runner.Waiting(pod.UID)["app"]
	require.Equal(t, lifecycle.CrashLoopBackOff, waiting.Reason)
	require.Equal(t, "back-off 5m0s re-creating failed sandbox of pod=pod_ns(uid)", waiting.Message)
	require.Contains(t, events.take(), "Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.")
	require.LessOrEqual(t, len(b.look(pod.UID).Sandboxes), 3, "dead sandboxes must be removed")

	b.clock.Step(6 * time.Minute)
	require.NoError(t, b.sync(pod))
	require.NotNil(t, b.look(pod.UID).ReadySandbox())
}

func TestSyncPod_DeadSandboxReleasesItsAddressFirst(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	require.NoError(t, b.sync(pod))
	require.NoError(t, b.node.KillSandbox(b.look(pod.UID).Sandboxes[0].GetId()))
	b.did()
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"StopPodSandbox ns/pod", "RunPodSandbox ns/pod"}, b.did()[:2])
}

func TestSyncPod_ContainerRemovedFromTheSpecIsStoppedAndRemoved(t *testing.T) {
	t.Parallel()
	b, events := newBedWithEvents(t)
	pod := podOf(nil, "app", "stubborn")
	require.NoError(t, b.sync(pod))
	app := b.look(pod.UID).Container("app").GetId()
	b.did()
	less := pod.DeepCopy()
	less.Spec.Containers = less.Spec.Containers[:1]
	less.Spec.TerminationGracePeriodSeconds = new(int64(-7)) // less than the minimum
	done := make(chan error, 1)
	req := podworker.SyncRequest{Pod: less, Status: b.look(pod.UID)}
	go func() {
		_, err := b.runner.SyncPod(t.Context(), req)
		done <- err
	}()
	began := b.clock.Now()
	require.NoError(t, b.stepUntil(done))
	require.GreaterOrEqual(t, b.clock.Since(began), 2*time.Second, "each container must get at least 2 s")
	require.NoError(t, b.sync(less))
	require.NoError(t, b.sync(less))
	require.Equal(t, []string{"StopContainer ns/pod/stubborn", "RemoveContainer ns/pod/stubborn"}, b.did())
	require.Equal(t, app, b.look(pod.UID).Containers[0].GetId(), "the other container must not be restarted")
	require.Contains(t, events.take(), "Normal Killing Container stubborn is not in the pod's spec any more")
}

func TestSyncPod_ContainerThatCannotBeReplacedKeepsRunning(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Container){
		"ErrImagePull":               func(c *corev1.Container) { c.Image = "nowhere" },
		"CreateContainerConfigError": func(c *corev1.Container) { c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true)} },
	} {
		b, pod := newBed(t), podOf(nil, "app", "stubborn")
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		pod.Spec.TerminationGracePeriodSeconds = new(int64(2))
		require.NoError(t, b.sync(pod))
		b.did()
		changed := pod.DeepCopy()
		change(&changed.Spec.Containers[0])
		require.ErrorContains(t, b.sync(changed), "start container app of pod ns/pod: "+name)
		require.Equal(t, name, b.runner.Waiting(pod.UID)["app"].Reason)
		require.NotContains(t, b.did(), "StopContainer ns/pod/app", name)
		require.True(t, running(b.look(pod.UID).Container("app")), name)

		changed.Spec.Containers[0] = corev1.Container{Name: "app", Image: "crash"} // an image that can be pulled
		require.NoError(t, b.sync(changed))
		require.Equal(t, []string{
			"PullImage crash:latest", "StopContainer ns/pod/app", "CreateContainer ns/pod/app", "StartContainer ns/pod/app",
		}, b.did(), "the image must be pulled once, before the old container is stopped")
		require.Equal(t, 1, podcache.RestartCount(b.look(pod.UID).Container("app")), name)
	}
}

func TestStopGrace_EndlessIsLimited(t *testing.T) {
	t.Parallel()
	var recorded *stops
	b := newBed(t, func(c *podrunner.Config) {
		recorded = &stops{Containers: c.Containers}
		c.Containers = recorded
	})
	pod := podOf(nil, "app")
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1 << 62))
	require.NoError(t, b.sync(pod))
	pod.Spec.Containers[0].Args = []string{"--new"}
	require.NoError(t, b.sync(pod))
	require.Equal(t, []int64{1<<31 - 1}, recorded.seconds)
}

func TestSyncPod_CancelledSyncIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app", "job", "stubborn")
	require.NoError(t, b.node.Fail("CreateContainer", fakecri.Fault{Object: "ns/pod/job", Hang: true}))
	ctx, cancel := context.WithCancel(t.Context())
	done, req := make(chan error, 1), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}
	go func() {
		_, err := b.runner.SyncPod(ctx, req)
		done <- err
	}()
	for !slices.ContainsFunc(b.node.Calls(), func(c fakecri.Call) bool { return c.String() == "CreateContainer ns/pod/job" }) {
		require.Empty(t, done)
	}
	cancel()
	require.ErrorContains(t, <-done, "start container job of pod ns/pod")
	require.Len(t, b.look(pod.UID).Containers, 1, "no later container must be started")
	b.node.ClearFaults("")
	require.NoError(t, b.sync(pod))
	require.Len(t, b.look(pod.UID).Containers, 3)
	require.Empty(t, b.runner.Waiting(pod.UID))
}

func TestBackoff_OnlyStartsProlongIt(t *testing.T) {
	t.Parallel()
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	b := newBed(t, func(c *podrunner.Config) { c.RestartBackoff = backoff })
	pod := podOf(nil, "crash")
	key := podrunner.RestartKey(pod, &pod.Spec.Containers[0])
	require.NoError(t, b.sync(pod))
	b.clock.Step(time.Second)
	require.NoError(t, b.node.Fail("CreateContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no")}))
	for range 5 {
		require.Error(t, b.sync(pod))
	}
	require.Zero(t, backoff.Delay(key))
	b.node.ClearFaults("")
	require.NoError(t, b.sync(pod))
	require.Equal(t, 10*time.Second, backoff.Delay(key))

	require.NoError(t, b.runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID), Grace: time.Second}))
	require.NoError(t, b.runner.SyncTerminatedPod(t.Context(), podworker.SyncRequest{Pod: pod, Status: b.look(pod.UID)}))
	require.Zero(t, backoff.Len(), "the back-off of a terminated pod must be deleted")
}

func TestForget_LeavesNoBackoff(t *testing.T) {
	t.Parallel()
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	node, err := fakecri.New(fakecri.Config{})
	require.NoError(t, err)
	b := newBed(t, func(c *podrunner.Config) { c.Images = newImages(t, images.Config{Images: node, Backoff: backoff}) })
	pod := podOf(nil, "nowhere")
	require.Error(t, b.sync(pod))
	require.Equal(t, 1, backoff.Len())
	b.runner.Forget("another")
	require.Equal(t, 1, backoff.Len())
	b.runner.Forget(pod.UID)
	require.Zero(t, backoff.Len())
}

func TestSyncPod_PullBackOffIsARetryError(t *testing.T) {
	t.Parallel()
	b, events := newBedWithEvents(t)
	pod := podOf(nil, "nowhere")
	require.False(t, allWait(b.sync(pod)), "the error of a failed pull must not be a RetryError, so that it is logged")
	err := b.sync(pod)
	require.True(t, allWait(err), "%v", err)
	require.ErrorContains(t, err, `start container nowhere of pod ns/pod: ImagePullBackOff: Back-off pulling image "nowhere": `)
	seen := strings.Join(events.take(), "\n")
	for _, want := range []string{"Normal Pulling", `Warning Failed Failed to pull image "nowhere": `, `Normal BackOff Back-off pulling image "nowhere"`} {
		require.Contains(t, seen, want)
	}
}

// allWait reports whether all errors joined in err are RetryErrors.
func allWait(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		_, ok := any(err).(*podworker.RetryError) // only err itself, not an error that it wraps
		return ok
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(e error) bool { return !allWait(e) })
}

func TestEvents_WaitingContainers(t *testing.T) {
	t.Parallel()
	b, events := newBedWithEvents(t)
	pod := podOf(nil, "crash", "nowhere")
	pod.Spec.Containers[1].ImagePullPolicy = corev1.PullNever
	require.Error(t, b.sync(pod))
	require.Contains(t, events.take(), `Warning ErrImageNeverPull Container image "nowhere" is not present with pull policy of Never`)
	b.clock.Step(time.Second)
	require.Error(t, b.sync(pod))
	b.clock.Step(time.Second)
	events.take()
	require.NoError(t, b.node.Fail("ImageStatus", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, "no")}))
	require.Error(t, b.sync(pod))
	seen := events.take()
	require.Contains(t, seen, "Warning BackOff Back-off restarting failed container crash in pod pod_ns(uid)")
	require.Contains(t, seen, `Warning InspectFailed Failed to inspect image "nowhere": rpc error: code = Internal desc = no`)
}

func TestWaiting_LongMessagesAreCut(t *testing.T) {
	t.Parallel()
	b, pod := newBed(t), podOf(nil, "app")
	words := strings.Repeat("ä", 1<<20)
	require.NoError(t, b.node.Fail("CreateContainer", fakecri.Fault{Err: grpcstatus.Error(codes.Internal, words)}))
	require.Error(t, b.sync(pod))
	message := b.runner.Waiting(pod.UID)["app"].Message
	require.LessOrEqual(t, len(message), 4096+len("..."))
	require.True(t, strings.HasSuffix(message, "ä..."), "the message must not be truncated within a rune")
}

func TestMakeLogs_LinksAreNotFollowed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	outside := filepath.Join(filepath.Dir(b.logs), "outside")
	require.NoError(t, os.Mkdir(outside, 0o755))

	for _, name := range []string{"../../outside", "a/b", "..", "."} {
		pod := podOf(nil, "app")
		pod.Spec.Containers[0].Name = name
		require.ErrorContains(t, b.sync(pod), "is not the name of a directory", name)
		require.Equal(t, "CreateContainerError", b.runner.Waiting(pod.UID)[name].Reason)
	}
	pod := podOf(nil, "app")
	pod.UID, pod.Namespace = "u2", "../outside/ns"
	require.ErrorContains(t, b.sync(pod), "is not the name of a directory")
	require.Empty(t, b.look(pod.UID).Sandboxes, "the pod must be rejected before any object is created")

	pod = podOf(nil, "app")
	pod.UID = "u3"
	require.NoError(t, os.Symlink(outside, filepath.Join(b.logs, "ns_pod_u3")))
	require.ErrorContains(t, b.sync(pod), "create log directory", "a link that leads out of the directory must be rejected")
	entries, err := os.ReadDir(outside)
	require.NoError(t, err)
	require.Empty(t, entries)
	require.NoError(t, b.runner.RemovePod(t.Context(), &podcache.Status{UID: "u3", Name: "pod", Namespace: "ns"}))
	require.DirExists(t, outside, "the link must be removed, and not its target")
	require.NoFileExists(t, filepath.Join(b.logs, "ns_pod_u3"))

	pod = podOf(nil, "app")
	pod.UID = "u4"
	require.NoError(t, os.MkdirAll(filepath.Join(b.logs, "ns_victim_v"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(b.logs, "ns_pod_u4"), 0o755))
	require.NoError(t, os.Symlink("../ns_victim_v", filepath.Join(b.logs, "ns_pod_u4", "app")))
	require.ErrorContains(t, b.sync(pod), "not a directory", "a link to another pod's logs must be rejected")
	entries, err = os.ReadDir(filepath.Join(b.logs, "ns_victim_v"))
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestRemovePod_MissingLogRoot(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *podrunner.Config) { c.LogRoot = filepath.Join(c.LogRoot, "none") })
	require.NoError(t, b.runner.RemovePod(t.Context(), &podcache.Status{UID: "u", Name: "n", Namespace: "ns"}))
}
