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

// twist makes a call, or does something else, in a runtime that is not as it
// should be.
type twist func(method string, request, reply any, call func() error) error

// twisted is a connection to such a runtime.
type twisted struct {
	grpc.ClientConnInterface
	twist twist
	event func(*runtimeapi.ContainerEventResponse) bool // whether it comes
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
	event func(*runtimeapi.ContainerEventResponse) bool // nil: there are no events
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

// answer changes the answers of a method that succeed.
func answer[R any](method string, change func(R)) twist {
	return func(m string, _, reply any, call func() error) error {
		err := call()
		if r, ok := reply.(R); ok && m == method && err == nil {
			change(r)
		}
		return err
	}
}

// ask changes what the runtime hears.
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

// failing replaces the code of those calls that fail.
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

// oneAtATime makes calls of a method wait for each other.
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

// status and friends change what statuses and lists show.
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

// listener is a reporter that hears of the first failure.
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

// twists are runtimes with one defect each: which check finds it, and what that
// says.
func twists() []struct {
	check, breaks string
	twist         twist
} {
	return []struct {
		check, breaks string
		twist         twist
	}{
		{"node/version", "agent: speaks v1", answer("Version", func(r *runtimeapi.VersionResponse) { r.RuntimeApiVersion = "v1alpha2" })},
		{"node/version", "agent: cannot name", answer("Version", func(r *runtimeapi.VersionResponse) { r.RuntimeName = "" })},
		{"node/ready", "agent: the node never becomes ready", answer("Status", func(r *runtimeapi.StatusResponse) { r.Status.Conditions = r.Status.Conditions[:1] })},
		{"node/cgroup-driver", "podrunner: cannot tell how pods' cgroups", fail("RuntimeConfig", codes.Internal)},

		{"sandbox/life", "podworker: a pod that was stopped counts as running", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_READY })},
		{"sandbox/life", "podrunner: kills and makes again", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY })},
		{"sandbox/life", "status: the pod has no IP", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Network = nil })},
		{"sandbox/life", "pleg: inspects a pod that is gone", failing("PodSandboxStatus", codes.Unknown)},
		{"sandbox/life", "podrunner: no pod can be made", fail("RunPodSandbox", codes.Internal)},
		{"sandbox/says-what-it-was-given", "podcache: a pod is filed under", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Metadata.Uid = "" })},
		{"sandbox/says-what-it-was-given", "pleg: a pod whose labels", podStatus(func(s *runtimeapi.PodSandboxStatus) { delete(s.Labels, labelName) })},
		{"sandbox/says-what-it-was-given", "podrunner: what is noted", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Annotations[annotation] = "{}" })},
		{"sandbox/says-what-it-was-given", "not nanoseconds", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.CreatedAt /= 1e9 })},
		{"sandbox/name-is-reserved-until-removal", "podrunner: a pod that it made and lost sight of", swallow("RunPodSandbox")},
		{"sandbox/stop-and-remove-again", "podrunner: StopPodSandbox fails", onlyOnce("StopPodSandbox")},
		{"sandbox/stop-and-remove-again", "podrunner: RemovePodSandbox fails", onlyOnce("RemovePodSandbox")},
		{"sandbox/unknown-ids", "pleg: cannot tell a pod that is gone", failing("PodSandboxStatus", codes.Unknown)},
		{"sandbox/unknown-ids", "podworker: a pod that is gone already", fail("StopPodSandbox", codes.Unknown)},
		{"sandbox/stop-ends-its-containers", "pleg: the end of a container is never noticed", ignore("StopPodSandbox")},
		{"sandbox/remove-takes-all-along", "containergc: containers stay", ignore("RemovePodSandbox")},
		{"sandbox/addresses-differ", "status, prober: two pods have one address", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Network.Ip = "10.0.0.1" })},
		{"sandbox/host-network", "status: takes a pod on the host's network", podStatus(func(s *runtimeapi.PodSandboxStatus) { s.Linux = nil })},

		{"container/life", "podrunner: starts again what runs", ignore("StartContainer")},
		{"container/life", "podworker: a container still runs", ignore("StopContainer")},
		{"container/life", "containergc: a container cannot be removed", fail("RemoveContainer", codes.Unknown)},
		{"container/life", "pleg: inspects a container that is gone", failing("ContainerStatus", codes.Unknown)},
		{"container/life", "pleg: a container that is there has no status", answer("ContainerStatus", func(r *runtimeapi.ContainerStatusResponse) { r.Status = nil })},
		{"container/says-what-it-was-given", "podcache: a container is filed under", status(func(s *runtimeapi.ContainerStatus) { s.Metadata.Attempt = 0 })},
		{"container/says-what-it-was-given", "podrunner: restart counts and hashes", status(func(s *runtimeapi.ContainerStatus) { s.Annotations = nil })},
		{"container/says-what-it-was-given", "containergc: rotates another file", status(func(s *runtimeapi.ContainerStatus) { s.LogPath = path.Base(s.LogPath) })},
		{"container/says-what-it-was-given", "status, imagegc: cannot tell which image", status(func(s *runtimeapi.ContainerStatus) { s.ImageRef = "" })},
		{"container/exit-codes-and-reasons", "podrunner: decides on a restart by a wrong", status(func(s *runtimeapi.ContainerStatus) { s.ExitCode++ })},
		{"container/exit-codes-and-reasons", "status: shows a wrong reason", status(func(s *runtimeapi.ContainerStatus) { s.Reason = "" })},
		{"container/exit-codes-and-reasons", "podrunner: back-off starts", status(func(s *runtimeapi.ContainerStatus) { s.FinishedAt = 0 })},
		{"container/starts-once", "podrunner: a container runs twice", swallow("StartContainer")},
		{"container/name-is-reserved-until-removal", "podrunner: a container that it made and lost", swallow("CreateContainer")},
		{"container/attempts", "podcache: takes an old attempt", status(func(s *runtimeapi.ContainerStatus) { s.CreatedAt = 1 })},
		{"container/attempts", "podrunner: a container cannot be restarted", onlyOnce("CreateContainer")},
		{"container/unknown-ids", "podworker: a pod one of whose containers", fail("StopContainer", codes.Unknown)},
		{"container/unknown-ids", "podrunner: takes a container that is gone", swallow("StartContainer")},
		{"container/that-cannot-start", "podrunner: takes a container for started", swallow("StartContainer")},
		{"container/that-cannot-start", "status: says nothing of why", status(func(s *runtimeapi.ContainerStatus) { s.Message = "" })},
		{"container/that-cannot-start", "podrunner: back-off starts in 1970", status(func(s *runtimeapi.ContainerStatus) { s.FinishedAt = 0 })},
		{"container/of-a-missing-image", "podrunner: a container is made without an image", swallow("CreateContainer")},
		{"container/resources", "podrunner: a resize never ends", ignore("UpdateContainerResources")},
		{"log/is-written", "agent: cannot show a log", ask("CreateContainer", func(r *runtimeapi.CreateContainerRequest) { r.Config.LogPath += ".txt" })},
		{"log/is-reopened", "containergc: a rotated log is not written", ignore("ReopenContainerLog")},

		{"stop/lets-it-end", "status: a container that ended as asked", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout = 0 })},
		{"stop/kills-after-the-grace", "podworker: a container is killed before", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout = 0 })},
		{"stop/kills-after-the-grace", "podworker: a container that ignores SIGTERM", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout++ })},
		{"stop/without-grace-kills-at-once", "status, oomwatch: a kill shows", status(func(s *runtimeapi.ContainerStatus) { s.ExitCode = 0 })},
		{"stop/without-grace-kills-at-once", "eviction: a pod that must go at once", ask("StopContainer", func(r *runtimeapi.StopContainerRequest) { r.Timeout++ })},
		{"stop/shorter-grace-wins", "eviction: cannot shorten", oneAtATime("StopContainer")},
		{"stop/cancelled-leaves-it", "podworker: takes a container for stopped", swallow("StopContainer")},
		{"stop/again-changes-nothing", "status: how a container ended changes", counting()},
		{"stop/what-never-ran", "podworker: StopContainer fails", fail("StopContainer", codes.Unknown)},
		{"remove/kills-what-runs", "containergc: a container that runs cannot", fail("RemoveContainer", codes.FailedPrecondition)},
		{"remove/again", "containergc: fails at what it has removed", onlyOnce("RemoveContainer")},

		{"list/filters-pods", "pleg, containergc: filters of pods", ask("ListPodSandbox", func(r *runtimeapi.ListPodSandboxRequest) { r.Filter.LabelSelector = nil })},
		{"list/filters-pods", "pleg, containergc: filters of pods", ask("ListPodSandbox", func(r *runtimeapi.ListPodSandboxRequest) { r.Filter.State = nil })},
		{"list/filters-containers", "pleg, podrunner: filters of containers", ask("ListContainers", func(r *runtimeapi.ListContainersRequest) { r.Filter.PodSandboxId = "" })},
		{"list/agrees-with-status", "pleg: finds a change in every pass", answer("ListContainers", func(r *containers) { r.Containers[0].CreatedAt += 1e9 })},
		{"list/agrees-with-status", "imagegc: removes an image", answer("ListContainers", func(r *containers) { r.Containers[0].ImageRef = "" })},
		{"list/everything-once", "pleg: a pod is listed twice", answer("ListPodSandbox", func(r *podSandboxes) { r.Items = append(r.Items, r.Items...) })},
		{"list/everything-once", "pleg: not all pods are listed", answer("ListPodSandbox", func(r *podSandboxes) { r.Items = r.Items[:3] })},
		{"list/everything-once", "podworker: pods cannot be made at the same time", onlyOnceAtATime("RunPodSandbox")},

		{"image/pull-show-remove", "podrunner: an image cannot be pulled", fail("PullImage", codes.Unknown)},
		{"image/pull-show-remove", "imagegc: cannot tell what removing", answer("ImageStatus", func(r *runtimeapi.ImageStatusResponse) { size(r) })},
		{"image/pull-show-remove", "podrunner: takes an image for present", ignore("RemoveImage")},
		{"image/missing", "podrunner: cannot tell whether an image is there", fail("ImageStatus", codes.NotFound)},
		{"image/missing", "podrunner: makes containers of an image", swallow("PullImage")},
		{"image/missing", "podrunner: takes a missing image for a missing runtime", failing("PullImage", codes.Unavailable)},
		{"image/in-use", "imagegc: removes an image that is in use", status(func(s *runtimeapi.ContainerStatus) { s.ImageRef = "sha256:other" })},
		{"image/filesystem", "eviction, imagegc: cannot tell how full", answer("ImageFsInfo", func(r *runtimeapi.ImageFsInfoResponse) { r.ImageFilesystems = nil })},

		{"exec/output-and-exit-code", "prober: takes a failure for a success", answer("ExecSync", func(r *runtimeapi.ExecSyncResponse) { r.ExitCode = 0 })},
		{"exec/output-and-exit-code", "prober: misses what a command says", answer("ExecSync", func(r *runtimeapi.ExecSyncResponse) { r.Stdout = nil })},
		{"exec/timeout", "prober: cannot tell a timeout", failing("ExecSync", codes.Unknown)},
		{"exec/timeout", "prober: takes a timeout for a success", swallow("ExecSync")},
		{"exec/timeout", "prober: timeouts are not kept", ask("ExecSync", func(r *runtimeapi.ExecSyncRequest) { r.Timeout++ })},
		{"exec/impossible", "prober: a command that is not there", swallow("ExecSync")},
		{"exec/impossible", "prober: a container that is gone", failing("ExecSync", codes.Unknown)},

		{"stats/of-a-container", "eviction: takes one container for another", answer("ContainerStats", func(r *runtimeapi.ContainerStatsResponse) { r.Stats.Attributes.Id = "" })},
		{"stats/of-a-container", "eviction: cannot rank by memory", answer("ContainerStats", func(r *runtimeapi.ContainerStatsResponse) { r.Stats.Memory = nil })},
		{"stats/of-a-pod", "eviction: a pod's figures miss", answer("PodSandboxStats", func(r *runtimeapi.PodSandboxStatsResponse) { r.Stats.Linux.Containers = nil })},
		{"stats/of-a-pod", "eviction: cannot tell a pod that is gone", failing("PodSandboxStats", codes.Unknown)},
		{"stats/listed", "eviction: a container's figures are not listed", answer("ListContainerStats", func(r *runtimeapi.ListContainerStatsResponse) { r.Stats = nil })},
		{"stats/listed", "eviction: a pod's figures are not listed", answer("ListPodSandboxStats", func(r *runtimeapi.ListPodSandboxStatsResponse) { r.Stats = append(r.Stats, r.Stats...) })},

		{"events/tell-a-life-in-order", "pleg: nothing is told of a pod that is made", nil},
		{"events/tell-a-life-in-order", "pleg: a life is told in the wrong order", nil},
		{"events/carry-the-pod", "pleg: cannot tell whose event", nil},
		{"events/carry-the-pod", "pleg: an event that tells of an end", nil},
	}
}

