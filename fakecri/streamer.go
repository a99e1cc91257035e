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

// ExecStream runs a command like ExecSync, without a timeout, and writes the output when
// the command ends. If the exit code is not zero, the error is a [utilexec.CodeExitError].
// Standard input is not read. The writers may be nil.
func (n *Node) ExecStream(ctx context.Context, containerID string, cmd []string, stdout, stderr io.Writer) error {
	answer, err := n.runExec(ctx, containerID, cmd, 0)
	if err != nil {
		return err
	}
	err = errors.Join(writeTo(stdout, answer.Stdout), writeTo(stderr, answer.Stderr))
	if err == nil && answer.ExitCode != 0 {
		err = utilexec.CodeExitError{
			Err: fmt.Errorf("command terminated with exit code %d", answer.ExitCode), Code: int(answer.ExitCode),
		}
	}
	return err
}

// AttachStream writes the lines that the program of a running container logs to
// stdout, and returns when the container has ended or ctx ends.
func (n *Node) AttachStream(ctx context.Context, containerID string, stdout io.Writer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	if err := n.checkRunning(containerID); err != nil {
		return err
	}
	c := n.containers.byID[containerID]
	n.mu.Unlock()
	err := writeTo(stdout, strings.Join(append(slices.Clone(c.program.Log), ""), "\n"))
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

// PortForwardStream connects a stream to a port of a pod and copies in both directions
// until the pod closes the connection or ctx ends. Then it closes the stream. Without
// Config.Listen the connection fails. It also fails with the Listen of a [Network], because
// PortForwardStream dials a socket.
func (n *Node) PortForwardStream(ctx context.Context, podSandboxID string, port int32, stream io.ReadWriteCloser) error {
	n.mu.Lock()
	n.advance()
	err := n.checkReady(podSandboxID)
	host := "127.0.0.1"
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
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
	if err != nil {
		return errors.Join(errUnknown("failed to connect to port %d of pod %q: %v", port, podSandboxID, err), stream.Close())
	}
	return pipe(ctx, conn, stream)
}

// pipe copies in both directions until the pod closes its connection or ctx ends. Then it
// closes both connections. If only the client closes its connection, the pod is notified
// and may still respond.
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
