package cri_test

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
)

var errNoRuntime = errors.New("no runtime")

// recorder records the newest call instead of making it.
type recorder struct {
	method  string
	request any
	limit   time.Duration // 0 means no deadline
}

func (r *recorder) intercept() grpc.DialOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, _ ...grpc.CallOption) error {
		*r = recorder{method: path.Base(method), request: req}
		if at, ok := ctx.Deadline(); ok {
			r.limit = time.Until(at).Round(time.Second)
		}
		return errNoRuntime
	})
}

// expected is the request that a method of the client must send.
type expected struct {
	do      func(context.Context, *criclient.Client) error
	request proto.Message
	limit   time.Duration
}

func second[A any](_ A, err error) error { return err }

// expectations has each unary call by the name of its method.
func expectations() map[string]expected {
	all := sandboxCalls()
	maps.Copy(all, containerCalls())
	maps.Copy(all, imageCalls())
	return all
}

func sandboxCalls() map[string]expected {
	type (
		client = *criclient.Client
		ctx    = context.Context
	)
	const usual = 2 * time.Minute
	filter := &runtimeapi.PodSandboxFilter{Id: "s"}
	statsFilter := &runtimeapi.PodSandboxStatsFilter{Id: "s"}
	update := &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: "s"}
	forward := &runtimeapi.PortForwardRequest{PodSandboxId: "s"}
	return map[string]expected{
		"Version": {
			func(ctx ctx, c client) error { return second(c.Version(ctx, "v1")) },
			&runtimeapi.VersionRequest{Version: "v1"}, usual,
		},
		"Status": {
			func(ctx ctx, c client) error { return second(c.Status(ctx, true)) },
			&runtimeapi.StatusRequest{Verbose: true}, usual,
		},
		"RunPodSandbox": {
			func(ctx ctx, c client) error { return second(c.RunPodSandbox(ctx, sandboxConfig("a"), "runc")) },
			&runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("a"), RuntimeHandler: "runc"}, 2 * usual,
		},
		"StopPodSandbox": {
			func(ctx ctx, c client) error { return c.StopPodSandbox(ctx, "s") },
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: "s"}, usual,
		},
		"RemovePodSandbox": {
			func(ctx ctx, c client) error { return c.RemovePodSandbox(ctx, "s") },
			&runtimeapi.RemovePodSandboxRequest{PodSandboxId: "s"}, usual,
		},
		"PodSandboxStatus": {
			func(ctx ctx, c client) error { return second(c.PodSandboxStatus(ctx, "s", true)) },
			&runtimeapi.PodSandboxStatusRequest{PodSandboxId: "s", Verbose: true}, usual,
		},
		"ListPodSandbox": {
			func(ctx ctx, c client) error { return second(c.ListPodSandbox(ctx, filter)) },
			&runtimeapi.ListPodSandboxRequest{Filter: filter}, usual,
		},
		"ListPodSandboxStats": {
			func(ctx ctx, c client) error { return second(c.ListPodSandboxStats(ctx, statsFilter)) },
			&runtimeapi.ListPodSandboxStatsRequest{Filter: statsFilter}, usual,
		},
		"UpdatePodSandboxResources": {
			func(ctx ctx, c client) error { return second(c.UpdatePodSandboxResources(ctx, update)) },
			update, usual,
		},
		"PortForward": {
			func(ctx ctx, c client) error { return second(c.PortForward(ctx, forward)) },
			forward, usual,
		},
	}
}

func containerCalls() map[string]expected {
	type (
		client = *criclient.Client
		ctx    = context.Context
	)
	const usual = 2 * time.Minute
	filter := &runtimeapi.ContainerFilter{Id: "c"}
	statsFilter := &runtimeapi.ContainerStatsFilter{Id: "c"}
	linux := &runtimeapi.LinuxContainerResources{CpuShares: 7}
	exec := &runtimeapi.ExecRequest{ContainerId: "c"}
	attach := &runtimeapi.AttachRequest{ContainerId: "c"}
	return map[string]expected{
		"CreateContainer": {
			func(ctx ctx, c client) error {
				return second(c.CreateContainer(ctx, "s", containerConfig("i"), sandboxConfig("a")))
			},
			&runtimeapi.CreateContainerRequest{PodSandboxId: "s", Config: containerConfig("i"), SandboxConfig: sandboxConfig("a")}, usual,
		},
		"CheckpointContainer": {
			func(ctx ctx, c client) error {
				return c.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: "c", Location: "/f", Timeout: 1})
			},
			&runtimeapi.CheckpointContainerRequest{ContainerId: "c", Location: "/f", Timeout: 120}, usual,
		},
		"StartContainer": {
			func(ctx ctx, c client) error { return c.StartContainer(ctx, "c") },
			&runtimeapi.StartContainerRequest{ContainerId: "c"}, usual,
		},
		"StopContainer": {
			func(ctx ctx, c client) error { return c.StopContainer(ctx, "c", 30) },
			&runtimeapi.StopContainerRequest{ContainerId: "c", Timeout: 30}, usual + 30*time.Second,
		},
		"RemoveContainer": {
			func(ctx ctx, c client) error { return c.RemoveContainer(ctx, "c") },
			&runtimeapi.RemoveContainerRequest{ContainerId: "c"}, usual,
		},
		"ListContainers": {
			func(ctx ctx, c client) error { return second(c.ListContainers(ctx, filter)) },
			&runtimeapi.ListContainersRequest{Filter: filter}, usual,
		},
		"ContainerStatus": {
			func(ctx ctx, c client) error { return second(c.ContainerStatus(ctx, "c", true)) },
			&runtimeapi.ContainerStatusRequest{ContainerId: "c", Verbose: true}, usual,
		},
		"ListContainerStats": {
			func(ctx ctx, c client) error { return second(c.ListContainerStats(ctx, statsFilter)) },
			&runtimeapi.ListContainerStatsRequest{Filter: statsFilter}, usual,
		},
		"UpdateContainerResources": {
			func(ctx ctx, c client) error {
				return c.UpdateContainerResources(ctx, "c", &runtimeapi.ContainerResources{Linux: linux})
			},
			&runtimeapi.UpdateContainerResourcesRequest{ContainerId: "c", Linux: linux}, usual,
		},
		"ReopenContainerLog": {
			func(ctx ctx, c client) error { return c.ReopenContainerLog(ctx, "c") },
			&runtimeapi.ReopenContainerLogRequest{ContainerId: "c"}, usual,
		},
		"ExecSync": {
			func(ctx ctx, c client) error {
				_, _, err := c.ExecSync(ctx, "c", []string{"a", "b"}, 9100*time.Millisecond)
				return err
			},
			&runtimeapi.ExecSyncRequest{ContainerId: "c", Cmd: []string{"a", "b"}, Timeout: 10}, usual + 9*time.Second,
		},
		"Exec": {
			func(ctx ctx, c client) error { return second(c.Exec(ctx, exec)) },
			exec, usual,
		},
		"Attach": {
			func(ctx ctx, c client) error { return second(c.Attach(ctx, attach)) },
			attach, usual,
		},
	}
}