func size(r *runtimeapi.ImageStatusResponse) {
	if r.GetImage() != nil {
		r.Image.Size = 0
	}
}

// counting makes each look at a container find another end.
func counting() twist {
	looks := int64(0)
	return status(func(s *runtimeapi.ContainerStatus) {
		looks++
		s.FinishedAt += looks
	})
}

// onlyOnceAtATime refuses a call while another one is under way.
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

// eventTwists are those of the event stream, by what they break.
func eventTwist(breaks string) func(*runtimeapi.ContainerEventResponse) bool {
	switch breaks {
	case "pleg: a life is told in the wrong order":
		return func(e *runtimeapi.ContainerEventResponse) bool {
			return e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		}
	case "pleg: cannot tell whose event":
		return func(e *runtimeapi.ContainerEventResponse) bool { e.PodSandboxStatus = nil; return true }
	case "pleg: an event that tells of an end":
		return func(e *runtimeapi.ContainerEventResponse) bool {
			for _, s := range e.GetContainersStatuses() {
				s.State = running
			}
			return true
		}
	}
	return func(*runtimeapi.ContainerEventResponse) bool { return false }
}

// quickOptions are those for a fake node, which is not slow.
func quickOptions() Options {
	o := fakeOptions()
	o.Settle, o.CallTimeout = 500*time.Millisecond, 4*time.Second
	return o.withDefaults()
}

func TestEachDefectIsFoundAndNamed(t *testing.T) {
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
		require.True(t, found[name], "nobody knows whether check %s can fail", name)
	}
}
