package conformance

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// twist executes a call in a runtime with a defect.
type twist func(method string, request, reply any, call func() error) error

// twisted is a connection to a runtime with a defect.
type twisted struct {
	grpc.ClientConnInterface
	twist twist
	event func(*runtimeapi.ContainerEventResponse) bool // reports whether the runtime sends the event
}

func (c twisted) Invoke(ctx context.Context, method string, request, reply any, opts ...grpc.CallOption) error {
	return c.twist(path.Base(method), request, reply, func() error {
		return c.ClientConnInterface.Invoke(ctx, method, request, reply, opts...)
	})
}

func (c twisted) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return twistedStream{s, c.event}, err
}

type twistedStream struct {
	grpc.ClientStream
	event func(*runtimeapi.ContainerEventResponse) bool // nil means that the runtime has no event stream
}

func (s twistedStream) RecvMsg(m any) error {
	if s.event == nil {
		return grpcstatus.Error(codes.Unimplemented, "twisted")
	}
	for {
		err := s.ClientStream.RecvMsg(m)
		if e, ok := m.(*runtimeapi.ContainerEventResponse); err != nil || !ok || s.event(e) {
			return err
		}
	}
}

// answer changes the responses of successful calls of a method.
func answer[R any](method string, change func(R)) twist {
	return func(m string, _, reply any, call func() error) error {
		err := call()
		if r, ok := reply.(R); ok && m == method && err == nil {
			change(r)
		}
		return err
	}
}

// ask changes the request that the runtime gets.
func ask[R any](method string, change func(R)) twist {
	return func(m string, request, _ any, call func() error) error {
		if r, ok := request.(R); ok && m == method {
			change(r)
		}
		return call()
	}
}

// outcome replaces the error of a method.
func outcome(method string, replace func(error) error) twist {
	return func(m string, _, _ any, call func() error) error {
		err := call()
		if m == method {
			return replace(err)
		}
		return err
	}
}

func swallow(method string) twist { return outcome(method, func(error) error { return nil }) }

func fail(method string, code codes.Code) twist {
	return outcome(method, func(error) error { return grpcstatus.Error(code, "twisted") })
}

// failing replaces the code of failed calls of a method.
func failing(method string, code codes.Code) twist {
	return outcome(method, func(err error) error {
		if err != nil {
			return grpcstatus.Error(code, "twisted")
		}
		return nil
	})
}

// ignore makes a method do nothing and succeed.
func ignore(method string) twist {
	return func(m string, _, _ any, call func() error) error {
		if m == method {
			return nil
		}
		return call()
	}
}

// oneAtATime serialises the calls of a method.
func oneAtATime(method string) twist {
	var mu sync.Mutex
	return func(m string, _, _ any, call func() error) error {
		if m == method {
			mu.Lock()
			defer mu.Unlock()
		}
		return call()
	}
}

// onlyOnce makes the second call of a method fail.
func onlyOnce(method string) twist {
	calls := 0
	return outcome(method, func(err error) error {
		if calls++; calls > 1 {
			return grpcstatus.Error(codes.Unknown, "twisted")
		}
		return err
	})
}

// status and the functions below change statuses and lists.
func status(change func(*runtimeapi.ContainerStatus)) twist {
	return answer("ContainerStatus", func(r *runtimeapi.ContainerStatusResponse) { change(r.GetStatus()) })
}

func podStatus(change func(*runtimeapi.PodSandboxStatus)) twist {
	return answer("PodSandboxStatus", func(r *runtimeapi.PodSandboxStatusResponse) { change(r.GetStatus()) })
}

type (
	containers   = runtimeapi.ListContainersResponse
	podSandboxes = runtimeapi.ListPodSandboxResponse
)

// listener is a reporter that records the first failure.
type listener struct {
	*testing.T
	failure, skipped string

	mu       sync.Mutex
	cleanups []func()
}

func (l *listener) Fatalf(format string, args ...any) {
	if l.failure == "" {
		l.failure = strings.TrimSpace(fmt.Sprintf(format, args...))
	}
	runtime.Goexit()
}

