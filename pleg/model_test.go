package pleg_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/pleg"
)

// history is a random history of a node. It contains the state of every container that ever
// existed, and the events about it.
type history struct {
	*rig
	rand  *rand.Rand
	clock *testingclock.FakeClock
	// strange also uses the states created and unknown, which cause no events.
	strange bool
	told    map[string]pleg.EventType // last event by container
	state   map[string]runtimeapi.ContainerState
	pod     map[string]types.UID
	made    int
	cutAt   int // number of events until the pass is cancelled
	cut     context.CancelFunc
}

func newHistory(t *testing.T, seed uint64) *history {
	t.Helper()
	h := &history{
		rand: rand.New(rand.NewPCG(seed, 2)), clock: fakeClock(), strange: seed%2 == 1,
		told: map[string]pleg.EventType{}, state: map[string]runtimeapi.ContainerState{}, pod: map[string]types.UID{},
	}
	h.rig = newRig(t, h.clock, func(c *pleg.Config) { c.MaxInspections = 1 + h.rand.IntN(4) })
	h.onEvent = h.hear
	return h
}

// hear checks that an event is not a duplicate, and cancels the pass at the chosen event.
func (h *history) hear(e pleg.Event) {
	if e.ContainerID != "" {
		before := h.told[e.ContainerID]
		require.NotEqual(h.t, pleg.ContainerRemoved, before, "event of %s after its removal", e.ContainerID)
		if e.Type == pleg.ContainerRemoved {
			require.Equal(h.t, pleg.ContainerDied, before, "%s was removed without a ContainerDied event", e.ContainerID)
		}
		if !h.strange {
			require.NotEqual(h.t, before, e.Type, "duplicate event of %s", e.ContainerID)
		}
		h.told[e.ContainerID] = e.Type
	}
	if h.cutAt--; h.cutAt == 0 {
		h.cut()
	}
}

// step makes a random change, and sometimes relists.
func (h *history) step() {
	h.clock.Step(time.Duration(1+h.rand.IntN(2000)) * time.Millisecond)
	uid := types.UID(rune('a' + h.rand.IntN(4)))
	switch h.rand.IntN(12) {
	case 0, 1, 2:
		h.made++
		h.set(fmt.Sprintf("%s%d", uid, h.made), uid)
	case 3, 4, 5:
		if id := h.any(); id != "" {
			h.set(id, h.pod[id])
		}
	case 6:
		id := h.any()
		h.node.remove(id)
		delete(h.state, id)
	case 7:
		h.node.fail(h.any(), []error{nil, errRuntime}[h.rand.IntN(2)])
	case 8:
		h.RequestReinspect(uid)
	case 9:
		h.look(func(ctx context.Context) { _ = h.RelistPod(ctx, uid) })
	default:
		h.node.failLists([]error{nil, nil, errRuntime}[h.rand.IntN(3)])
		h.look(func(ctx context.Context) { _, _ = h.Relist(ctx) })
		h.node.failLists(nil)
	}
}

// any returns the ID of an existing container, or the empty string.
func (h *history) any() string {
	ids := slices.Sorted(maps.Keys(h.state))
	if len(ids) == 0 {
		return ""
	}
	return ids[h.rand.IntN(len(ids))]
}

// set puts the container into a random state.
func (h *history) set(id string, uid types.UID) {
	states := []runtimeapi.ContainerState{runs, exited}
	if h.strange {
		states = append(states, created, lost)
	}
	h.state[id], h.pod[id] = states[h.rand.IntN(len(states))], uid
	h.node.container(uid, id, h.state[id])
}

// look relists, and sometimes cancels the relist.
func (h *history) look(relist func(context.Context)) {
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	h.cut, h.cutAt = cancel, 0
	if h.rand.IntN(3) == 0 {
		h.cutAt = 1 + h.rand.IntN(3)
	}
	began := h.clock.Now()
	relist(ctx)
	h.readsAreTrue(began)
}

// readsAreTrue checks each status that is as new as the relist and has no error: it must
// equal the state of the runtime, which has not changed since.
func (h *history) readsAreTrue(began time.Time) {
	for uid := types.UID("a"); uid <= "d"; uid = types.UID(rune(uid[0] + 1)) {
		status, err := h.cache.Get(uid)
		if !isFresh(h.t, h.cache, uid, began) || err != nil {
			require.Equal(h.t, err != nil, status.Stale)
			continue
		}
		want := map[string]runtimeapi.ContainerState{}
		for id, s := range h.state {
			if h.pod[id] == uid {
				want[id] = s
			}
		}
		got := map[string]runtimeapi.ContainerState{}
		for _, c := range status.Containers {
			got[c.Id] = c.State
		}
		if !h.strange {
			require.Equal(h.t, want, got, "pod %s", uid)
		}
		require.Len(h.t, got, len(want), "pod %s", uid)
	}
}

// settle ends all failures and relists until every back-off has ended.
func (h *history) settle() {
	clear(h.node.statusErr)
	h.cutAt = 0
	for range 3 {
		h.clock.Step(time.Minute)
		res, err := h.Relist(h.t.Context())
		require.NoError(h.t, err)
		h.readsAreTrue(res.At)
		for uid := types.UID("a"); uid <= "d"; uid = types.UID(rune(uid[0] + 1)) {
			require.True(h.t, isFresh(h.t, h.cache, uid, res.At))
		}
	}
	require.Zero(h.t, h.result.FailedPods)
}

// everythingWasTold checks that the last events match the states.
func (h *history) everythingWasTold() {
	for id := range h.pod {
		switch state, exists := h.state[id]; {
		case !exists:
			require.Contains(h.t, []pleg.EventType{"", pleg.ContainerRemoved}, h.told[id], "%s was removed", id)
		case state == runs:
			require.Equal(h.t, pleg.ContainerStarted, h.told[id], "%s is running", id)
		case state == exited:
			require.Equal(h.t, pleg.ContainerDied, h.told[id], "%s has exited", id)
		}
	}
}

// TestModel runs random histories with failing lists and inspections, relists of single pods
// and cancelled passes: every change is delivered, none twice, no read is older than the
// relist that it requires, and no state of removed pods is kept.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seed)
			for range 80 {
				h.step()
			}
			h.settle()
			h.everythingWasTold()
			h.take()
			for id := range h.state {
				h.node.remove(id)
			}
			clear(h.state)
			h.settle()
			h.everythingWasTold()
			require.NotContains(t, strings.Join(h.take(), " "), "PodSync")
			records, dirty, requests := h.Memory()
			require.Zero(t, records+dirty+requests)
			require.Empty(t, h.cache.Statuses())
		})
	}
}
