package pleg_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
)

// Any CRI client can be used.
var (
	_ pleg.EventSource = cri.RuntimeService(nil)
	_ pleg.Lister      = cri.RuntimeService(nil)
)

// wire is an event stream. Like the usual client, it sends events even if the context is done.
// Unless it is silent, it sends an event when it is opened, like a runtime that buffers events
// for the next stream.
type wire struct {
	events chan *runtimeapi.ContainerEventResponse
	broken chan error
	silent bool

	mu     sync.Mutex
	refuse error
	opens  int
}

func newWire() *wire {
	return &wire{events: make(chan *runtimeapi.ContainerEventResponse, 100_000), broken: make(chan error)}
}

func (w *wire) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	opened func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	w.mu.Lock()
	w.opens++
	err := w.refuse
	w.mu.Unlock()
	if err != nil {
		return err
	}
	opened(nil)
	if !w.silent {
		events <- eventOf("kept", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	for {
		select {
		case e := <-w.events:
			events <- e
		case err := <-w.broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *wire) refuseWith(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse = err
}

func (w *wire) opened() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.opens
}

// tell sends an event about the pod.
func (w *wire) tell(uid types.UID) {
	w.tellOf(uid, "whatever", runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

func (w *wire) tellOf(uid types.UID, id string, kind runtimeapi.ContainerEventType) {
	e := eventOf(uid, kind)
	e.ContainerId = id
	w.events <- e
}

func eventOf(uid types.UID, kind runtimeapi.ContainerEventType) *runtimeapi.ContainerEventResponse {
	return &runtimeapi.ContainerEventResponse{
		ContainerId: "whatever", CreatedAt: -7, ContainerEventType: kind,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Labels: labelsOf(uid)},
	}
}

func hinted(w *wire) func(*pleg.Config) { return func(c *pleg.Config) { c.Events = w } }

// stretch is long enough for the period to reach MaxPeriod. It does not end at the time of a
// relist.
const stretch = 130*time.Second + 345*time.Millisecond

func TestHint_ServedWithinMilliseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		require.Equal(t, 30*time.Second, r.Stats().Period)
		r.take()
		before := r.Stats()

		r.node.container("a", "a1", exited)
		for range 50 {
			w.tell("a")
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"a ContainerDied a1"}, r.take())
		status, err := r.cache.Get("a")
		require.NoError(t, err)
		require.False(t, status.Running())
		after := r.Stats()
		require.Equal(t, uint64(1), after.PodRelists-before.PodRelists, "hints of one pod must be merged")
		require.Equal(t, before.Relists, after.Relists)
		require.Equal(t, uint64(50), after.Hints-before.Hints)

		time.Sleep(time.Hour)
		require.Zero(t, r.Stats().MissedHints, "global relists must find no changes")
		require.Equal(t, 30*time.Second, r.Stats().Period)
	})
}

// With a lister, one list serves two or more pods.
func TestHint_ListerServesTwoPodsWithOneList(t *testing.T) {
	for name, own := range map[string]bool{"the runtime's": false, "another": true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, clock.RealClock{}, hinted(newWire()), func(c *pleg.Config) {
				if own {
					c.Lister = c.Runtime
				}
			})
			r.node.container("a", "a1", runs)
			r.node.container("b", "b1", runs)
			defer start(t, r)()
			time.Sleep(stretch)
			r.take()
			looks := func(uids ...types.UID) (all, single uint64) {
				before := r.Stats()
				for _, uid := range uids {
					r.node.container(uid, string(uid)+"1", exited)
					r.RequestRelist(uid)
				}
				synctest.Wait()
				require.Len(t, r.take(), len(uids), name)
				after := r.Stats()
				return after.Relists - before.Relists, after.PodRelists - before.PodRelists
			}
			all, single := looks("a", "b")
			if own {
				require.Equal(t, [2]uint64{1, 0}, [2]uint64{all, single})
			} else {
				require.Equal(t, [2]uint64{0, 2}, [2]uint64{all, single})
			}
			r.node.container("a", "a1", runs)
			r.RequestRelist("a")
			synctest.Wait()
			require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
			all, single = looks("a")
			require.Equal(t, [2]uint64{0, 1}, [2]uint64{all, single}, "a single pod must be relisted alone")
		})
	}
}

