package pleg_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
)

func TestFlood_HintsOfManyPodsAreOneList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w))
		defer start(t, r)()
		time.Sleep(stretch)
		before := r.Stats()
		for i := range 100 {
			uid := types.UID(fmt.Sprint(i))
			r.node.container(uid, string(uid), runs)
			w.tell(uid)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Len(t, r.take(), 100)
		after := r.Stats()
		require.Equal(t, uint64(1), after.Relists-before.Relists)
		require.Equal(t, before.PodRelists, after.PodRelists)
		time.Sleep(time.Minute)
		require.Zero(t, r.Stats().MissedHints)
	})
}

func TestFlood_RequestsLeaveTheRuntimeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{}, hinted(newWire()), func(c *pleg.Config) { c.Lister = c.Runtime; c.Runtime = slow{c.Runtime} })
		for i := range 10 {
			r.node.container(types.UID(fmt.Sprint(i)), fmt.Sprint(i), runs)
		}
		defer start(t, r)()
		time.Sleep(stretch)
		r.take()
		before := r.Stats()
		r.node.container("0", "0", exited)
		r.RequestRelist("0")
		time.Sleep(11 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"0 ContainerDied 0"}, r.take(), "the first request must be served at once")
		for i := range 1000 { // one pod starts every millisecond
			r.RequestRelist(types.UID(fmt.Sprint(i % 10)))
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		after := r.Stats()
		require.LessOrEqual(t, after.PodRelists-before.PodRelists, uint64(30), "relists of 10 ms may use at most a quarter of the second")
		require.LessOrEqual(t, after.Relists-before.Relists, uint64(30), "one relist must serve all requests that arrive in the meantime")
		require.Empty(t, r.take())
	})
}

// During a flood of other requests and hints of any duration, a request waits at most for two
// rounds of relists and the pause between them.
func TestFlood_RequestIsNotStarved(t *testing.T) {
	const longest = maxRest + 16*look
	for _, pods := range []int{1, 7, 40} {
		synctest.Test(t, func(t *testing.T) {
			w := newWire()
			r := newRig(t, clock.RealClock{}, hinted(w), func(c *pleg.Config) { c.Lister = c.Runtime; c.Runtime = slow{c.Runtime} })
			for i := range pods {
				r.node.container(types.UID(fmt.Sprint(i)), fmt.Sprint(i), runs)
			}
			r.node.container("z", "z", runs)
			defer start(t, r)()
			time.Sleep(stretch)
			ctx, cancel := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			flood.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					r.RequestRelist(types.UID(fmt.Sprint(i % pods)))
					w.tell(types.UID(fmt.Sprint((i + 1) % pods)))
					time.Sleep(time.Millisecond)
				}
			})
			state := map[bool]runtimeapi.ContainerState{true: exited, false: runs}
			for i := range 100 {
				time.Sleep(time.Duration(100+7*i) * time.Millisecond) // at different times within a round
				r.take()
				r.node.container("z", "z", state[i%2 == 0])
				r.RequestRelist("z")
				time.Sleep(longest)
				synctest.Wait()
				require.Len(t, r.take(), 1, "flood of %d pods, change %d", pods, i)
			}
			cancel()
			flood.Wait()
		})
	}
}

func TestFlood_HintsLeaveTheRuntimeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		r := newRig(t, clock.RealClock{}, hinted(w), func(c *pleg.Config) { c.Lister = c.Runtime; c.Runtime = slow{c.Runtime} })
		r.node.container("a", "a1", runs)
		stop := start(t, r)
		time.Sleep(stretch)
		before := r.Stats()
		for range 1000 {
			w.tell("a")
			time.Sleep(time.Millisecond)
		}
		require.LessOrEqual(t, r.Stats().PodRelists-before.PodRelists, uint64(25), "relists of 10 ms may use at most a quarter of the second")
		stop()
	})
}

// slow is a runtime whose sandbox list takes 10 ms.
type slow struct{ pleg.Runtime }

const (
	look    = 10 * time.Millisecond  // duration of the list of one pod in a slow runtime
	maxRest = 100 * time.Millisecond // the longest pause after relists
)

func (s slow) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	time.Sleep(look) // simulated time of the bubble
	return s.Runtime.ListPodSandbox(ctx, f)
}

// The runtime buffers five minutes of events for the first client.
func TestFlood_BacklogIsServedByOneRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		w.silent = true
		r := newRig(t, clock.RealClock{}, hinted(w))
		for i := range 100 {
			uid := types.UID(fmt.Sprint(i))
			r.node.container(uid, string(uid), runs)
			for range 50 {
				w.tell(uid)
			}
		}
		defer start(t, r)()
		time.Sleep(900 * time.Millisecond)
		s := r.Stats()
		require.Equal(t, uint64(5000), s.Hints)
		require.Equal(t, uint64(2), s.Relists, "the first relist, and the one after the opening of the stream")
		require.Zero(t, s.PodRelists)
		require.Len(t, r.take(), 100)
	})
}