func (l *listener) Skipf(format string, args ...any) {
	l.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (l *listener) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// runCheck runs one check, and returns how it failed or why it was skipped.
func runCheck(t *testing.T, name string, conn grpc.ClientConnInterface, o Options) (failure, skipped string) {
	t.Helper()
	l := &listener{T: t}
	do := func(f func()) {
		var wg sync.WaitGroup
		wg.Go(f)
		wg.Wait()
	}
	i := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	do(func() { checks()[i].run(newProbe(l, conn, o)) })
	for _, f := range slices.Backward(l.cleanups) {
		do(f)
	}
	return l.failure, l.skipped
}

func keepEvents(*runtimeapi.ContainerEventResponse) bool { return true }

func untouched(_ string, _, _ any, call func() error) error { return call() }

// twists returns runtimes with one defect each. For each defect it returns the check that finds the
// defect, and the message of the check.
func twists() []struct {
	check, breaks string
	twist         twist
} {
	return []struct {
		check, breaks string
		twist         twist
	}{
		{"node/version", "agent: supports v1 of the CRI only", answer("Version", func(r *runtimeapi.VersionResponse) { r.RuntimeApiVersion = "v1alpha2" })},
		{"node/version", "agent: cannot report the name and version of its runtime", answer("Version", func(r *runtimeapi.VersionResponse) { r.RuntimeName = "" })},
		{"node/ready", "agent: the node never becomes ready, because of the runtime condition ", answer("Status", func(r *runtimeapi.StatusResponse) { r.Status.Conditions = r.Status.Conditions[:1] })},
		{"node/cgroup-driver", "podrunner: cannot get the cgroup driver, which decides the names of pods' cgroups", fail("RuntimeConfig", codes.Internal)},

		{"sandbox/lifecycle", "podworker: treats a stopped pod as running, so the pod never terminates", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_READY })},
		{"sandbox/lifecycle", "podrunner: recreates a pod again and again, because its sandbox is never ready", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })},
		{"sandbox/lifecycle", "status: the pod has no IP", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Network = nil })},
		{"sandbox/lifecycle", "pleg: inspects a removed pod for ever, because its status is not NotFound", failing("PodSandboxStatus", codes.Unknown)},
		{"sandbox/lifecycle", "podrunner: cannot create a pod", fail("RunPodSandbox", codes.Internal)},
		{"sandbox/status-shows-config", "podcache: stores a pod under a wrong name", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Uid = "" })},
		{"sandbox/status-shows-config", "pleg: ignores a pod whose labels differ from those of its config", podStatus(func(s *runtimeapi.PodSandboxStatus) { delete(s.Labels, labelName) })},
		{"sandbox/status-shows-config", "podrunner: loses the data in annotations", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Annotations[annotation] = "{}" })},
		{"sandbox/status-shows-config", "status, podrunner: restarts at the wrong time, because timestamps are not nanoseconds since 1970", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.CreatedAt /= 1e9 })},
		{"sandbox/name-is-reserved-until-removal", "podrunner: runs a pod twice after it missed the response to its creation", swallow("RunPodSandbox")},
		{"sandbox/stop-and-remove-again", "podrunner: StopPodSandbox fails", onlyOnce("StopPodSandbox")},
		{"sandbox/stop-and-remove-again", "podrunner: RemovePodSandbox fails", onlyOnce("RemovePodSandbox")},
		{"sandbox/unknown-ids", "pleg: cannot distinguish a removed pod from a failing runtime", failing("PodSandboxStatus", codes.Unknown)},
		{"sandbox/unknown-ids", "podworker: a pod that was removed already never terminates", fail("StopPodSandbox", codes.Unknown)},
		{"sandbox/stop-ends-its-containers", "pleg: never detects that a container exited, so it is not restarted", ignore("StopPodSandbox")},
		{"sandbox/remove-removes-containers", "containergc: containers still exist after their pod was removed", ignore("RemovePodSandbox")},
		{"sandbox/addresses-differ", "status, prober: two pods have the same address", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Network.Ip = "10.0.0.1" })},
		{"sandbox/host-network", "status: treats a pod on the host's network as one with its own address", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Linux = nil })},

		{"container/lifecycle", "podrunner: starts a running container again", ignore("StartContainer")},
		{"container/lifecycle", "podworker: a container still runs", ignore("StopContainer")},
		{"container/lifecycle", "containergc: cannot remove a container", fail("RemoveContainer", codes.Unknown)},
		{"container/lifecycle", "pleg: inspects a removed container for ever", failing("ContainerStatus", codes.Unknown)},
		{"container/lifecycle", "pleg: an existing container has no status", answer("ContainerStatus", func(r *runtimeapi.ContainerStatusResponse) { r.Status = nil })},
		{"container/status-shows-config", "podcache: stores a container under a wrong name", status(func(s *runtimeapi.ContainerStatus) { s.Metadata.Attempt = 0 })},
		{"container/status-shows-config", "podrunner: loses restart counts and hashes, which are annotations", status(func(s *runtimeapi.ContainerStatus) { s.Annotations = nil })},
		{"container/status-shows-config", "containergc: rotates a file that is not the log", status(func(s *runtimeapi.ContainerStatus) { s.LogPath = path.Base(s.LogPath) })},
		{"container/status-shows-config", "status, imagegc: cannot find out which image is in use", status(func(s *runtimeapi.ContainerStatus) { s.ImageRef = "" })},
		{"container/exit-codes-and-reasons", "podrunner: decides about a restart with a wrong exit code", status(func(s *runtimeapi.ContainerStatus) { s.ExitCode++ })},
		{"container/exit-codes-and-reasons", "status: shows a wrong reason", status(func(s *runtimeapi.ContainerStatus) { s.Reason = "" })},
		{"container/exit-codes-and-reasons", "podrunner: back-off starts", status(func(s *runtimeapi.ContainerStatus) { s.FinishedAt = 0 })},
		{"container/starts-once", "podrunner: a container runs twice, so its first exit code is lost", swallow("StartContainer")},
		{"container/name-is-reserved-until-removal", "podrunner: runs a container twice after it missed the response to its creation", swallow("CreateContainer")},
		{"container/attempts", "podcache: mistakes an old attempt for the current one", status(func(s *runtimeapi.ContainerStatus) { s.CreatedAt = 1 })},
		{"container/attempts", "podrunner: cannot restart a container", onlyOnce("CreateContainer")},
		{"container/unknown-ids", "podworker: a pod never terminates if one of its containers was removed", fail("StopContainer", codes.Unknown)},
		{"container/unknown-ids", "podrunner: treats a removed container as started", swallow("StartContainer")},
		{"container/start-error", "podrunner: treats a container that failed to start as started", swallow("StartContainer")},
		{"container/start-error", "status: does not show why a container failed to start", status(func(s *runtimeapi.ContainerStatus) { s.Message = "" })},
		{"container/start-error", "podrunner: back-off starts in 1970", status(func(s *runtimeapi.ContainerStatus) { s.FinishedAt = 0 })},
		{"container/missing-image", "podrunner: creates a container without an image", swallow("CreateContainer")},
		{"container/resources", "podrunner: a resize never completes, because the status does not show it", ignore("UpdateContainerResources")},
		{"log/is-written", "agent: cannot read a log that is not in the CRI format", ask("CreateContainer", func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath += ".txt" })},
		{"log/is-reopened", "containergc: no new log file is written after a rotation", ignore("ReopenContainerLog")},

		{"stop/graceful", "status: a container that exited after SIGTERM appears to have failed, or never got SIGTERM", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout = 0 })},
		{"stop/kills-after-grace-period", "podworker: a container is killed before its grace period is over", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout = 0 })},
		{"stop/kills-after-grace-period", "podworker: a container that ignores SIGTERM", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout++ })},
		{"stop/without-grace-kills-at-once", "status, oomwatch: the status does not show that a container was killed", status(func(s *runtimeapi.ContainerStatus) { s.ExitCode = 0 })},
		{"stop/without-grace-kills-at-once", "eviction: a pod with grace period 0 is not stopped at once", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout++ })},
		{"stop/shorter-grace-wins", "eviction: cannot shorten the grace period of a terminating pod", oneAtATime("StopContainer")},
		{"stop/cancelled-call-leaves-container", "podworker: treats a running container as stopped", swallow("StopContainer")},
		{"stop/again-changes-nothing", "status: the exit status of a container changes when it is stopped again", counting()},
		{"stop/created-container", "podworker: StopContainer fails", fail("StopContainer", codes.Unknown)},
		{"remove/running-container", "containergc: cannot remove a running container", fail("RemoveContainer", codes.FailedPrecondition)},
		{"remove/again", "containergc: fails for a container that it removed before", onlyOnce("RemoveContainer")},

		{"list/filters-pods", "pleg, containergc: a pod filter returns wrong pods", ask("ListPodSandbox", func(r *runtimeapi.ListPodSandboxRequest) { r.Filter.LabelSelector = nil })},
		{"list/filters-pods", "pleg, containergc: a pod filter returns wrong pods", ask("ListPodSandbox", func(r *runtimeapi.ListPodSandboxRequest) { r.Filter.State = nil })},
		{"list/filters-containers", "pleg, podrunner: a container filter returns wrong containers", ask("ListContainers", func(r *runtimeapi.ListContainersRequest) { r.Filter.PodSandboxId = "" })},
		{"list/agrees-with-status", "pleg: detects a change in every pass, because list and status differ", answer("ListContainers", func(r *containers) { r.Containers[0].CreatedAt += 1e9 })},
		{"list/agrees-with-status", "imagegc: removes an image", answer("ListContainers", func(r *containers) { r.Containers[0].ImageRef = "" })},
		{"list/everything-once", "pleg: a pod is listed twice", answer("ListPodSandbox", func(r *podSandboxes) { r.Items = append(r.Items, r.Items...) })},
		{"list/everything-once", "pleg: not all pods are listed", answer("ListPodSandbox", func(r *podSandboxes) { r.Items = r.Items[:3] })},
		{"list/everything-once", "podworker: cannot create pods concurrently", onlyOnceAtATime("RunPodSandbox")},

		{"image/pull-show-remove", "podrunner: cannot pull an image", fail("PullImage", codes.Unknown)},
		{"image/pull-show-remove", "imagegc: cannot find out how much space the removal of an image frees", answer("ImageStatus", func(r *runtimeapi.ImageStatusResponse) { size(r) })},
		{"image/pull-show-remove", "podrunner: treats a removed image as present", ignore("RemoveImage")},
		{"image/missing", "podrunner: cannot get the status of an image", fail("ImageStatus", codes.NotFound)},
		{"image/missing", "podrunner: creates containers from an image that was not pulled", swallow("PullImage")},
		{"image/missing", "podrunner: mistakes a missing image for an unavailable runtime", failing("PullImage", codes.Unavailable)},
		{"image/in-use", "imagegc: removes an image that is in use", status(func(s *runtimeapi.ContainerStatus) { s.ImageRef = "sha256:other" })},
		{"image/filesystem", "eviction, imagegc: cannot get the disk usage of images", answer("ImageFsInfo", func(r *runtimeapi.ImageFsInfoResponse) { r.ImageFilesystems = nil })},

		{"exec/output-and-exit-code", "prober: treats a failure as a success", answer("ExecSync", func(r *runtimeapi.ExecSyncResponse) { r.ExitCode = 0 })},
		{"exec/output-and-exit-code", "prober: the output of a command is missing", answer("ExecSync", func(r *runtimeapi.ExecSyncResponse) { r.Stdout = nil })},
		{"exec/timeout", "prober: cannot distinguish a timeout from a failing runtime", failing("ExecSync", codes.Unknown)},
		{"exec/timeout", "prober: treats a timeout as a success", swallow("ExecSync")},
		{"exec/timeout", "prober: the timeout is not observed", ask("ExecSync", func(r *runtimeapi.ExecSyncRequest) { r.Timeout++ })},
		{"exec/impossible", "prober: a command that does not exist succeeds", swallow("ExecSync")},
		{"exec/impossible", "prober: the error for a removed container is not NotFound", failing("ExecSync", codes.Unknown)},

		{"stats/of-a-container", "eviction: mistakes one container for another", answer("ContainerStats", func(r *runtimeapi.ContainerStatsResponse) { r.Stats.Attributes.Id = "" })},
		{"stats/of-a-container", "eviction: cannot rank pods by memory usage", answer("ContainerStats", func(r *runtimeapi.ContainerStatsResponse) { r.Stats.Memory = nil })},
		{"stats/of-a-pod", "eviction: the stats of a pod miss a container", answer("PodSandboxStats", func(r *runtimeapi.PodSandboxStatsResponse) { r.Stats.Linux.Containers = nil })},
		{"stats/of-a-pod", "eviction: cannot distinguish a removed pod from a failing runtime", failing("PodSandboxStats", codes.Unknown)},
		{"stats/listed", "eviction: the stats of a container are not listed exactly once", answer("ListContainerStats", func(r *runtimeapi.ListContainerStatsResponse) { r.Stats = nil })},
		{"stats/listed", "eviction: the stats of a pod are not listed exactly once", answer("ListPodSandboxStats", func(r *runtimeapi.ListPodSandboxStatsResponse) { r.Stats = append(r.Stats, r.Stats...) })},

		{"events/order", "pleg: no event is sent for a new pod", nil},
		{"events/order", "pleg: events are sent in the wrong order, or twice", nil},
		{"events/pod-status", "pleg: cannot find the pod of an event", nil},
		{"events/pod-status", "pleg: the event of an exit shows a running container", nil},
	}
}

