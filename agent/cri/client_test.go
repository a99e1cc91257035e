package cri_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	criclient "github.com/kubeparts/kubeparts/agent/cri"
	"github.com/kubeparts/kubeparts/fakecri"
)

func TestNew_InvalidConfigs(t *testing.T) {
	t.Parallel()
	_, err := criclient.New(criclient.Config{})
	require.EqualError(t, err, "cri: invalid config: field Endpoint is required")
	_, err = criclient.New(criclient.Config{Endpoint: "unix://%zz"})
	require.ErrorContains(t, err, "cri: endpoint unix://%zz: ")
}

// ran is a pod with one running container.
type ran struct{ sandbox, container string }

func runPod(t *testing.T, c runtime, name, image string) ran {
	t.Helper()
	_, err := c.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: image}, nil, nil)
	require.NoError(t, err)
	var r ran
	r.sandbox, err = c.RunPodSandbox(t.Context(), sandboxConfig(name), "")
	require.NoError(t, err)
	r.container, err = c.CreateContainer(t.Context(), r.sandbox, containerConfig(image), sandboxConfig(name))
	require.NoError(t, err)
	require.NoError(t, c.StartContainer(t.Context(), r.container))
	return r
}

// view has the responses of a runtime about itself, its images and one pod.
func view(t *testing.T, c runtime, pod ran) (all []string) {
	t.Helper()
	add := func(answer any, err error) {
		if m, ok := answer.(proto.Message); ok {
			answer = m
		}
		all = append(all, fmt.Sprint(answer, " ", err))
	}
	ctx := t.Context()
	version, err := c.Version(ctx, "v1")
	add(version, err)
	status, err := c.Status(ctx, true)
	add(status, err)
	box, err := c.PodSandboxStatus(ctx, pod.sandbox, true)
	add(box, err)
	boxes, err := c.ListPodSandbox(ctx, nil)
	add(boxes, err)
	container, err := c.ContainerStatus(ctx, pod.container, true)
	add(container, err)
	containers, err := c.ListContainers(ctx, &runtimeapi.ContainerFilter{PodSandboxId: pod.sandbox})
	add(containers, err)
	image, err := c.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: "demo/web:1"}, true)
	add(image, err)
	images, err := c.ListImages(ctx, nil)
	add(images, err)
	return all
}

func TestClient_ReturnsResponsesOfTheRuntime(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	ctx := t.Context()
	pod := runPod(t, c, "a", "demo/web:1")
	require.Equal(t, squeeze(view(t, node, pod)), squeeze(view(t, c, pod)))

	require.NoError(t, c.UpdateContainerResources(ctx, pod.container, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpuShares: 77},
	}))
	_, err := c.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: pod.sandbox})
	require.NoError(t, err)
	status, err := c.ContainerStatus(ctx, pod.container, false)
	require.NoError(t, err)
	require.EqualValues(t, 77, status.GetStatus().GetResources().GetLinux().GetCpuShares())
	stats, err := c.ListContainerStats(ctx, nil)
	require.NoError(t, err)
	require.Len(t, stats, 1)
	podStats, err := c.ListPodSandboxStats(ctx, nil)
	require.NoError(t, err)
	require.Len(t, podStats, 1)
	disk, err := c.ImageFsInfo(ctx)
	require.NoError(t, err)
	require.NotEmpty(t, disk.GetImageFilesystems())
	require.NoError(t, c.ReopenContainerLog(ctx, pod.container))

	require.NoError(t, c.StopContainer(ctx, pod.container, 5))
	require.NoError(t, c.RemoveContainer(ctx, pod.container))
	require.NoError(t, c.StopPodSandbox(ctx, pod.sandbox))
	require.NoError(t, c.RemovePodSandbox(ctx, pod.sandbox))
	boxes, err := node.ListPodSandbox(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, boxes)
	require.NoError(t, c.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: "demo/web:1"}))
	image, err := c.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: "demo/web:1"}, false)
	require.NoError(t, err)
	require.Nil(t, image.GetImage())
}

// squeeze removes all spaces from the text form of messages, because protobuf varies them at random.
func squeeze(all []string) (without []string) {
	for _, s := range all {
		without = append(without, strings.ReplaceAll(s, " ", ""))
	}
	return without
}

func TestClient_ErrorsAreReturnedUnchanged(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	_, err := c.ContainerStatus(t.Context(), "missing", false)
	require.Equal(t, codes.NotFound, grpcstatus.Code(err))
	_, ok := grpcstatus.FromError(err)
	require.True(t, ok)
	for _, ask := range []func() error{
		func() error { return second(c.Exec(t.Context(), &runtimeapi.ExecRequest{})) },
		func() error { return second(c.Attach(t.Context(), &runtimeapi.AttachRequest{})) },
		func() error { return second(c.PortForward(t.Context(), &runtimeapi.PortForwardRequest{})) },
	} {
		require.Equal(t, codes.Unimplemented, grpcstatus.Code(ask()), "the node does not support streams")
	}
}

