package kubeletapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/podcache"
)

// endingPod is an agent whose pod ns/p terminates during a test.
type endingPod struct {
	*fake
	mu      sync.Mutex
	pod     agent.Pod
	changed chan struct{}
}

func (a *endingPod) Pods() []agent.Pod {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []agent.Pod{a.pod}
}

func (a *endingPod) Pod(types.UID) (agent.Pod, bool) {
	return a.Pods()[0], true
}

func (a *endingPod) Changes(ctx context.Context) <-chan struct{} {
	out := make(chan struct{})
	go func() {
		defer close(out)
		for {
			select {
			case <-a.changed:
			case <-ctx.Done():
				return
			}
			select {
			case out <- struct{}{}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// end changes the pod's state in the runtime.
func (a *endingPod) end(status *podcache.Status) {
	a.mu.Lock()
	a.pod.Runtime = status
	a.mu.Unlock()
	a.changed <- struct{}{}
}

// timerClock reports each new timer on a channel.
type timerClock struct {
	*testingclock.FakeClock
	timers chan struct{}
}

func (c *timerClock) NewTimer(d time.Duration) clock.Timer {
	defer func() { c.timers <- struct{}{} }()
	return c.FakeClock.NewTimer(d)
}

func TestStreams_EndWithTheContainerOrSandbox(t *testing.T) {
	t.Parallel()
	sandbox := func(state runtimeapi.PodSandboxState) []*runtimeapi.PodSandboxStatus {
		return []*runtimeapi.PodSandboxStatus{{Id: "sandbox", State: state}}
	}
	for path, ends := range map[string]bool{"/exec/ns/p/c?command=x&output=1": true, "/attach/ns/p/c?output=1": true, "/portForward/ns/p?port=80": false} {
		fakeClock := &timerClock{FakeClock: testingclock.NewFakeClock(at), timers: make(chan struct{}, 1)}
		a := &endingPod{fake: &fake{}, changed: make(chan struct{})}
		b := newStreamBed(t, &streamRuntime{hang: true}, func(c *kubeletapi.Config) {
			a.pod = c.Agent.Pods()[0]
			c.Agent, c.Clock = a, fakeClock
		})
		conn := b.open(path)
		a.end(a.pod.Runtime) // a change of another pod
		// The container has exited, and the sandbox is still ready.
		a.end(&podcache.Status{Sandboxes: sandbox(runtimeapi.PodSandboxState_SANDBOX_READY)})
		if !ends {
			require.NoError(t, conn.WriteMessage(2, []byte("still open")))
			_, _, err := conn.ReadMessage()
			require.NoError(t, err)
			require.Empty(t, fakeClock.timers)
			a.end(&podcache.Status{Sandboxes: sandbox(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)})
		}
		<-fakeClock.timers
		require.NoError(t, conn.WriteMessage(2, []byte("last words")))
		_, message, err := conn.ReadMessage()
		require.NoError(t, err, "the runtime must have time to close the stream itself")
		require.Equal(t, "last words", string(message))
		fakeClock.Step(2 * time.Second)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, _, err = conn.ReadMessage()
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, path)
		require.NoError(t, b.stop())
	}
}

func TestStreams_IdleTimeout(t *testing.T) {
	t.Parallel()
	short := func(c *kubeletapi.Config) { c.StreamIdleTimeout = 100 * time.Millisecond }
	unchanged := newStreamBed(t, &streamRuntime{hang: true}, short)
	translated, _ := newSPDYBed(t, 2, func(conn httpstream.Connection, _ map[string]httpstream.Stream) { <-conn.CloseChan() }, short)
	for protocol, b := range map[string]*streamBed{"v4.channel.k8s.io": unchanged, "v5.channel.k8s.io": translated} {
		conn, _, err := b.dialWith("/attach/ns/p/c?output=1", protocol)
		for i := 0; i < 20 && err != nil; i++ { // on a busy machine, the timeout may end the handshake
			conn, _, err = b.dialWith("/attach/ns/p/c?output=1", protocol)
		}
		require.NoError(t, err)
		_, err = receiveAll(t, conn)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, b.stop())
	}
}

// The command does not read its input, so nothing reads from the client any more. A deadline of the
// client's connection then has no effect.
func TestStreams_IdleTimeoutWhileNothingIsRead(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	b, _ := newSPDYBed(t, 2, func(_ httpstream.Connection, s map[string]httpstream.Stream) {
		<-release
		_, _ = io.Copy(io.Discard, s[corev1.StreamTypeStdin])
	}, func(c *kubeletapi.Config) { c.MaxStreams, c.StreamIdleTimeout = 1, time.Second })
	t.Cleanup(func() { close(release) })
	conn, _, err := b.dialWith("/exec/ns/p/c?command=x&input=1", "v5.channel.k8s.io")
	require.NoError(t, err)
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(500*time.Millisecond)))
	for err == nil {
		err = conn.WriteMessage(websocket.BinaryMessage, make([]byte, 64<<10))
	}
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "the runtime must not receive all data")
	require.NoError(t, conn.Close())
	await(t, "the end of the stream", func() bool {
		_, answer, err := b.dialWith("/exec/ns/p/c?command=x&input=1", "v5.channel.k8s.io")
		return err == nil || answer != nil && answer.StatusCode != http.StatusServiceUnavailable
	})
}

// TestIdleConn_ActivityExtendsTheTimeout uses an in-memory connection and the bubble's time.
func TestIdleConn_ActivityExtendsTheTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		conn := kubeletapi.NewIdleConn(near, time.Hour)
		defer conn.Close()
		began := time.Now()
		go func() { // the other side sends and receives a byte every 50 minutes
			one := make([]byte, 1)
			for range 3 {
				time.Sleep(50 * time.Minute)
				_, _ = far.Write(one)
				time.Sleep(50 * time.Minute)
				_, _ = io.ReadFull(far, one)
			}
		}()
		written := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = conn.Write([]byte("x"))
			}
			written <- err
		}()
		var err error
		for err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.ErrorIs(t, <-written, io.ErrClosedPipe)
		require.Equal(t, 6*time.Hour, time.Since(began), "the connection must end an hour after the last byte")
	})
}
