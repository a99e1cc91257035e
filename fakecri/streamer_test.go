package fakecri_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
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
		require.NoError(t, b.ExecStream(t.Context(), id, []string{"cat", "/ok"}, fakecri.Stdio{Stdout: &stdout, Stderr: &stderr}))
		require.Equal(t, "fine", stdout.String())
		require.Equal(t, "hm", stderr.String())

		var exit utilexec.ExitError
		require.ErrorAs(t, b.ExecStream(t.Context(), id, []string{"check"}, fakecri.Stdio{}), &exit)
		require.Equal(t, 3, exit.ExitStatus())
		require.ErrorContains(t, exit, "command terminated with exit code 3")

		begin := time.Now()
		require.NoError(t, b.ExecStream(t.Context(), id, []string{"sleep"}, fakecri.Stdio{}))
		require.Equal(t, 5*time.Second, time.Since(begin))
		requireCode(t, codes.Unknown, b.ExecStream(t.Context(), id, []string{"missing"}, fakecri.Stdio{}))
		require.ErrorIs(t, b.ExecStream(t.Context(), id, []string{"cat", "/ok"}, fakecri.Stdio{Stdout: broken{}}), errPipe)
	})
}

var errPipe = errors.New("broken pipe")

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errPipe }

func TestAttachStream_EndsWithTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		_, id := b.start("a", "demo/crash:1")
		var stdout bytes.Buffer
		begin := time.Now()
		require.NoError(t, b.AttachStream(t.Context(), id, fakecri.Stdio{Stdout: &stdout}))
		require.Equal(t, time.Second, time.Since(begin))
		require.Equal(t, "about to crash\n", stdout.String())
		requireCode(t, codes.Unknown, b.AttachStream(t.Context(), id, fakecri.Stdio{}), "CONTAINER_EXITED")

		_, id = b.start("b", "demo/web:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		requireCode(t, codes.DeadlineExceeded, b.AttachStream(ctx, id, fakecri.Stdio{}))
		require.ErrorIs(t, b.AttachStream(t.Context(), id, fakecri.Stdio{Stdout: broken{}}), errPipe)
		requireCode(t, codes.NotFound, b.AttachStream(t.Context(), "nobody", fakecri.Stdio{}))
	})
}

func TestPortForwardStream_RequiresAListeningPod(t *testing.T) {
	b := newBed(t)
	sandbox, _ := b.start("a", "demo/web:1")
	for id, want := range map[string]string{"nobody": "failed to find sandbox", sandbox: "connection refused"} {
		_, stream := net.Pipe()
		require.ErrorContains(t, b.PortForwardStream(t.Context(), id, 8080, stream), want)
		_, err := stream.Write([]byte("x"))
		require.Error(t, err, "the stream must be closed")
	}
	require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
	_, stream := net.Pipe()
	require.ErrorContains(t, b.PortForwardStream(t.Context(), sandbox, 8080, stream), "is not running")
}

// terminal returns a function that returns the sizes one after the other.
func terminal(sizes ...fakecri.TerminalSize) func(context.Context) (fakecri.TerminalSize, bool) {
	return func(context.Context) (fakecri.TerminalSize, bool) {
		if len(sizes) == 0 {
			return fakecri.TerminalSize{}, false
		}
		next := sizes[0]
		sizes = sizes[1:]
		return next, true
	}
}

func TestExecStream_Echo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) {
			c.Images = append(c.Images, fakecri.Image{Name: "echo"})
			c.Programs["echo"] = fakecri.Program{Exec: map[string]fakecri.Exec{"cat": {Stdout: "begin ", Echo: true, ExitCode: 2}}}
		})
		_, id := b.start("a", "echo")
		cat := []string{"cat"}

		var exit utilexec.ExitError
		var stdout bytes.Buffer
		err := b.ExecStream(t.Context(), id, cat, fakecri.Stdio{Stdin: strings.NewReader("input"), Stdout: &stdout})
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 2, exit.ExitStatus())
		require.Equal(t, "begin input", stdout.String())
		require.ErrorAs(t, b.ExecStream(t.Context(), id, cat, fakecri.Stdio{Stdin: strings.NewReader("input")}), &exit)
		require.ErrorAs(t, b.ExecStream(t.Context(), id, cat, fakecri.Stdio{}), &exit, "without input, the command must fail")
		require.ErrorIs(t, b.ExecStream(t.Context(), id, cat, fakecri.Stdio{Stdin: strings.NewReader("x"), Stdout: broken{}}), errPipe)

		in, typing := io.Pipe()
		out, screen := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- b.ExecStream(t.Context(), id, cat, fakecri.Stdio{
				Stdin: in, Stdout: screen, NextSize: terminal(fakecri.TerminalSize{Columns: 80, Rows: 24}, fakecri.TerminalSize{Columns: 90, Rows: 30}),
			})
		}()
		want := "begin 24 80\r\n30 90\r\n"
		got := make([]byte, len(want))
		_, err = io.ReadFull(out, got)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
		require.NoError(t, b.Kill(id, 1))
		require.ErrorAs(t, <-ended, &exit)
		require.Equal(t, 137, exit.ExitStatus(), "the command must be killed with its container")
		require.NoError(t, errors.Join(typing.Close(), out.Close()))
	})
}

func TestExecStream_EchoEndsWithTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *fakecri.Config) {
			c.Images = append(c.Images, fakecri.Image{Name: "echo"})
			c.Programs["echo"] = fakecri.Program{Exec: map[string]fakecri.Exec{"cat": {Echo: true}}}
		})
		_, id := b.start("a", "echo")
		in, typing := io.Pipe()
		ended := make(chan error, 1)
		sizes := terminal(fakecri.TerminalSize{})
		go func() {
			ended <- b.ExecStream(t.Context(), id, []string{"cat"}, fakecri.Stdio{Stdin: in, Stdout: broken{}, NextSize: sizes})
		}()
		synctest.Wait()
		b.Restart(time.Second)
		requireCode(t, codes.Unavailable, <-ended)
		require.NoError(t, typing.Close())
	})
}

func TestPortForwardStream_DialsWithTheNetwork(t *testing.T) {
	network := new(fakecri.Network)
	b := newBed(t, func(c *fakecri.Config) { c.Listen, c.Dial = network.Listen, network.Dial })
	t.Cleanup(b.Shutdown)
	sandbox, _ := b.start("a", "demo/web:1")
	client, stream := net.Pipe()
	done := make(chan error, 1)
	go func() { done <- b.PortForwardStream(t.Context(), sandbox, 8080, stream) }()
	_, err := io.WriteString(client, "GET / HTTP/1.0\r\n\r\n")
	require.NoError(t, err)
	answer, err := io.ReadAll(client)
	require.NoError(t, err)
	require.Contains(t, string(answer), "200 OK")
	require.NoError(t, <-done)
	_, stream = net.Pipe()
	requireCode(t, codes.Unknown, b.PortForwardStream(t.Context(), sandbox, 1, stream), "failed to connect to port 1")
}
