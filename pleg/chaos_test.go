package pleg_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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

// chaos is a node with a running generator and all kinds of faults: hints are lost,
// duplicated, late and out of order, the stream breaks, lists and inspections fail, and
// inspections hang.
type chaos struct {
	*rig
	rand *rand.Rand
	wire *wire

	state map[string]runtimeapi.ContainerState
	pod   map[string]types.UID
	told  map[string]pleg.EventType
	made  int

	late    []types.UID // delayed hints
	hung    map[string]func()
	failing bool // lists fail
	watched map[types.UID]int
}

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	c := &chaos{
		rand: rand.New(rand.NewPCG(seed, 4)), wire: newWire(),
		state: map[string]runtimeapi.ContainerState{}, pod: map[string]types.UID{},
		told: map[string]pleg.EventType{}, hung: map[string]func(){}, watched: map[types.UID]int{},
	}
	c.rig = newRig(t, clock.RealClock{}, hinted(c.wire))
	c.onEvent = func(e pleg.Event) {
		if e.ContainerID != "" {
			require.NotEqual(t, c.told[e.ContainerID], e.Type, "duplicate event of %s", e.ContainerID)
			c.told[e.ContainerID] = e.Type
		}
	}
	return c
}

func (c *chaos) any() string {
	ids := slices.Sorted(maps.Keys(c.state))
	if len(ids) == 0 {
		return ""
	}
	return ids[c.rand.IntN(len(ids))]
}

// set changes a container's state, and sends hints that may be faulty.
func (c *chaos) set(id string, uid types.UID, s runtimeapi.ContainerState) {
	if c.state[id] == s {
		return
	}
	c.state[id], c.pod[id] = s, uid
	c.node.container(uid, id, s)
	c.hint(uid)
}

func (c *chaos) hint(uid types.UID) {
	switch c.rand.IntN(6) {
	case 0: // the hint is lost
	case 1:
		c.late = append(c.late, uid)
	case 2:
		c.wire.tell(uid)
		c.wire.tell(uid)
	case 3:
		c.wire.events <- &runtimeapi.ContainerEventResponse{ContainerId: "of " + string(uid)}
	default:
		c.wire.tell(uid)
	}
}

func (c *chaos) step() {
	time.Sleep(time.Duration(c.rand.IntN(3000)) * time.Millisecond)
	uid := types.UID(rune('a' + c.rand.IntN(4)))
	switch c.rand.IntN(16) {
	case 0, 1:
		c.made++
		c.set(fmt.Sprintf("%s%d", uid, c.made), uid, runs)
	case 2, 3, 4:
		if id := c.any(); id != "" {
			c.set(id, c.pod[id], []runtimeapi.ContainerState{runs, exited}[c.rand.IntN(2)])
		}
	case 5:
		if id := c.any(); id != "" {
			c.node.remove(id)
			delete(c.state, id)
			c.hint(c.pod[id])
		}
	case 6:
		c.rand.Shuffle(len(c.late), func(i, j int) { c.late[i], c.late[j] = c.late[j], c.late[i] })
		for _, uid := range c.late {
			c.wire.tell(uid)
		}
		c.late = nil
	case 7:
		c.node.fail(c.any(), []error{nil, errRuntime}[c.rand.IntN(2)])
	case 8:
		if id := c.any(); id != "" && len(c.hung) < 3 && c.hung[id] == nil {
			c.hung[id] = c.node.block(id)
		}
	case 9:
		c.unblock()
	case 10:
		c.failLists(!c.failing)
	case 11:
		if c.Stats().Streaming {
			c.wire.broken <- errRuntime
		}
	case 12, 13:
		c.RequestRelist(uid)
	case 14:
		c.RequestReinspect(uid)
	default:
		c.read(uid)
	}
}

func (c *chaos) unblock() {
	for _, id := range slices.Sorted(maps.Keys(c.hung)) {
		c.hung[id]()
	}
	clear(c.hung)
}

func (c *chaos) failLists(fail bool) {
	c.failing = fail
	if fail {
		c.node.failLists(errRuntime)
	} else {
		c.node.failLists(nil)
	}
}

