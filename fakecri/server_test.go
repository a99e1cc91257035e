package fakecri_test

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// TestServe_PodLifecycle calls all implemented methods, in a bubble.
func TestServe_PodLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withTools)
		rt, images := serve(t, b.Node)
		ctx := t.Context()

		version, err := rt.Version(ctx, &runtimeapi.VersionRequest{})
		require.NoError(t, err)
		require.Equal(t, "fakecri", version.GetRuntimeName())
		run, err := rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: podConfig("a", 0)})
		require.NoError(t, err)
		create, err := rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: run.GetPodSandboxId(), Config: containerConfig("app", "demo/web:1", 0), SandboxConfig: podConfig("a", 0),
		})
		require.NoError(t, err)
		id := create.GetContainerId()
		_, err = rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
		require.NoError(t, err)

		// The Go interface and gRPC use the same node.
		list, err := rt.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		require.NoError(t, err)
		require.Equal(t, id, list.GetContainers()[0].GetId())
		status, err := rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		require.NoError(t, err)
		require.Equal(t, b.status(id).String(), status.GetStatus().String())
		sandbox, err := rt.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: run.GetPodSandboxId()})
		require.NoError(t, err)
		require.Equal(t, b.sandbox(run.GetPodSandboxId()).String(), sandbox.GetStatus().String())
		pods, err := rt.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		require.NoError(t, err)
		require.Len(t, pods.GetItems(), 1)

		exec, err := rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"check"}})
		require.NoError(t, err)
		require.EqualValues(t, 3, exec.GetExitCode())
		require.Equal(t, "not well", string(exec.GetStderr()))
		_, err = rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep"}, Timeout: 2})
		requireCode(t, codes.DeadlineExceeded, err)
		_, err = rt.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
			ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 9},
		})
		require.NoError(t, err)
		require.EqualValues(t, 9, b.status(id).GetResources().GetLinux().GetCpuShares())
		_, err = rt.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
		require.NoError(t, err)
		_, err = rt.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: run.GetPodSandboxId()})
		require.NoError(t, err)

		before := time.Now()
		_, err = rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 30})
		require.NoError(t, err)
		require.Less(t, time.Since(before), time.Second)
		_, err = rt.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
		require.NoError(t, err)
		_, err = rt.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		requireCode(t, codes.NotFound, err)
		_, err = rt.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: run.GetPodSandboxId()})
		require.NoError(t, err)
		_, err = rt.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: run.GetPodSandboxId()})
		require.NoError(t, err)

		nodeStatus, err := rt.Status(ctx, &runtimeapi.StatusRequest{})
		require.NoError(t, err)
		require.Len(t, nodeStatus.GetStatus().GetConditions(), 2)
		config, err := rt.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
		require.NoError(t, err)
		require.Equal(t, runtimeapi.CgroupDriver_CGROUPFS, config.GetLinux().GetCgroupDriver())
		_, err = rt.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{})
		require.NoError(t, err)

		all, err := images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		require.NoError(t, err)
		require.Len(t, all.GetImages(), len(fakecri.DemoImages()))
		_, err = images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: spec("demo/web:1")})
		require.NoError(t, err)
		one, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec("demo/web:1")})
		require.NoError(t, err)
		require.Nil(t, one.GetImage())
		pull, err := images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec("demo/web:1")})
		require.NoError(t, err)
		require.Equal(t, b.image("demo/web:1").GetId(), pull.GetImageRef())
		fs, err := images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		require.NoError(t, err)
		require.Len(t, fs.GetImageFilesystems(), 1)
	})
}

func TestServe_AnswersEmptyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, images := serve(t, newBed(t, realTime).Node)
		ctx := t.Context()
		_, err := rt.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{})
		requireCode(t, codes.Unknown, err)
		_, err = rt.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{})
		requireCode(t, codes.NotFound, err)
		_, err = rt.StartContainer(ctx, &runtimeapi.StartContainerRequest{})
		requireCode(t, codes.NotFound, err)
		_, err = rt.StopContainer(ctx, &runtimeapi.StopContainerRequest{})
		require.NoError(t, err)
		_, err = rt.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{})
		requireCode(t, codes.NotFound, err)
		_, err = rt.ExecSync(ctx, &runtimeapi.ExecSyncRequest{})
		requireCode(t, codes.NotFound, err)
		_, err = images.PullImage(ctx, &runtimeapi.PullImageRequest{})
		requireCode(t, codes.Unknown, err)
		status, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{})
		require.NoError(t, err)
		require.Nil(t, status.GetImage())
	})
}

func TestServe_Unimplemented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		rt, _ := serve(t, b.Node)
		ctx := t.Context()
		for name, call := range map[string]func() error{
			"Exec":        func() error { _, err := rt.Exec(ctx, &runtimeapi.ExecRequest{}); return err },
			"Attach":      func() error { _, err := rt.Attach(ctx, &runtimeapi.AttachRequest{}); return err },
			"PortForward": func() error { _, err := rt.PortForward(ctx, &runtimeapi.PortForwardRequest{}); return err },
			"CheckpointContainer": func() error {
				_, err := rt.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{})
				return err
			},
		} {
			requireCode(t, codes.Unimplemented, call(), name)
		}
		require.Len(t, b.Calls(), 4)
	})
}

