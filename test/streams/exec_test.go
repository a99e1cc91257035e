package streams_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
)

// The sizes of the tests on fakecri. The tests on containerd use larger sizes.
const (
	fewBytes    = 8 << 20
	fewExecs    = 50
	fewForwards = 20
)

func TestExec_OutputAndExitCode(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, b.outputAndExitCode)
}

func (b *bed) outputAndExitCode(t *testing.T, p protocol) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var out, errs text
	require.NoError(t, b.exec(ctx, p, success, stdio{out: &out, err: &errs}))
	require.Empty(t, out.String()+errs.String())

	err := b.exec(ctx, p, failure, stdio{out: &out, err: &errs})
	var exit utilexec.CodeExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.Code)
	require.Equal(t, "out\n", out.String())
	require.Equal(t, "err\n", errs.String())

	out.Reset()
	require.ErrorAs(t, b.exec(ctx, p, failure, stdio{out: &out}), &exit)
	require.Equal(t, "out\n", out.String(), "standard error is not connected")

	require.Error(t, b.exec(ctx, p, "missing", stdio{out: &out}), "exec of a missing command must fail")
}

func TestExec_EndOfInputEndsTheCommand(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, b.endOfInput)
}

func (b *bed) endOfInput(t *testing.T, p protocol) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, input := range []string{"", "one line\n", strings.Repeat("many lines\n", 10_000)} {
		var out text
		require.NoError(t, b.exec(ctx, p, cat, stdio{in: strings.NewReader(input), out: &out}))
		require.Equal(t, input, out.String())
	}
}

func TestExec_TerminalSize(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, b.terminalSize)
}

// queue is the size of a terminal that a test changes.
type queue chan remotecommand.TerminalSize

// Next implements remotecommand.TerminalSizeQueue.
func (q queue) Next() *remotecommand.TerminalSize {
	size, ok := <-q
	if !ok {
		return nil
	}
	return &size
}

func (b *bed) terminalSize(t *testing.T, p protocol) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	terminal := make(queue)
	in, typing := io.Pipe()
	out := &text{lines: make(chan string, 100)}
	ended := make(chan error, 1)
	go func() { ended <- b.exec(ctx, p, sizes, stdio{in: in, out: out, sizes: terminal}) }()
	for _, size := range []remotecommand.TerminalSize{{Width: 80, Height: 24}, {Width: 132, Height: 50}} {
		select {
		case terminal <- size:
		case err := <-ended:
			require.Fail(t, "the command ended", "%v", err)
		}
		want := map[uint16]string{80: "24 80", 132: "50 132"}[size.Width]
		for got := ""; got != want; {
			select {
			case got = <-out.lines:
			case err := <-ended:
				require.Fail(t, "the command ended", "%v, output: %s", err, out.String())
			case <-ctx.Done():
				require.Fail(t, "the command did not get the size", "output: %s", out.String())
			}
		}
	}
	close(terminal)
	_, err := typing.Write([]byte("\x04")) // the end of the input of a terminal
	require.NoError(t, err)
	require.NoError(t, typing.Close())
	require.NoError(t, <-ended)
}

// attachUntilTheEnd attaches to the container and waits for a line of its output. The returned
// channel gets the error of the client when the stream has ended.
func (b *bed) attachUntilTheEnd(t *testing.T, p protocol) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	out := &text{lines: make(chan string, 1000)}
	ended := make(chan error, 1)
	go func() { ended <- b.attach(ctx, p, stdio{out: out}) }()
	for got := ""; got != "hello"; {
		select {
		case got = <-out.lines:
		case err := <-ended:
			require.Fail(t, "the stream ended", "%v", err)
		case <-ctx.Done():
			require.Fail(t, "no output")
		}
	}
	return ended
}

func TestExec_ManyBytes(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, func(t *testing.T, p protocol) {
		t.Helper()
		b.manyBytes(t, p, fewBytes)
	})
}

// manyBytes sends random bytes through the input and the output of a command.
func (b *bed) manyBytes(t *testing.T, p protocol, size int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	sent, received := sha256.New(), sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), sent)
	counted := &counter{to: received}
	began := time.Now()
	require.NoError(t, b.exec(ctx, p, cat, stdio{in: in, out: counted}))
	t.Logf("%d MiB in %v", size>>20, time.Since(began).Round(time.Millisecond))
	require.Equal(t, size, counted.bytes)
	require.Equal(t, sum(sent), sum(received))
}

func sum(h hash.Hash) string { return string(h.Sum(nil)) }

// counter counts the bytes that are written.
type counter struct {
	to    io.Writer
	bytes int64
}

// Write implements io.Writer.
func (c *counter) Write(data []byte) (int, error) {
	c.bytes += int64(len(data))
	return c.to.Write(data)
}

func TestExec_ManyCommands(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, func(t *testing.T, p protocol) {
		t.Helper()
		b.manyCommands(t, p, fewExecs)
	})
}

// manyCommands runs short commands, four at a time.
func (b *bed) manyCommands(t *testing.T, p protocol, count int) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(4)
	began := time.Now()
	for range count {
		group.Go(func() error {
			var out text
			return b.exec(ctx, p, success, stdio{out: &out})
		})
	}
	require.NoError(t, group.Wait())
	t.Logf("%d commands in %v", count, time.Since(began).Round(time.Millisecond))
}

func TestPortForward_ManyConnections(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, func(t *testing.T, p protocol) {
		t.Helper()
		b.manyForwards(t, p, fewForwards)
	})
}

