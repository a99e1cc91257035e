package fakecri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	utilexec "k8s.io/utils/exec"
)

// Streamer creates the URLs that Exec, Attach and PortForward return. It is a part of the
// Server interface of k8s.io/cri-streaming, which this package does not link. The caller
// starts and stops the server, and the server must call [Node.ExecStream],
// [Node.AttachStream] and [Node.PortForwardStream].
type Streamer interface {
	GetExec(request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	GetAttach(request *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	GetPortForward(request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
}

// addStreamer calls Config.Streamer, if it is set.
func (n *Node) addStreamer() error {
	if n.cfg.Streamer == nil {
		return nil
	}
	s, err := n.cfg.Streamer(n)
	if err != nil {
		return fmt.Errorf("create the streamer: %w", err)
	}
	n.streamer = s
	return nil
}

// Exec returns the URL of a stream; see Config.Streamer.
func (n *Node) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	id := request.GetContainerId()
	if err := n.admitStream(ctx, "Exec", id, n.checkRunning); err != nil {
		return nil, err
	}
	return n.streamer.GetExec(request)
}

// Attach returns the URL of a stream; see Config.Streamer.
func (n *Node) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	if err := n.admitStream(ctx, "Attach", req.GetContainerId(), n.checkRunning); err != nil {
		return nil, err
	}
	return n.streamer.GetAttach(req)
}

// PortForward returns the URL of a stream; see Config.Streamer.
func (n *Node) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	if err := n.admitStream(ctx, "PortForward", request.GetPodSandboxId(), n.checkReady); err != nil {
		return nil, err
	}
	return n.streamer.GetPortForward(request)
}

// admitStream returns an error if no stream is possible for the object with this id.
func (n *Node) admitStream(ctx context.Context, method, id string, check func(id string) error) error {
	if err := n.enter(ctx, method, id, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	if n.streamer == nil {
		return grpcstatus.Errorf(codes.Unimplemented, "method %s not implemented", method)
	}
	return check(id)
}

// checkRunning returns an error if the container does not run.
func (n *Node) checkRunning(id string) error {
	c, ok := n.containers.byID[id]
	if !ok {
		return errNotFound("failed to find container %q in store: not found", id)
	}
	if !c.running() {
		return errUnknown("container is in %v state", c.state)
	}
	return nil
}

// checkReady returns an error if the sandbox is not ready.
func (n *Node) checkReady(id string) error {
	s, ok := n.sandboxes.byID[id]
	if !ok {
		return errNotFound("failed to find sandbox %q in store: not found", id)
	}
	if !s.ready {
		return errUnknown("sandbox container %q is not running", id)
	}
	return nil
}

// Stdio contains the streams that a client connects with a command or a container. A stream that
// is nil is not connected.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// NextSize waits for the next size of the client's terminal and returns it. It returns false
	// when no size follows, or ctx is done.
	NextSize func(ctx context.Context) (TerminalSize, bool)
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Columns, Rows uint16 }

// ExecStream runs a command like ExecSync, without a timeout, and writes the output when
// the command ends. If the exit code is not zero, the error is a [utilexec.CodeExitError].
// Only a command with [Exec].Echo reads from the client. When ExecStream returns, a read of
// Stdin or a write to Stdout may still be in progress. This read or write ends when the
// caller closes the connection of the client.
func (n *Node) ExecStream(ctx context.Context, containerID string, cmd []string, client Stdio) error {
	answer, err := n.runExec(ctx, containerID, cmd, 0)
	if err != nil {
		return err
	}
	err = errors.Join(writeTo(client.Stdout, answer.Stdout), writeTo(client.Stderr, answer.Stderr))
	if err == nil && answer.Echo {
		answer.ExitCode, err = n.echo(ctx, containerID, client, answer.ExitCode)
	}
	if err == nil && answer.ExitCode != 0 {
		err = utilexec.CodeExitError{
			Err: fmt.Errorf("command terminated with exit code %d", answer.ExitCode), Code: int(answer.ExitCode),
		}
	}
	return err
}