func TestServe_SendsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		rt, _ := serve(t, b.Node)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := rt.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		require.NoError(t, err)
		b.start("pod", "demo/job:1")
		var got []string
		for range 5 {
			e, err := stream.Recv()
			require.NoError(t, err)
			got = append(got, word(e))
		}
		require.Equal(t, []string{"pod:created", "pod:started", "app:created", "app:started", "app:stopped"}, got)
		cancel()
		_, err = stream.Recv()
		requireCode(t, codes.Canceled, err)
	})
}

func TestRestart_ClosesConnectionsAndClientsReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		rt, _ := serve(t, b.Node)
		_, id := b.start("pod", "demo/stubborn:1")
		stream, err := rt.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		require.NoError(t, err)
		stop := make(chan error, 1)
		go func() {
			_, err := rt.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60})
			stop <- err
		}()
		time.Sleep(time.Second)

		b.Restart(5 * time.Second)
		requireCode(t, codes.Unavailable, <-stop)
		for err == nil {
			_, err = stream.Recv()
		}
		requireCode(t, codes.Unavailable, err)
		_, err = rt.Version(t.Context(), &runtimeapi.VersionRequest{})
		requireCode(t, codes.Unavailable, err)

		time.Sleep(5 * time.Second)
		_, err = rt.Version(t.Context(), &runtimeapi.VersionRequest{}, grpc.WaitForReady(true))
		require.NoError(t, err)
		require.Equal(t, running, b.status(id).GetState())
	})
}

func TestServe_ReturnsErrorsOfFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		rt, _ := serve(t, b.Node)
		require.NoError(t, b.Fail("Version", fakecri.Fault{Err: errBroken, Times: 1}))
		require.NoError(t, b.Fail("Version", fakecri.Fault{Err: io.ErrUnexpectedEOF, Times: 1}))
		require.NoError(t, b.Fail("Version", fakecri.Fault{Hang: true}))
		version := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := rt.Version(ctx, &runtimeapi.VersionRequest{})
			return err
		}
		requireCode(t, codes.Internal, version())
		requireCode(t, codes.Unknown, version(), "unexpected EOF")
		requireCode(t, codes.DeadlineExceeded, version())
	})
}

func TestServe_EndsCallsAndClosesTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		_, id := b.start("pod", "demo/stubborn:1")
		lis := bufconn.Listen(1 << 16)
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error, 1)
		go func() { served <- b.Serve(ctx, lis) }()
		conn := dial(t, "passthrough:///node", grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return lis.DialContext(ctx)
		}))
		stop := make(chan error, 1)
		go func() {
			_, err := runtimeapi.NewRuntimeServiceClient(conn).StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 60})
			stop <- err
		}()
		time.Sleep(time.Second)
		cancel()
		require.NoError(t, <-served)
		requireCode(t, codes.Unavailable, <-stop)
		_, err := lis.Dial()
		require.Error(t, err)
		require.NoError(t, conn.Close())

		// The node works after its server has ended. A server whose context is
		// already done closes its listener too.
		lis = bufconn.Listen(1 << 16)
		require.NoError(t, b.Serve(ctx, lis))
		_, err = lis.Dial()
		require.Error(t, err)
	})
}

type brokenListener struct{ net.Listener }

func (brokenListener) Accept() (net.Conn, error) { return nil, errors.New("no more") }

func TestServe_ReturnsTheListenersError(t *testing.T) {
	err := newBed(t).Serve(t.Context(), brokenListener{bufconn.Listen(1)})
	require.ErrorContains(t, err, "fakecri: serve: no more")
}

func TestUnixSocket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cri.sock")
	lis, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	b := newBed(t, func(c *fakecri.Config) {
		c.Clock = nil
		c.Programs["demo/job:1"] = fakecri.Program{Runtime: 20 * time.Millisecond}
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, lis) }()
	conn := dial(t, "unix://"+socket)
	rt := runtimeapi.NewRuntimeServiceClient(conn)

	stream, err := rt.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
	require.NoError(t, err)
	_, id := b.start("pod", "demo/job:1")
	last := ""
	for last != "app:stopped" {
		e, err := stream.Recv()
		require.NoError(t, err)
		last = word(e)
	}
	status, err := rt.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	require.NoError(t, err)
	require.Equal(t, exited, status.GetStatus().GetState())
	ran := status.GetStatus().GetFinishedAt() - status.GetStatus().GetStartedAt()
	require.InDelta(t, 20*time.Millisecond, ran, float64(time.Millisecond)) // the exit has its scheduled time, even if a call notices it later

	require.NoError(t, conn.Close())
	cancel()
	require.NoError(t, <-served)
	require.NoFileExists(t, socket)
}