// read reads a pod with the current time. Nothing changes in the meantime, so the status must
// be exact. It must be returned soon unless the pod or the lists have faults.
func (c *chaos) read(uid types.UID) {
	time.Sleep(time.Millisecond) // avoids the time of a change
	asked := time.Now()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	status, err := c.cache.GetNewerThan(ctx, uid, asked)
	took := time.Since(asked)
	troubled := c.failing || slices.ContainsFunc(slices.Collect(maps.Keys(c.hung)), func(id string) bool { return c.pod[id] == uid })
	if !troubled {
		require.LessOrEqual(c.t, took, 1100*time.Millisecond, "pod %s waited for another pod", uid)
	}
	if err != nil { // the status is stale and marked as stale
		require.True(c.t, status == nil || status.Stale)
		return
	}
	require.Equal(c.t, c.want(uid), got(status), "pod %s", uid)
}

func (c *chaos) want(uid types.UID) map[string]runtimeapi.ContainerState {
	want := map[string]runtimeapi.ContainerState{}
	for id, s := range c.state {
		if c.pod[id] == uid {
			want[id] = s
		}
	}
	return want
}

// calm ends all faults except lost hints, and waits for the maximum latency of a change under
// these conditions: the longest back-off of a pod plus the longest period.
func (c *chaos) calm() {
	c.unblock()
	c.failLists(false)
	c.node.mu.Lock()
	clear(c.node.statusErr)
	c.node.mu.Unlock()
	time.Sleep(91*time.Second + 123*time.Millisecond)
	synctest.Wait()
	require.NoError(c.t, c.Healthy())
	require.Zero(c.t, c.Stats().FailedPods)
	for id := range c.pod {
		switch state, exists := c.state[id]; {
		case !exists:
			require.Contains(c.t, []pleg.EventType{"", pleg.ContainerRemoved}, c.told[id], "%s was removed", id)
		case state == runs:
			require.Equal(c.t, pleg.ContainerStarted, c.told[id], "%s is running", id)
		default:
			require.Contains(c.t, []pleg.EventType{pleg.ContainerDied}, c.told[id], "%s has exited", id)
		}
	}
	for uid := types.UID("a"); uid <= "d"; uid = types.UID(rune(uid[0] + 1)) {
		status, err := c.cache.Get(uid)
		require.NoError(c.t, err)
		require.Equal(c.t, c.want(uid), got(status), "pod %s", uid)
	}
}

// TestChaos runs the generator with all faults of chaos: every change is delivered as soon as
// possible (I1), a read is never older than requested (I2), no state of removed pods is kept
// (I8), a pod that hangs does not delay others (I9), and a fresh pod stays fresh (I10).
func TestChaos(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed)
				watch := c.Watch(t.Context())
				stop := start(t, c.rig)
				var newest time.Time // newest time at which the cache knew that pod "nobody" is absent
				for range 120 {
					c.step()
					require.True(t, newest.IsZero() || isFresh(t, c.cache, "nobody", newest), "freshness decreased")
					if now := time.Now().Add(-time.Second); now.After(newest) && isFresh(t, c.cache, "nobody", now) {
						newest = now
					}
					for range c.rand.IntN(3) {
						select {
						case e := <-watch:
							c.watched[e.PodUID]++
						default:
						}
					}
				}
				c.calm()
				for id := range c.state {
					c.node.remove(id)
				}
				clear(c.state)
				c.calm()
				for drained := false; !drained; {
					select {
					case e := <-watch:
						c.watched[e.PodUID]++
						synctest.Wait()
					default:
						drained = true
					}
				}
				for id := range c.told { // told contains no container that existed only between two lists
					require.NotZero(t, c.watched[c.pod[id]], "the watcher received no event of pod %s", c.pod[id])
				}
				stop()
				records, dirty, requests := c.Memory()
				require.Zero(t, records+dirty+requests)
				require.Empty(t, c.cache.Statuses())
			})
		})
	}
}

func got(s *podcache.Status) map[string]runtimeapi.ContainerState {
	states := map[string]runtimeapi.ContainerState{}
	for _, c := range s.Containers {
		states[c.GetId()] = c.GetState()
	}
	return states
}