// echo runs the part of a command that [Exec].Echo describes. It returns the exit code of the
// command: the given exit code, or the exit code of SIGKILL if the container ends first.
func (n *Node) echo(ctx context.Context, containerID string, client Stdio, code int32) (int32, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := &sharedWriter{to: client.Stdout}
	var copied error
	ended := client.Stdin == nil // n.mu guards ended and copied
	if !ended {
		go func() {
			_, err := io.Copy(out, client.Stdin)
			n.mu.Lock()
			defer n.mu.Unlock()
			ended, copied = true, err
			n.broadcast()
		}()
	}
	if client.NextSize != nil {
		go out.writeSizes(ctx, client.NextSize)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.containers.byID[containerID]
	if err := n.await(ctx, func() bool { return ended || c == nil || !c.running() }); err != nil {
		return 0, err
	}
	if !ended {
		return exitKilled, nil
	}
	return code, copied
}

// sharedWriter is a writer for several goroutines. If the field to is nil, it discards the data.
type sharedWriter struct {
	mu sync.Mutex
	to io.Writer
}

// Write implements [io.Writer].
func (w *sharedWriter) Write(data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == nil {
		return len(data), nil
	}
	return w.to.Write(data)
}

// writeSizes writes a line for each size of a terminal until a write fails or no size follows.
func (w *sharedWriter) writeSizes(ctx context.Context, next func(context.Context) (TerminalSize, bool)) {
	for {
		size, ok := next(ctx)
		if !ok {
			return
		}
		if _, err := fmt.Fprintf(w, "%d %d\r\n", size.Rows, size.Columns); err != nil {
			return
		}
	}
}

// AttachStream writes the [Program].Log of a running container to the client's Stdout, and returns
// when the container has ended or ctx ends. It uses no other stream of the client.
func (n *Node) AttachStream(ctx context.Context, containerID string, client Stdio) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	if err := n.checkRunning(containerID); err != nil {
		return err
	}
	c := n.containers.byID[containerID]
	n.mu.Unlock()
	err := writeTo(client.Stdout, strings.Join(append(slices.Clone(c.program.Log), ""), "\n"))
	n.mu.Lock()
	if err != nil {
		return err
	}
	return n.await(ctx, func() bool { return !c.running() })
}

func writeTo(w io.Writer, text string) error {
	if w == nil || text == "" {
		return nil
	}
	_, err := io.WriteString(w, text)
	return err
}

// PortForwardStream connects a stream to a port of a pod with Config.Dial, and copies in both
// directions until the pod closes the connection or ctx ends. Then it closes the stream. Without
// Config.Listen the connection fails.
func (n *Node) PortForwardStream(ctx context.Context, podSandboxID string, port int32, stream io.ReadWriteCloser) error {
	n.mu.Lock()
	n.advance()
	err := n.checkReady(podSandboxID)
	host := hostAddress
	if err == nil && n.sandboxes.byID[podSandboxID].ip != "" {
		host = n.sandboxes.byID[podSandboxID].ip
	}
	n.mu.Unlock()
	if err == nil && n.cfg.Listen == nil {
		err = errUnknown("failed to connect to port %d of pod %q: connection refused", port, podSandboxID)
	}
	if err != nil {
		return errors.Join(err, stream.Close())
	}
	conn, err := n.cfg.Dial(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return errors.Join(errUnknown("failed to connect to port %d of pod %q: %v", port, podSandboxID, err), stream.Close())
	}
	return pipe(ctx, conn, stream)
}

// pipe copies in both directions until the pod closes its connection or ctx ends. Then it
// closes both connections. If the client sends no more data, pipe closes the pod's
// connection for writing, if the connection supports this. The pod may still respond.
func pipe(ctx context.Context, pod net.Conn, client io.ReadWriteCloser) error {
	var copies sync.WaitGroup
	answered := make(chan struct{})
	copies.Go(func() {
		_, _ = io.Copy(pod, client) // ends when pod or client is closed
		if half, ok := pod.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	})
	copies.Go(func() {
		defer close(answered)
		_, _ = io.Copy(client, pod)
	})
	select {
	case <-answered:
	case <-ctx.Done():
	}
	err := errors.Join(pod.Close(), client.Close())
	copies.Wait()
	return err
}