// Starts are actions of the agent itself. The agent requests a relist after its actions. That
// relist serves the hints that arrived in the meantime.
func TestHint_StartsWaitForTheAgentsOwnRelist(t *testing.T) {
	for name, c := range map[string]struct {
		kind          runtimeapi.ContainerEventType
		id            string
		after, shown  time.Duration
		asks, endsToo bool
	}{
		"created by a stranger":   {kind: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, shown: time.Second},
		"started by a stranger":   {kind: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, shown: time.Second},
		"deleted":                 {kind: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, id: "a1", shown: time.Second},
		"of a type not yet known": {kind: 77, shown: 5 * time.Millisecond},
		"started by the agent":    {kind: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, after: 30 * time.Millisecond, asks: true, shown: 30 * time.Millisecond},
		"started, and then ended": {kind: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, after: 30 * time.Millisecond, endsToo: true, shown: 35 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				r := newRig(t, clock.RealClock{}, hinted(w))
				r.node.container("a", "a1", exited)
				defer start(t, r)()
				time.Sleep(stretch + 10*time.Second) // the next global relist is not due soon
				r.take()
				before := r.Stats()
				r.node.container("a", "a2", runs)
				w.tellOf("a", c.id, c.kind)
				time.Sleep(c.after)
				if c.asks {
					r.RequestRelist("a")
				}
				if c.endsToo {
					w.tell("a")
				}
				if wait := c.shown - c.after - time.Millisecond; wait > 0 {
					time.Sleep(wait)
					require.Empty(t, r.take())
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				require.Equal(t, []string{"a ContainerStarted a2"}, r.take())
				require.Equal(t, before.Relists, r.Stats().Relists)
				time.Sleep(time.Minute)
				after := r.Stats()
				require.Equal(t, uint64(1), after.PodRelists-before.PodRelists, "one relist must serve all hints")
				require.Zero(t, after.MissedHints)
			})
		})
	}
}

// The hints of the start and the end of a pod arrive after the agent's own relist.
func TestGenerator_EventsOfListedChangesNeedNoList(t *testing.T) {
	const (
		createdEvent = runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT
		startedEvent = runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
		stoppedEvent = runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT
		deletedEvent = runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	)
	for _, test := range []struct {
		id     string
		kind   runtimeapi.ContainerEventType
		isNews bool
	}{
		{"ready", createdEvent, false},
		{"ready", startedEvent, false},
		{"ready", stoppedEvent, true},
		{"ready", deletedEvent, true},
		{"runs", createdEvent, false},
		{"runs", startedEvent, false},
		{"runs", stoppedEvent, true},
		{"runs", deletedEvent, true},
		{"exited", createdEvent, false},
		{"exited", startedEvent, true},
		{"exited", stoppedEvent, false},
		{"exited", deletedEvent, true},
		{"created", createdEvent, false},
		{"created", startedEvent, true},
		{"created", stoppedEvent, true},
		{"created", deletedEvent, true},
		{"missing", createdEvent, true},
		{"missing", startedEvent, true},
		{"missing", stoppedEvent, true},
		{"missing", deletedEvent, false},
		{"", deletedEvent, true},
		{"runs", 77, true},
	} {
		t.Run(fmt.Sprintf("%s/%v", test.id, test.kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				r := newRig(t, clock.RealClock{}, hinted(w))
				r.node.sandbox("a", "ready", ready)
				r.node.container("a", "runs", runs)
				r.node.container("a", "exited", exited)
				r.node.container("a", "created", created)
				defer start(t, r)()
				time.Sleep(stretch)
				before := r.node.listed()
				w.tellOf("a", test.id, test.kind)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				require.Equal(t, test.isNews, r.node.listed() > before)
				time.Sleep(time.Minute)
				require.Equal(t, 30*time.Second, r.Stats().Period)
			})
		})
	}
}