func TestExecSync_ExitCodes(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{
		Images: []fakecri.Image{{Name: "test/exec:1"}},
		Programs: map[string]fakecri.Program{"test/exec:1": {Exec: map[string]fakecri.Exec{
			"good": {Stdout: "out", Stderr: "err"}, "is bad": {ExitCode: 3, Stdout: "out", Stderr: "no"}, "slow": {Runtime: time.Hour},
		}}},
	})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	id := runPod(t, c, "a", "test/exec:1").container
	ctx := t.Context()

	stdout, stderr, err := c.ExecSync(ctx, id, []string{"good"}, 0)
	require.NoError(t, err)
	require.Equal(t, "out err", string(stdout)+" "+string(stderr))

	stdout, stderr, err = c.ExecSync(ctx, id, []string{"is", "bad"}, time.Minute)
	var exit utilexec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitStatus())
	require.EqualError(t, err, "command 'is bad' exited with 3: no")
	require.Equal(t, "out no", string(stdout)+" "+string(stderr))
	_, _, direct := node.ExecSync(ctx, id, []string{"is", "bad"}, time.Minute)
	require.EqualError(t, err, direct.Error(), "the client must return the node's own error")

	_, _, err = c.ExecSync(ctx, id, []string{"slow"}, time.Second)
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))
	_, _, err = c.ExecSync(ctx, id, []string{"nosuch"}, time.Second)
	require.ErrorContains(t, err, "executable file not found")
	require.NotErrorAs(t, err, &exit)
}

func TestGetContainerEvents_UntilTheContextEnds(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{Images: fakecri.DemoImages()})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events, opened, ended := make(chan *runtimeapi.ContainerEventResponse), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- c.GetContainerEvents(ctx, events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(opened) })
	}()
	<-opened
	pod := runPod(t, c, "a", "demo/web:1")
	e := <-events
	require.Equal(t, pod.sandbox, e.GetContainerId())
	require.Equal(t, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, e.GetContainerEventType())
	cancel() // more events follow, but the test does not receive them: the client waits at the channel
	require.Error(t, <-ended)
}

func TestGetContainerEvents_FromAFailingRuntime(t *testing.T) {
	t.Parallel()
	c := newClient(t, criclient.Config{Endpoint: "unix://" + filepath.Join(t.TempDir(), "missing")})
	require.Equal(t, codes.Unavailable, grpcstatus.Code(c.GetContainerEvents(t.Context(), nil, nil)))
	node := newNode(t, fakecri.Config{})
	require.NoError(t, node.Fail("GetContainerEvents", fakecri.Fault{Err: errors.New("no events today")}))
	c = newClient(t, criclient.Config{Endpoint: serve(t, node)})
	require.ErrorContains(t, c.GetContainerEvents(t.Context(), nil, nil), "no events today")
}

func TestClient_ConnectsWhenTheRuntimeComes(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	c := newClient(t, criclient.Config{Endpoint: "unix://" + socket})
	_, err := c.Version(t.Context(), "v1")
	require.Equal(t, codes.Unavailable, grpcstatus.Code(err))
	patient := newClient(t, criclient.Config{Endpoint: "unix://" + socket, DialOptions: []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = patient.Version(ctx, "v1")
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))
	serveAt(t, newNode(t, fakecri.Config{}), socket)
	_, err = patient.Version(t.Context(), "v1")
	require.NoError(t, err)
}

func TestClient_HungRuntime(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{})
	require.NoError(t, node.Fail("", fakecri.Fault{Hang: true}))
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Status(ctx, false)
	require.Equal(t, codes.DeadlineExceeded, grpcstatus.Code(err))
	_, err = c.Lister().ListContainers(ctx, nil)
	require.Error(t, err)

	ended := make(chan error, 1)
	go func() { ended <- second(c.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "i"}, nil, nil)) }()
	require.NoError(t, c.Close())
	require.Equal(t, codes.Canceled, grpcstatus.Code(<-ended))
}

func TestClient_MessageSizes(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	add := func(n, mib int) {
		for range n {
			boxes, err := node.ListPodSandbox(t.Context(), nil)
			require.NoError(t, err)
			config := sandboxConfig(fmt.Sprint("box", len(boxes)))
			config.Annotations = map[string]string{"big": strings.Repeat("x", mib<<20)}
			_, err = node.RunPodSandbox(t.Context(), config, "")
			require.NoError(t, err)
		}
	}
	add(3, 5)
	boxes, err := c.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err, "a response of 15 MiB must be accepted (gRPC's default limit is 4 MiB)")
	require.Len(t, boxes, 3)
	fast, err := c.Lister().ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, fast, 3)
	add(1, 2)
	_, err = c.ListPodSandbox(t.Context(), nil)
	require.Equal(t, codes.ResourceExhausted, grpcstatus.Code(err), "a response of 17 MiB must be rejected")
}

func TestLister_ListsAsTheClient(t *testing.T) {
	t.Parallel()
	node := newNode(t, fakecri.Config{Images: fakecri.DemoImages()})
	c := newClient(t, criclient.Config{Endpoint: serve(t, node)})
	first, second := c.Lister(), c.Lister()
	require.Same(t, first, second)
	runPod(t, c, "a", "demo/web:1")
	boxes, err := c.ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	fast, err := c.Lister().ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, fast, 1)
	require.True(t, proto.Equal(boxes[0], fast[0]))
	again, err := c.Lister().ListPodSandbox(t.Context(), nil)
	require.NoError(t, err)
	require.Same(t, fast[0], again[0], "an unchanged response must not be decoded again")
	containers, err := c.Lister().ListContainers(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, containers, 1)
}
