package fakecri_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// reader is a subscriber to container events in a bubble.
type reader struct {
	t      *testing.T
	ch     chan *runtimeapi.ContainerEventResponse
	cancel context.CancelFunc
	done   chan error
}

func subscribe(t *testing.T, n *fakecri.Node) *reader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{t: t, ch: make(chan *runtimeapi.ContainerEventResponse), cancel: cancel, done: make(chan error, 1)}
	established := false
	go func() {
		r.done <- n.GetContainerEvents(ctx, r.ch, func(runtimeapi.RuntimeService_GetContainerEventsClient) { established = true })
	}()
	synctest.Wait()
	require.True(t, established)
	return r
}

// read returns the unread events, one word per event: the name of the container
// or the pod, and the type of the event.
func (r *reader) read() []string {
	var got []string
	for {
		synctest.Wait()
		select {
		case e := <-r.ch:
			got = append(got, word(e))
		default:
			return got
		}
	}
}

func word(e *runtimeapi.ContainerEventResponse) string {
	name := "?"
	if e.GetContainerId() == e.GetPodSandboxStatus().GetId() {
		name = e.GetPodSandboxStatus().GetMetadata().GetName()
	}
	for _, c := range e.GetContainersStatuses() {
		if c.GetId() == e.GetContainerId() {
			name = c.GetMetadata().GetName()
		}
	}
	kind := strings.TrimSuffix(strings.TrimPrefix(e.GetContainerEventType().String(), "CONTAINER_"), "_EVENT")
	return name + ":" + strings.ToLower(kind)
}

func (r *reader) stop() {
	r.t.Helper()
	r.cancel()
	requireCode(r.t, codes.Canceled, <-r.done)
}

func realTime(c *fakecri.Config) { c.Clock = nil }

func TestEvents_ReportThePodLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		r := subscribe(t, b.Node)
		defer r.stop()
		sandbox, _ := b.start("pod", "demo/job:1")
		require.Equal(t, []string{"pod:created", "pod:started", "app:created", "app:started"}, r.read())

		time.Sleep(499 * time.Millisecond)
		require.Empty(t, r.read())
		time.Sleep(time.Millisecond) // no other call is needed: the subscriber has its own timer
		require.Equal(t, []string{"app:stopped"}, r.read())

		side := b.make(sandbox, "pod", "side", "demo/web:1")
		require.NoError(t, b.StartContainer(t.Context(), side))
		require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
		require.Equal(t, []string{"side:created", "side:started", "side:stopped", "pod:stopped"}, r.read())
		require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))
		require.Empty(t, r.read())

		// The events of a removed container do not contain its status.
		require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
		require.Equal(t, []string{"?:deleted", "?:deleted", "pod:deleted"}, r.read())
	})
}

func TestEvents_RemovalSendsStopsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		sandbox, _ := b.start("pod", "demo/web:1")
		r := subscribe(t, b.Node)
		defer r.stop()
		require.Len(t, r.read(), 4)
		require.NoError(t, b.RemovePodSandbox(t.Context(), sandbox))
		require.Equal(t, []string{"app:stopped", "pod:stopped", "?:deleted", "pod:deleted"}, r.read())
	})
}

func TestEvents_HaveThePodAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		sandbox, app := b.start("pod", "demo/web:1")
		require.NoError(t, b.StopPodSandbox(t.Context(), sandbox))

		r := subscribe(t, b.Node)
		defer r.stop()
		var states []string
		last := int64(0)
		for range 6 {
			e := <-r.ch
			require.Greater(t, e.GetCreatedAt(), last)
			last = e.GetCreatedAt()
			text := fmt.Sprint(e.GetPodSandboxStatus().GetState(), " ", e.GetPodSandboxStatus().GetNetwork().GetIp())
			for _, c := range e.GetContainersStatuses() {
				require.Equal(t, app, c.GetId())
				text += fmt.Sprint(" ", c.GetState(), " ", c.GetExitCode())
			}
			states = append(states, text)
		}
		require.Equal(t, []string{
			"SANDBOX_READY 10.88.0.2",
			"SANDBOX_READY 10.88.0.2",
			"SANDBOX_READY 10.88.0.2 CONTAINER_CREATED 0",
			"SANDBOX_READY 10.88.0.2 CONTAINER_RUNNING 0",
			"SANDBOX_READY 10.88.0.2 CONTAINER_EXITED 137",
			"SANDBOX_NOTREADY 10.88.0.2 CONTAINER_EXITED 137",
		}, states)
	})
}

func TestEvents_UnreadAreKeptForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		b.pod("old")
		time.Sleep(3 * time.Minute)
		b.pod("new")
		time.Sleep(2*time.Minute + time.Second)
		r := subscribe(t, b.Node)
		require.Equal(t, []string{"new:created", "new:started"}, r.read())
		r.stop()

		r = subscribe(t, b.Node) // the previous reader has read these events
		require.Empty(t, r.read())
		r.stop()
	})
}

func TestEvents_BacklogIsLimitedByAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		for i := range 100 {
			b.pod(fmt.Sprint("p", i))
			time.Sleep(time.Minute)
		}
		r := subscribe(t, b.Node)
		require.Len(t, r.read(), 10) // two events for each pod of the last five minutes
		r.stop()
	})
}

func TestEvents_UnreadEventsGoToTheNextReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		first := subscribe(t, b.Node)
		b.pod("a")
		require.Equal(t, "a:created", word(<-first.ch))
		first.stop()
		second := subscribe(t, b.Node)
		require.Equal(t, []string{"a:started"}, second.read())
		second.stop()
	})
}

func TestEvents_SlowSubscriberDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		b.pod("before")
		slow, quick := subscribe(t, b.Node), subscribe(t, b.Node)
		b.pod("a")
		b.pod("b")
		require.Equal(t, []string{"a:created", "a:started", "b:created", "b:started"}, quick.read())
		quick.stop()
		require.Equal(t, []string{"before:created", "before:started", "a:created", "a:started", "b:created", "b:started"}, slow.read())
		slow.stop()
	})
}

func TestEvents_VanishedSandboxHasNoStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, realTime)
		sandbox, app := b.start("pod", "demo/web:1")
		require.NoError(t, b.RemoveSilently(sandbox))
		r := subscribe(t, b.Node)
		require.Len(t, r.read(), 4)
		require.NoError(t, b.Kill(app, 137))
		e := <-r.ch
		require.Nil(t, e.GetPodSandboxStatus())
		require.Len(t, e.GetContainersStatuses(), 1)
		r.stop()
	})
}

func TestEvents_AreSentOnASteppedClock(t *testing.T) {
	b := newBed(t)
	b.start("pod", "demo/job:1")
	ctx, cancel := context.WithCancel(t.Context())
	ch, done := make(chan *runtimeapi.ContainerEventResponse), make(chan error, 1)
	go func() { done <- b.GetContainerEvents(ctx, ch, nil) }()
	for range 4 {
		<-ch
	}
	for {
		select {
		case e := <-ch:
			require.Equal(t, "app:stopped", word(e))
			cancel()
			requireCode(t, codes.Canceled, <-done)
			return
		default:
			b.clock.Step(10 * time.Millisecond)
		}
	}
}