// manyForwards opens port-forwards, and sends a request through each of them while all are open.
func (b *bed) manyForwards(t *testing.T, p protocol, count int) {
	t.Helper()
	forwards := make([]*forward, count)
	opened, ctx := errgroup.WithContext(t.Context())
	for i := range forwards {
		opened.Go(func() (err error) {
			forwards[i], err = b.startForward(t, p)
			return err
		})
	}
	err := opened.Wait()
	defer func() {
		for _, f := range forwards {
			if f != nil {
				f.stop()
			}
		}
	}()
	require.NoError(t, err)
	asked, ctx := errgroup.WithContext(context.WithoutCancel(ctx))
	for _, f := range forwards {
		asked.Go(func() error {
			code, err := f.get(ctx)
			if err == nil && code != 200 {
				err = errors.New("the pod did not answer with 200")
			}
			return err
		})
	}
	require.NoError(t, asked.Wait())
}

func TestStreams_EndWithThePod(t *testing.T) {
	t.Parallel()
	newFakeBed(t).endWithThePod(t)
}

// endWithThePod opens streams over both protocols and kills the pod.
func (b *bed) endWithThePod(t *testing.T) {
	t.Helper()
	var attached, execs, forwards []<-chan error
	for _, p := range protocols() {
		attached = append(attached, b.attachUntilTheEnd(t, p))
		exec, forward := b.openStreams(t, p)
		execs, forwards = append(execs, exec), append(forwards, forward)
	}
	b.killPod(t)
	began := time.Now()
	for i, p := range protocols() {
		require.NoError(t, <-attached[i], p)
		var exit utilexec.CodeExitError
		require.ErrorAs(t, <-execs[i], &exit, p)
		require.Equal(t, 137, exit.Code, p)
		t.Logf("error of the port-forward over %s: %v", p, <-forwards[i])
	}
	t.Logf("all streams ended %v after the pod was removed", time.Since(began).Round(time.Millisecond))
}

func TestStreams_EndWithTheRuntime(t *testing.T) {
	t.Parallel()
	newFakeBed(t).endWithTheRuntime(t)
}

// endWithTheRuntime opens streams over both protocols and kills the runtime.
func (b *bed) endWithTheRuntime(t *testing.T) {
	t.Helper()
	var execs, forwards []<-chan error
	for _, p := range protocols() {
		exec, forward := b.openStreams(t, p)
		execs, forwards = append(execs, exec), append(forwards, forward)
	}
	b.killRuntime(t)
	for i, p := range protocols() {
		err := <-execs[i]
		t.Logf("error of the client over %s: %v", p, err)
		if p == overWebSocket { // over SPDY, client-go reports a lost connection as a success
			require.ErrorContains(t, err, "the runtime closed the stream before the command ended")
		}
		t.Logf("error of the port-forward over %s: %v", p, <-forwards[i])
	}
}

// openStreams opens an exec and a port-forward that last, and returns when both work.
func (b *bed) openStreams(t *testing.T, p protocol) (execEnded, forwardEnded <-chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	f := b.forward(t, p)
	code, err := f.get(ctx)
	require.NoError(t, err)
	require.Equal(t, 200, code)
	in, typing := io.Pipe()
	t.Cleanup(func() { _ = typing.Close() })
	out := &text{lines: make(chan string, 100)}
	ended := make(chan error, 1)
	go func() { ended <- b.exec(ctx, p, cat, stdio{in: in, out: out}) }()
	_, err = typing.Write([]byte("hello\n"))
	require.NoError(t, err)
	select {
	case <-out.lines:
	case err := <-ended:
		require.Fail(t, "the command ended", "%v", err)
	}
	lost := make(chan error, 1)
	go func() {
		err := <-f.ended
		f.ended <- err
		lost <- err
	}()
	return ended, lost
}

func TestExec_ClientThatStopsReading(t *testing.T) {
	t.Parallel()
	b := newFakeBed(t)
	bothProtocols(t, func(t *testing.T, p protocol) {
		t.Helper()
		b.stopReading(t, p, func() {})
	})
}

// stopReading runs a command that writes more than the client reads. blocked is called when no
// more bytes move. Then the client disconnects, and the test requires that its call returns.
func (b *bed) stopReading(t *testing.T, p protocol, blocked func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stuck := &stuckWriter{until: make(chan struct{})}
	input := &endless{moved: make(chan struct{}, 1)}
	ended := make(chan error, 1)
	go func() { ended <- b.exec(ctx, p, cat, stdio{in: input, out: stuck}) }()
	select {
	case <-input.moved:
	case err := <-ended:
		require.Fail(t, "the command ended", "%v", err)
	}
	for moving := true; moving; {
		select {
		case <-input.moved:
		case err := <-ended:
			require.Fail(t, "the command ended", "%v", err)
		case <-time.After(time.Second):
			moving = false
		}
	}
	t.Logf("the client sent %d KiB before it blocked", input.total()>>10)
	require.Positive(t, input.total())
	require.Less(t, input.total(), int64(64<<20))
	blocked()
	cancel()
	close(stuck.until)
	t.Logf("error of the client that disconnected: %v", <-ended)
}

// stuckWriter is the output of a client that stops reading.
type stuckWriter struct{ until chan struct{} }

// Write implements io.Writer.
func (w *stuckWriter) Write(data []byte) (int, error) {
	<-w.until
	return len(data), nil
}

// endless is an input without an end. It reports each read.
type endless struct {
	moved chan struct{}
	mu    sync.Mutex
	bytes int64
}

// Read implements io.Reader.
func (e *endless) Read(data []byte) (int, error) {
	e.mu.Lock()
	e.bytes += int64(len(data))
	e.mu.Unlock()
	select {
	case e.moved <- struct{}{}:
	default:
	}
	return len(data), nil
}

func (e *endless) total() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.bytes
}