// The change of an event may be unknown when the event arrives, and listed when the hint is
// due.
func TestGenerator_OwnRelistServesTheEventsThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.sandbox("a", "s", notReady)
		r.node.container("a", "a1", exited)
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()
		before := r.node.listed()
		w.tellOf("a", "a1", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		w.events <- &runtimeapi.ContainerEventResponse{ContainerId: "s", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT}
		synctest.Wait()
		r.node.remove("a1", "s")
		require.NoError(t, r.RelistPod(t.Context(), "a"))
		w.tellOf("a", "a1", runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
		time.Sleep(2 * time.Second)
		require.Equal(t, before+1, r.node.listed())
		require.Equal(t, []string{"a ContainerRemoved s", "a ContainerRemoved a1"}, r.take())
	})
}

// The generator finds a removal that no relist has found, even if the event does not name the
// pod.
func TestGenerator_RemovalOfAnUnnamedPodIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.sandbox("a", "s", notReady)
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()
		r.node.remove("s")
		w.events <- &runtimeapi.ContainerEventResponse{ContainerId: "s", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a ContainerRemoved s"}, r.take())
	})
}

func TestHint_EventContentsAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()
		before, err := r.cache.Get("a")
		require.NoError(t, err)
		for _, uid := range []types.UID{"a", "never heard of"} {
			w.events <- &runtimeapi.ContainerEventResponse{
				ContainerId: "a1", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, CreatedAt: 1 << 62,
				PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", State: notReady, Labels: labelsOf(uid)},
				ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "a1", State: exited}},
			}
		}
		w.events <- nil
		time.Sleep(time.Minute)
		require.Empty(t, r.take())
		after, err := r.cache.Get("a")
		require.NoError(t, err)
		require.Same(t, before, after)
		records, dirty, requests := r.Memory()
		require.Equal(t, []int{1, 0, 0}, []int{records, dirty, requests})
	})
}

// If the sandbox no longer exists, the runtime sends only an ID.
func TestHint_EventWithoutPodRelistsAllSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()
		before := r.Stats()
		r.node.remove("a1")
		for range 100 {
			w.events <- &runtimeapi.ContainerEventResponse{ContainerId: "a1"}
		}
		synctest.Wait()
		require.Equal(t, []string{"a ContainerDied a1", "a ContainerRemoved a1"}, r.take())
		for range 100 { // a flood of events causes no more relists than Period
			w.events <- &runtimeapi.ContainerEventResponse{ContainerId: "a1"}
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, r.Stats().Relists-before.Relists, uint64(11))
		time.Sleep(time.Minute)
		require.Zero(t, r.Stats().MissedHints)
	})
}

func TestHint_IgnoresPodsOfOtherAgents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w), func(c *pleg.Config) {
			c.LabelSelector = map[string]string{crilabels.Agent: "me"}
		})
		defer start(t, r)()
		time.Sleep(stretch)
		before := r.node.listed()
		w.tell("theirs")
		time.Sleep(500 * time.Millisecond)
		require.Equal(t, before, r.node.listed())
	})
}