func imageCalls() map[string]expected {
	type (
		client = *criclient.Client
		ctx    = context.Context
	)
	const usual = 2 * time.Minute
	image, filter := &runtimeapi.ImageSpec{Image: "i"}, &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: "i"}}
	auth := &runtimeapi.AuthConfig{Username: "u"}
	return map[string]expected{
		"ListImages": {
			func(ctx ctx, c client) error { return second(c.ListImages(ctx, filter)) },
			&runtimeapi.ListImagesRequest{Filter: filter}, usual,
		},
		"ImageStatus": {
			func(ctx ctx, c client) error { return second(c.ImageStatus(ctx, image, true)) },
			&runtimeapi.ImageStatusRequest{Image: image, Verbose: true}, usual,
		},
		"PullImage": {
			func(ctx ctx, c client) error { return second(c.PullImage(ctx, image, auth, sandboxConfig("a"))) },
			&runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: sandboxConfig("a")}, 0,
		},
		"RemoveImage": {
			func(ctx ctx, c client) error { return c.RemoveImage(ctx, image) },
			&runtimeapi.RemoveImageRequest{Image: image}, usual,
		},
		"ImageFsInfo": {
			func(ctx ctx, c client) error { return second(c.ImageFsInfo(ctx)) },
			&runtimeapi.ImageFsInfoRequest{}, usual,
		},
	}
}

func TestClient_CallsHaveADeadline(t *testing.T) {
	t.Parallel()
	var got recorder
	c := newClient(t, criclient.Config{Endpoint: "unix:///missing", DialOptions: []grpc.DialOption{got.intercept()}})
	all := expectations()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want := all[name]
		require.ErrorIs(t, want.do(t.Context(), c), errNoRuntime, name)
		require.Equal(t, name, got.method)
		require.Equal(t, want.limit, got.limit, name)
		require.True(t, proto.Equal(want.request, got.request.(proto.Message)), "%s: %v", name, got.request)
	}

	// The caller's deadline applies if it is earlier.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		require.ErrorIs(t, all[name].do(soon, c), errNoRuntime, name)
		require.Equal(t, 10*time.Second, got.limit, name)
	}
}

func TestStopContainer_LongGracePeriods(t *testing.T) {
	t.Parallel()
	var got recorder
	c := newClient(t, criclient.Config{Endpoint: "unix:///missing", DialOptions: []grpc.DialOption{got.intercept()}})
	for _, grace := range []int64{1 << 31, 1 << 33, 1<<63 - 1} {
		require.ErrorIs(t, c.StopContainer(t.Context(), "c", grace), errNoRuntime)
		require.Greater(t, got.limit, 50*365*24*time.Hour, grace)
		require.Equal(t, grace, got.request.(*runtimeapi.StopContainerRequest).GetTimeout())
	}
}

func TestExecSync_Timeouts(t *testing.T) {
	t.Parallel()
	var got recorder
	c := newClient(t, criclient.Config{Endpoint: "unix:///missing", DialOptions: []grpc.DialOption{got.intercept()}})
	for timeout, want := range map[time.Duration]int64{
		0: 0, time.Nanosecond: 1, time.Second: 1, 1100 * time.Millisecond: 2, 2 * time.Second: 2,
	} {
		_, _, err := c.ExecSync(t.Context(), "c", []string{"x"}, timeout)
		require.ErrorIs(t, err, errNoRuntime)
		require.Equal(t, want, got.request.(*runtimeapi.ExecSyncRequest).GetTimeout(), timeout)
		require.Equal(t, timeout > 0, got.limit > 0, timeout)
	}
}
