package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// protocol is the newest version of the protocol of exec and attach over SPDY.
const protocol = "v4.channel.k8s.io"

// Names in the status of a command that has failed. They are the kubelet's.
const (
	nonZeroExitCode = "NonZeroExitCode"
	exitCode        = "ExitCode"
)

// Target is the container of a stream.
type Target struct {
	Namespace, Pod, Container string
}

// Streams are the standard streams of a process. A nil stream is not connected. At least one stream
// must be set.
type Streams struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// TTY requests a terminal. A terminal has no separate Stderr, so Stderr must be nil.
	TTY bool
	// Sizes is the channel on which the caller sends the sizes of the terminal. It is used only
	// with TTY. Optional.
	Sizes <-chan Size
}

// Size is the size of a terminal in characters. Its JSON form is part of the protocol.
type Size struct {
	Width, Height uint16
}

// ExitError is the error of a command that has ended with an exit code other than 0.
type ExitError struct {
	Code int
}

// Error returns the message that kubectl prints.
func (e *ExitError) Error() string {
	return fmt.Sprintf("command terminated with exit code %d", e.Code)
}

// ErrLost is the error of a stream whose connection was closed before the process had ended. For
// example, the container, the runtime or the agent has ended.
var ErrLost = errors.New("the connection was closed before the process had ended")

// Exec runs a command in a container, and returns when the command has ended. The error is an
// [*ExitError] if the exit code of the command is not 0.
func Exec(ctx context.Context, c *api.Client, t Target, command []string, s Streams) error {
	query := s.query()
	query[corev1.ExecCommandParam] = command
	return s.run(ctx, c, path("exec", t.Namespace, t.Pod, t.Container), query)
}

// Attach connects to the main process of a container, and returns when the process has ended or
// ctx is done.
func Attach(ctx context.Context, c *api.Client, t Target, s Streams) error {
	return s.run(ctx, c, path("attach", t.Namespace, t.Pod, t.Container), s.query())
}

// path joins and escapes the parts of a path.
func path(parts ...string) string {
	var p strings.Builder
	for _, part := range parts {
		p.WriteString("/" + url.PathEscape(part))
	}
	return p.String()
}

// query returns the parameters of the request.
func (s Streams) query() url.Values {
	query := url.Values{}
	for name, set := range map[string]bool{
		corev1.ExecStdinParam: s.Stdin != nil, corev1.ExecStdoutParam: s.Stdout != nil,
		corev1.ExecStderrParam: s.Stderr != nil, corev1.ExecTTYParam: s.TTY,
	} {
		if set {
			query.Set(name, "1")
		}
	}
	return query
}

// run connects the streams with a process, and returns when the process has ended.
func (s Streams) run(ctx context.Context, c *api.Client, path string, query url.Values) error {
	if s.TTY && s.Stderr != nil {
		return errors.New("a terminal has no separate Stderr")
	}
	conn, err := dial(ctx, c, path, query, protocol)
	if err != nil {
		return err
	}
	defer conn.close()
	open := func(kind string) io.ReadWriteCloser {
		if err != nil {
			return nil
		}
		var opened io.ReadWriteCloser
		opened, err = conn.open(kind, nil)
		return opened
	}
	// The server starts the process when it has all streams.
	status := open(corev1.StreamTypeError)
	var stdin, stdout, stderr, resize io.ReadWriteCloser
	if s.Stdin != nil {
		stdin = open(corev1.StreamTypeStdin)
	}
	if s.Stdout != nil {
		stdout = open(corev1.StreamTypeStdout)
	}
	if s.Stderr != nil {
		stderr = open(corev1.StreamTypeStderr)
	}
	if s.TTY {
		resize = open(corev1.StreamTypeResize)
	}
	if err != nil {
		return cause(ctx, err)
	}
	if stdin != nil {
		go copyInput(stdin, s.Stdin) // not joined: a Read of a terminal can't be interrupted
	}
	var outputs sync.WaitGroup
	var errOut, errErr error
	if stdout != nil {
		outputs.Go(func() { _, errOut = io.Copy(s.Stdout, stdout) })
	}
	if stderr != nil {
		outputs.Go(func() { _, errErr = io.Copy(s.Stderr, stderr) })
	}
	ended := make(chan struct{})
	var resizes sync.WaitGroup
	if resize != nil && s.Sizes != nil {
		resizes.Go(func() { sendSizes(resize, s.Sizes, ended) })
	}
	outputs.Wait()
	if err = errors.Join(errOut, errErr); err == nil {
		err = readStatus(status)
	}
	close(ended)
	resizes.Wait()
	return cause(ctx, err)
}

// cause returns err. If ctx is done and err is not nil, err is only a consequence, so cause returns
// the cause of ctx instead.
func cause(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// copyInput sends the input, and then the end of the input. It ignores errors, because a broken
// connection also ends the other streams.
func copyInput(stdin io.WriteCloser, input io.Reader) {
	_, _ = io.Copy(stdin, input)
	_ = stdin.Close()
}

// sendSizes sends the sizes from a channel until the channel is closed, the process has ended, or a
// write fails.
func sendSizes(resize io.Writer, sizes <-chan Size, ended <-chan struct{}) {
	encoder := json.NewEncoder(resize)
	for {
		select {
		case size, ok := <-sizes:
			if !ok || encoder.Encode(size) != nil {
				return
			}
		case <-ended:
			return
		}
	}
}

// readStatus reads the status with which a process has ended.
func readStatus(stream io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(stream, 1<<20))
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return ErrLost
	}
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		return fmt.Errorf("read the status of the process: %w", err)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		return nil
	case status.Reason == nonZeroExitCode && status.Details != nil:
		for _, c := range status.Details.Causes {
			if code, err := strconv.Atoi(c.Message); c.Type == exitCode && err == nil {
				return &ExitError{Code: code}
			}
		}
	}
	return errors.New(status.Message)
}
