package fakecri_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"

	"github.com/kubeparts/kubeparts/fakecri"
)

// urls is a streamer without a server.
type urls struct{ n *fakecri.Node }

func (urls) GetExec(r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return &runtimeapi.ExecResponse{Url: "http://exec/" + r.GetContainerId()}, nil
}

func (urls) GetAttach(r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return &runtimeapi.AttachResponse{Url: "http://attach/" + r.GetContainerId()}, nil
}

func (urls) GetPortForward(r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return &runtimeapi.PortForwardResponse{Url: "http://forward/" + r.GetPodSandboxId()}, nil
}

func TestStreamer_URLsOfRunningContainers(t *testing.T) {
	var s urls
	b := newBed(t, func(c *fakecri.Config) {
		c.Streamer = func(n *fakecri.Node) (fakecri.Streamer, error) {
			s.n = n
			return s, nil
		}
	})
	require.Same(t, b.Node, s.n)
	ctx := t.Context()
	sandbox, id := b.start("a", "demo/web:1")
	exec, err := b.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id})
	require.NoError(t, err)
	require.Equal(t, "http://exec/"+id, exec.GetUrl())
	attach, err := b.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id})
	require.NoError(t, err)
	require.Equal(t, "http://attach/"+id, attach.GetUrl())
	forward, err := b.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox})
	require.NoError(t, err)
	require.Equal(t, "http://forward/"+sandbox, forward.GetUrl())

	require.NoError(t, b.StopPodSandbox(ctx, sandbox))
	for _, tc := range []struct {
		id, pod string
		want    codes.Code
	}{{id, sandbox, codes.Unknown}, {"nobody", "nobody", codes.NotFound}} {
		id, pod, want := tc.id, tc.pod, tc.want
		_, err = b.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id})
		requireCode(t, want, err)
		_, err = b.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id})
		requireCode(t, want, err)
		_, err = b.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod})
		requireCode(t, want, err)
	}
}

func TestStreamer_Error(t *testing.T) {
	_, err := fakecri.New(fakecri.Config{Streamer: func(*fakecri.Node) (fakecri.Streamer, error) {
		return nil, errors.New("no address")
	}})
	require.EqualError(t, err, "fakecri: create the streamer: no address")
}

func TestExecStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, withTools)
		_, id := b.start("a", "demo/web:1")
		var stdout, stderr bytes.Buffer
		require.NoError(t, b.ExecStream(t.Context(), id, []string{"cat", "/ok"}, &stdout, &stderr))
		require.Equal(t, "fine", stdout.String())
		require.Equal(t, "hm", stderr.String())

		var exit utilexec.ExitError
		require.ErrorAs(t, b.ExecStream(t.Context(), id, []string{"check"}, nil, nil), &exit)
		require.Equal(t, 3, exit.ExitStatus())
		require.ErrorContains(t, exit, "command terminated with exit code 3")

		begin := time.Now()
		require.NoError(t, b.ExecStream(t.Context(), id, []string{"sleep"}, nil, nil))
		require.Equal(t, 5*time.Second, time.Since(begin))
		requireCode(t, codes.Unknown, b.ExecStream(t.Context(), id, []string{"missing"}, nil, nil))
		require.ErrorIs(t, b.ExecStream(t.Context(), id, []string{"cat", "/ok"}, broken{}, nil), errPipe)
	})
}

var errPipe = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errPipe }

func TestAttachStreamLastsAsLongAsTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		_, id := b.start("a", "demo/crash:1")
		var stdout bytes.Buffer
		begin := time.Now()
		require.NoError(t, b.AttachStream(t.Context(), id, &stdout))
		require.Equal(t, time.Second, time.Since(begin))
		require.Equal(t, "about to crash\n", stdout.String())
		requireCode(t, codes.Unknown, b.AttachStream(t.Context(), id, nil), "CONTAINER_EXITED")

		_, id = b.start("b", "demo/web:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		requireCode(t, codes.DeadlineExceeded, b.AttachStream(ctx, id, nil))
		require.ErrorIs(t, b.AttachStream(t.Context(), id, broken{}), errPipe)
		requireCode(t, codes.NotFound, b.AttachStream(t.Context(), "nobody", nil))
	})
}

func TestPortForwardStreamNeedsAPodThatListens(t *testing.T) {
	b := newBed(t)
	sandbox, _ := b.start("a", "demo/web:1")
	for id, want := range map[string]string{"nobody": "failed to find sandbox", sandbox: "connection refused"} {
		_, stream := net.Pipe()
		require.ErrorContains(t, b.PortForwardStream(t.Context(), id, 8080, stream), want)
		_, err := stream.Write([]byte("x"))
		require.Error(t, err, "the stream is closed")
	}
	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	_, stream := net.Pipe()
	require.ErrorContains(t, b.PortForwardStream(t.Context(), sandbox, 8080, stream), "is not running")
}