func size(r *runtimeapi.ImageStatusResponse) {
	if r.GetImage() != nil {
		r.Image.Size = 0
	}
}

// counting changes the finish time of a container with each status.
func counting() twist {
	looks := int64(0)
	return status(func(s *runtimeapi.ContainerStatus) {
		looks++
		s.FinishedAt += looks
	})
}

// onlyOnceAtATime rejects a call while another call is in progress.
func onlyOnceAtATime(method string) twist {
	var mu sync.Mutex
	calls := 0
	return func(m string, _, _ any, call func() error) error {
		err := call()
		mu.Lock()
		defer mu.Unlock()
		if m == method {
			if calls++; calls == 2 {
				return grpcstatus.Error(codes.Aborted, "twisted")
			}
		}
		return err
	}
}

// eventTwist returns the defect of the event stream that the check with this message finds.
func eventTwist(breaks string) func(*runtimeapi.ContainerEventResponse) bool {
	switch breaks {
	case "pleg: events are sent in the wrong order, or twice":
		return func(e *runtimeapi.ContainerEventResponse) bool {
			return e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		}
	case "pleg: cannot find the pod of an event":
		return func(e *runtimeapi.ContainerEventResponse) bool { e.PodSandboxStatus = nil; return true }
	case "pleg: the event of an exit shows a running container":
		return func(e *runtimeapi.ContainerEventResponse) bool {
			for _, s := range e.GetContainersStatuses() {
				s.State = running
			}
			return true
		}
	}
	return func(*runtimeapi.ContainerEventResponse) bool { return false }
}

// quickOptions returns options with short timeouts for a fake node.
func quickOptions() Options {
	o := fakeOptions()
	o.ChangeTimeout, o.CallTimeout = 500*time.Millisecond, 4*time.Second
	return o.withDefaults()
}

func TestChecks_FindEachDefect(t *testing.T) {
	o := quickOptions()
	found := map[string]bool{}
	for _, tc := range twists() {
		found[tc.check] = true
		t.Run(tc.check+"/"+tc.breaks, func(t *testing.T) {
			t.Parallel()
			conn := twisted{ClientConnInterface: dialFake(t), twist: tc.twist, event: keepEvents}
			if tc.twist == nil {
				conn.twist, conn.event = untouched, eventTwist(tc.breaks)
			}
			failure, _ := runCheck(t, tc.check, conn, o)
			require.Contains(t, failure, tc.breaks)
		})
	}
	for _, name := range Checks() {
		require.True(t, found[name], "no runtime of twists makes check %s fail", name)
	}
}
