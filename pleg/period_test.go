package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestPeriod_LongWhileNoHintIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		r := newRig(t, clock.RealClock{}, hinted(newWire()), func(c *pleg.Config) {
			c.Observer.RelistStart = func() { at = append(at, time.Since(began).Round(time.Millisecond)/time.Millisecond) }
		})
		stop := start(t, r)
		time.Sleep(stretch)
		stop()
		require.Equal(t, []time.Duration{0, 100, 30100, 60100, 90100, 120100}, at)
	})
}

func TestPeriod_ShortAfterAMissedHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()

		r.node.container("a", "a1", exited) // without a hint
		time.Sleep(30 * time.Second)
		require.Equal(t, []string{"a ContainerDied a1"}, r.take(), "the global relist must find the change")
		require.Equal(t, time.Second, r.Stats().Period)
		time.Sleep(9 * time.Minute)
		w.tell("a")
		require.Equal(t, uint64(1), r.Stats().MissedHints)
		require.Equal(t, time.Second, r.Stats().Period)
		time.Sleep(2 * time.Minute)
		require.Equal(t, 30*time.Second, r.Stats().Period)
		require.Equal(t, uint64(1), r.Stats().MissedHints)
	})
}

func TestPeriod_LateHintIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		defer start(t, r)()
		time.Sleep(stretch)
		relists := r.Stats().Relists
		r.node.container("a", "a1", runs)
		for r.Stats().Relists == relists {
			time.Sleep(100 * time.Millisecond)
		}
		w.tell("a") // the hint arrives just after the list with the change
		time.Sleep(stretch)
		require.Zero(t, r.Stats().MissedHints)
		require.Equal(t, 30*time.Second, r.Stats().Period)
	})
}

func TestPeriod_HintDuringTheListIsNotMissed(t *testing.T) {
	for name, hint := range map[string]func(*wire){
		"of the pod":  func(w *wire) { w.tell("a") },
		"of some pod": func(w *wire) { w.events <- &runtimeapi.ContainerEventResponse{} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWire()
				r := newRig(t, clock.RealClock{}, hinted(w))
				defer start(t, r)()
				time.Sleep(stretch)
				unblock := r.node.block("list")
				time.Sleep(31 * time.Second)
				r.node.container("a", "a1", runs)
				hint(w)
				synctest.Wait()
				unblock()
				synctest.Wait()
				require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
				require.Equal(t, 30*time.Second, r.Stats().Period)
				time.Sleep(time.Minute)
				require.Zero(t, r.Stats().MissedHints)
			})
		})
	}
}

// A reader that waits for a newer status does not wait for the current period.
func TestPeriod_WaitingReaderShortensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{}, hinted(newWire()))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		for _, uid := range []types.UID{"a", "nobody", "a", "a"} {
			time.Sleep(time.Millisecond)
			took, _, err := await(t, r.cache, uid)
			require.NoError(t, err)
			require.LessOrEqual(t, took, time.Second)
		}
		time.Sleep(stretch)
		require.Equal(t, 30*time.Second, r.Stats().Period)
	})
}

func TestPeriod_UnfinishedPassShortensIt(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(*rig)
		want []string
	}{
		"a reinspection": {func(r *rig) { r.RequestReinspect("a") }, []string{"a PodSync"}},
		"a pass cut short": {func(r *rig) {
			r.node.container("a", "a1", exited)
			ctx, cancel := context.WithCancel(r.t.Context())
			unblock := r.node.block("a1")
			done := make(chan error, 1)
			go func() { done <- r.RelistPod(ctx, "a") }()
			synctest.Wait()
			cancel()
			require.ErrorIs(r.t, <-done, context.Canceled)
			unblock()
		}, []string{"a ContainerDied a1"}},
		"a request that failed": {func(r *rig) {
			r.node.failLists(errRuntime)
			r.node.container("a", "a1", exited)
			r.RequestRelist("a")
			synctest.Wait()
			r.node.failLists(nil)
		}, []string{"a ContainerDied a1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, clock.RealClock{}, hinted(newWire()))
				r.node.container("a", "a1", runs)
				defer start(t, r)()
				time.Sleep(stretch)
				r.take()
				test.do(r)
				time.Sleep(1001 * time.Millisecond)
				synctest.Wait()
				require.Equal(t, test.want, r.take())
			})
		})
	}
}

