package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
)

// sharedEvents is the event stream of containerd 1.7: all streams receive from one channel.
// If the client of a stream has disconnected, the stream notices it only when it sends the
// next event, which is lost.
type sharedEvents chan *runtimeapi.ContainerEventResponse

func (s sharedEvents) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	opened func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	opened(nil)
	received := make(chan *runtimeapi.ContainerEventResponse)
	go func() {
		for e := range s {
			select {
			case received <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case e := <-received:
			events <- e
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestGenerator_FirstDeathAfterARestartOnContainerd17(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(sharedEvents)
		defer close(events)
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.Events = events })
		r.node.container("a", "a1", runs)
		r.node.container("a", "a2", runs)
		start(t, r)() // the stream of this generator stays open in the runtime

		defer start(t, r)()
		time.Sleep(stretch + 10*time.Second) // far from a global relist every 30 s
		r.take()
		dies := func(id string, within time.Duration) {
			t.Helper()
			r.node.container("a", id, exited)
			events <- eventOf("a", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
			time.Sleep(within)
			synctest.Wait()
			require.Equal(t, []string{"a ContainerDied " + id}, r.take())
		}
		dies("a1", time.Second) // the previous stream consumes the event
		dies("a2", 10*time.Millisecond)
		time.Sleep(stretch)
		require.Equal(t, 30*time.Second, r.Stats().Period)
	})
}

func TestGenerator_PeriodStaysUntilAStreamHasSentAnEvent(t *testing.T) {
	for name, event := range map[string]*runtimeapi.ContainerEventResponse{
		"of a pod":        eventOf("a", runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT),
		"of some pod":     {ContainerId: "whatever"},
		"of an older pod": eventOf("b", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				w.silent = true
				r := newRig(t, clock.RealClock{}, hinted(w))
				r.node.container("a", "a1", runs)
				defer start(t, r)()
				for range 2 {
					time.Sleep(time.Hour)
					require.True(t, r.Stats().Streaming)
					require.Equal(t, time.Second, r.Stats().Period)
					w.events <- event
					time.Sleep(stretch)
					require.Equal(t, 30*time.Second, r.Stats().Period)
					w.broken <- errRuntime // the next stream must send an event before the generator relies on it
				}
			})
		})
	}
}