// The kubelet gives up after five failures, in a quarter of a second.
func TestStream_ReopenedWithoutLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.refuseWith(errRuntime)
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		stop := start(t, r)
		time.Sleep(time.Hour)
		require.False(t, r.Stats().Streaming)
		require.Equal(t, time.Second, r.Stats().Period)
		require.Greater(t, w.opened(), 120, "the stream must be reopened every 30 s")
		require.Less(t, w.opened(), 260, "the pauses must have jitter")
		w.refuseWith(nil)
		time.Sleep(30*time.Second + stretch)
		require.True(t, r.Stats().Streaming)
		require.Zero(t, r.Stats().Reconnects)
		require.Equal(t, 30*time.Second, r.Stats().Period)

		opens := w.opened()
		w.broken <- nil // the stream ends without an error, as when the runtime restarts
		synctest.Wait()
		require.Equal(t, time.Second, r.Stats().Period, "the period must become short at once")
		r.node.container("a", "a1", exited)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Contains(t, r.take(), "a ContainerDied a1", "the change must be found without a hint")
		require.Equal(t, opens+1, w.opened(), "the first attempt must be fast, because the last stream lasted")
		require.Equal(t, uint64(1), r.Stats().Reconnects)
		time.Sleep(stretch)
		require.Zero(t, r.Stats().MissedHints, "without a stream, changes must not count as missed hints")
		require.Equal(t, 30*time.Second, r.Stats().Period)
		stop()
	})
}

// odd is an event source with the given behavior.
type odd func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	opened func(runtimeapi.RuntimeService_GetContainerEventsClient)) error

func (o odd) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	opened func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	return o(ctx, events, opened)
}

func TestRun_MissingStreamIsNoWarning(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		want, not string
	}{
		"unimplemented": {
			fmt.Errorf("events: %w", grpcstatus.Error(codes.Unimplemented, "unknown method")),
			`level=INFO msg="container runtime does not support the event stream, will relist all pods every period" period=1s`, "level=WARN",
		},
		"unavailable": {
			grpcstatus.Error(codes.Unavailable, "no connection"), `level=WARN msg="container event stream ended, will reopen it and relist all pods every period until then" period=1s`, "does not support",
		},
		"another error": {errors.New("no events here"), `level=WARN msg="container event stream ended, will reopen it and relist all pods every period until then" period=1s`, "does not support"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				r := newRig(t, clock.RealClock{}, func(config *pleg.Config) {
					config.Logger = slog.New(slog.NewTextHandler(&out, nil))
					config.Events = odd(func(context.Context, chan *runtimeapi.ContainerEventResponse, func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
						return c.err
					})
				})
				stop := start(t, r)
				time.Sleep(10500 * time.Millisecond)
				stop()
				require.Equal(t, 1, strings.Count(out.String(), c.want), out.String())
				require.NotContains(t, out.String(), c.not)
			})
		})
	}
}

func TestStream_ToleratesOddClients(t *testing.T) {
	type opened = func(runtimeapi.RuntimeService_GetContainerEventsClient)
	for name, source := range map[string]odd{
		"returns at once": func(context.Context, chan *runtimeapi.ContainerEventResponse, opened) error { return nil },
		"opens and fails": func(_ context.Context, _ chan *runtimeapi.ContainerEventResponse, o opened) error {
			o(nil)
			return errors.New("no events here")
		},
		"closes its channel": func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, o opened) error {
			o(nil)
			close(events)
			<-ctx.Done()
			return nil
		},
		"sends after its context is done": func(ctx context.Context, events chan *runtimeapi.ContainerEventResponse, o opened) error {
			o(nil)
			<-ctx.Done()
			for range 100 {
				events <- &runtimeapi.ContainerEventResponse{}
			}
			return ctx.Err()
		},
		"calls opened repeatedly": func(ctx context.Context, _ chan *runtimeapi.ContainerEventResponse, o opened) error {
			for ctx.Err() == nil {
				o(nil)
				time.Sleep(time.Second)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.Events = source })
				stop := start(t, r)
				time.Sleep(stretch)
				require.LessOrEqual(t, r.Stats().Relists, uint64(135))
				r.node.container("a", "a1", runs)
				time.Sleep(30 * time.Second)
				synctest.Wait()
				require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
				stop()
			})
		})
	}
}

func TestRun_SecondOneOpensNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		stop := start(t, r)
		require.ErrorIs(t, r.Run(t.Context()), pleg.ErrRunning)
		require.Equal(t, 1, w.opened())
		stop()
		require.False(t, r.Stats().Streaming)
		stop = start(t, r)
		require.Equal(t, 2, w.opened())
		stop()
	})
}
