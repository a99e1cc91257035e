package pleg_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
)

// wall is a clock that shows steps, as the system clock does to those who throw
// the monotonic reading away. Its timers do not step.
type wall struct {
	clock.RealClock
	mu     sync.Mutex
	offset time.Duration
}

func (w *wall) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Round(0).Add(w.offset)
}

func (w *wall) Since(t time.Time) time.Duration { return w.Now().Sub(t) }

func (w *wall) step(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offset += d
}

func TestStepsOfTheSystemClockDoNotShow(t *testing.T) {
	r := newRig(t, clock.RealClock{})
	r.relist()
	require.Contains(t, r.result.At.String(), " m=", "the monotonic reading is kept")
}

// On a clock that shows them, passes go on, and nothing is refused by the cache. A
// jump forward is what a machine sees that was suspended.
func TestStepsThatShowChangeNothing(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Second, 24 * time.Hour} {
		for _, streaming := range []bool{false, true} {
			t.Run(fmt.Sprintf("step=%v,streaming=%v", step, streaming), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					clk := &wall{}
					r := newRig(t, clk, func(c *pleg.Config) {
						if streaming {
							c.Events = newWire()
						}
					})
					r.node.container("a", "a1", runs)
					r.node.container("b", "b1", runs)
					defer start(t, r)()
					time.Sleep(500 * time.Millisecond)
					r.node.fail("b1", errRuntime)
					r.node.container("b", "b1", exited)
					r.RequestRelist("b")
					synctest.Wait()
					r.take()
					r.node.fail("b1", nil)
					relists := r.Stats().Relists

					clk.step(step)
					r.node.container("a", "a1", exited)
					time.Sleep(4 * time.Second)
					require.Equal(t, []string{"a ContainerDied a1", "b PodSync"}, r.take())
					require.NoError(t, r.Healthy())
					status, err := r.cache.Get("a")
					require.NoError(t, err)
					require.False(t, status.Running(), "the cache has it, too")
					require.LessOrEqual(t, r.Stats().Relists-relists, uint64(6), "and there is no storm")
					asked := clk.Now()
					_, err = r.cache.GetNewerThan(t.Context(), "a", asked)
					require.NoError(t, err)
				})
			})
		}
	}
}

func TestNewestIsByAttemptWhateverTheRuntimesClockSaid(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.sandbox("a", "old", ready)
	r.node.sandbox("a", "new", ready) // two ready at once: the old one's end was missed
	r.node.sandboxes[0].CreatedAt, r.node.sandboxes[1].CreatedAt = 2000, 1000
	r.node.ips["old"], r.node.ips["new"] = []string{"10.0.0.1"}, []string{"10.0.0.2"}
	require.Len(t, r.relist(), 2)
	status, err := r.cache.Get("a")
	require.NoError(t, err)
	require.Equal(t, "new", status.ReadySandbox().GetId())
	require.Equal(t, []string{"10.0.0.2"}, status.IPs)
	r.node.sandboxes[1].CreatedAt = 1 // it changed its mind about an old fact
	require.Empty(t, r.relist())
	r.node.sandbox("a", "old", notReady)
	require.Equal(t, []string{"a ContainerDied old"}, r.relist())
	status, _ = r.cache.Get("a")
	require.Equal(t, []string{"10.0.0.2"}, status.IPs)
}

func TestAThousandDeadContainersAreAskedForOnce(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	for i := range 1000 {
		r.node.containers = append(r.node.containers, &runtimeapi.Container{
			Id: fmt.Sprintf("dead-%d", i), State: exited, Labels: labelsOf("a"),
		})
	}
	require.Len(t, r.relist(), 1001)
	require.Len(t, r.node.takeAsked(), 1001)
	r.node.container("a", "a1", exited)
	require.Equal(t, []string{"a ContainerDied a1"}, r.relist())
	require.Equal(t, []string{"a1"}, r.node.takeAsked())
	for i := range 1000 {
		if i%2 == 0 {
			r.node.containers[i/2] = r.node.containers[len(r.node.containers)-1-i/2]
		}
	}
	r.node.containers = r.node.containers[:501]
	events := strings.Join(r.relist(), "\n")
	require.Equal(t, 500, strings.Count(events, "ContainerRemoved"))
	require.NotContains(t, events, "ContainerDied", "they were told long ago")
}
