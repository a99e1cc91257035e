package eviction_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/eviction"
)

// TestReclaim_IsFollowedByEvictionsWithObservationsOfAnyAge is a regression test: a round of
// reclaims started again with containers when its observations were as old as the interval
// between two rounds.
func TestReclaim_IsFollowedByEvictionsWithObservationsOfAnyAge(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ period, every time.Duration }{
		{0, 10 * time.Second}, // interval of the Evaluate calls
		{0, time.Minute},
		{12 * time.Second, time.Second},
		{15 * time.Second, time.Second},
		{30 * time.Second, time.Second},
		{30 * time.Second, 10 * time.Second},
	} {
		t.Run(fmt.Sprintf("observations every %v, evaluations every %v", tt.period, tt.every), func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.instant = true
			n.now = func() time.Time { return n.clock.Now().Truncate(max(tt.period, 1)) }
			n.saw(eviction.NodeFSAvailable, 0, 100*gi)
			n.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
			cfg := n.config(hard(eviction.NodeFSAvailable, gi))
			cfg.ImageGC, cfg.ContainerGC = n, n
			m := newManager(t, cfg)
			var all []string
			for step := n.step(m, 0); len(all) < 3; step = n.step(m, tt.every) {
				m.Wait()
				all = append(all, n.calls...)
				n.calls = nil
				require.Less(t, n.clock.Since(epoch()), 5*time.Minute, "%s", step)
			}
			require.Equal(t, []string{"containers", "images nodefs.available 1073741824", "kill a 1s"}, all)
		})
	}
}

// TestReclaim_NewRoundStartsAfterEvictions checks that pods which cannot free enough do not
// prevent a second round.
func TestReclaim_NewRoundStartsAfterEvictions(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi))
	h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteImages}
	h.add(newPod("a"), diskStats(newPod("a"), mi, 0, 0))
	full := saw(eviction.NodeFSAvailable, 0, 10*gi)
	h.look(0, full)
	h.state.Reclaims = map[eviction.ReclaimAction]eviction.Reclaim{eviction.DeleteImages: {Began: h.now, Ended: h.now.Add(time.Second)}}
	require.Equal(t, []string{"a"}, victims(h.look(time.Hour, full)), "an hour without an evaluation must not start another round")
	require.Len(t, h.look(10*time.Second, full).Reclaim, 1)
}