func TestPeriod_DoesNotDelayRetriesOfInspections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		r.node.container("a", "a1", runs)
		defer start(t, r)()
		time.Sleep(stretch)
		before := r.Stats()
		r.node.container("a", "a1", exited)
		r.node.fail("a1", errRuntime)
		w.tell("a")
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, r.Stats().FailedPods)
		r.node.takeAsked()
		began := time.Now()
		var tries []int
		for range 130 {
			time.Sleep(time.Second)
			synctest.Wait()
			if len(r.node.takeAsked()) > 0 {
				tries = append(tries, int(time.Since(began)/time.Second))
			}
		}
		require.Equal(t, []int{1, 3, 7, 15, 31, 63, 123}, tries)
		require.LessOrEqual(t, r.Stats().Relists-before.Relists, uint64(5), "a failing pod must not shorten the period")
		r.node.fail("a1", nil)
		time.Sleep(time.Minute)
		require.Zero(t, r.Stats().FailedPods)
		status, err := r.cache.Get("a")
		require.NoError(t, err)
		require.False(t, status.Stale)
	})
}

func TestHealthy_WithALongPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{}, hinted(newWire()), func(c *pleg.Config) {
			c.MaxPeriod, c.Threshold = time.Hour, 20*time.Second
		})
		stop := start(t, r)
		for range 3600 {
			time.Sleep(time.Second)
			require.NoError(t, r.Healthy())
		}
		require.Equal(t, 10*time.Second, r.Stats().Period)
		r.node.failLists(errRuntime)
		time.Sleep(21 * time.Second)
		require.ErrorIs(t, r.Healthy(), errRuntime)
		require.ErrorIs(t, r.Stats().ListError, errRuntime)
		require.Equal(t, time.Second, r.Stats().Period)
		r.node.failLists(nil)
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, r.Healthy())
		stop()
	})
}

// counting is a runtime that counts every call.
type counting struct {
	*node
	*wire
	calls int // accessed by Run's goroutine, and by the test after Wait
}

func (c *counting) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	c.count()
	return c.node.ListPodSandbox(ctx, f)
}

func (c *counting) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	c.count()
	return c.node.ListContainers(ctx, f)
}

func (c *counting) PodSandboxStatus(ctx context.Context, id string, v bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	c.count()
	return c.node.PodSandboxStatus(ctx, id, v)
}

func (c *counting) ContainerStatus(ctx context.Context, id string, v bool) (*runtimeapi.ContainerStatusResponse, error) {
	c.count()
	return c.node.ContainerStatus(ctx, id, v)
}

func (c *counting) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	opened func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	c.count()
	return c.wire.GetContainerEvents(ctx, events, opened)
}

func (c *counting) count() {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.calls++
}

// take returns the number of calls since its last call.
func (c *counting) take() int {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	calls := c.calls
	c.calls = 0
	return calls
}

// kubelet 1.36 without any pod: about 200 calls a minute for its lists. Here: 4, and
// 15 in the minute after the start.
func TestRun_IdleNodeNeedsFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &counting{node: newNode(), wire: newWire()}
		for i := range 100 {
			uid := types.UID(rune('一' + i))
			rt.sandbox(uid, "s"+string(uid), ready)
			rt.ips["s"+string(uid)] = []string{"10.0.0.1"}
			for _, name := range []string{"x", "y", "z"} {
				rt.container(uid, name+string(uid), runs)
			}
		}
		g, err := pleg.New(pleg.Config{
			Runtime: rt, Events: rt, Cache: podcache.New(), Handler: func(context.Context, pleg.Event) {},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		require.Equal(t, 2+400+1, rt.take(), "the start: all lists, each status once, and the stream")
		for _, most := range []int{14, 4, 4, 4} {
			time.Sleep(time.Minute)
			synctest.Wait()
			require.LessOrEqual(t, rt.take(), most, "calls per minute")
		}
		cancel()
		require.NoError(t, <-done)
	})
}
