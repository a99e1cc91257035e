package eviction_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// walk changes stats at random, adds and terminates pods, and checks invariants of every
// decision.
type walk struct {
	t     *testing.T
	r     *rand.Rand
	h     *history
	acted map[types.UID]int
	met   map[eviction.Threshold]time.Time // since when each threshold is met, counted independently
	last  map[eviction.Threshold]time.Time // when each threshold was last met
	due   map[eviction.Threshold]bool      // due thresholds, including their minimum reclaim
	took  time.Duration                    // since the previous evaluation
}

func TestManager_RandomWalks(t *testing.T) {
	t.Parallel()
	evicted, quiet := 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := &walk{t: t, r: r, acted: map[types.UID]int{}, met: map[eviction.Threshold]time.Time{}, due: map[eviction.Threshold]bool{}, last: map[eviction.Threshold]time.Time{}}
		reclaiming := hard(eviction.MemoryAvailable, 1000)
		reclaiming.MinReclaim = eviction.Value{Quantity: 500}
		w.h = newHistory(t, reclaiming, soft(eviction.MemoryAvailable, 3000, time.Minute), hard(eviction.PIDAvailable, 100),
			soft(eviction.NodeFSAvailable, 2000, 10*time.Second), hard(eviction.NodeFSInodesFree, 50))
		w.h.policy.MaxParallelEvictions = 1 + r.IntN(4)
		w.h.policy.MaxPodGracePeriodSeconds = int32(r.IntN(40) - 5)
		if r.IntN(2) == 0 {
			w.h.policy.Rank = []func(a, b *eviction.Candidate) int{eviction.KubeletRank, eviction.QoSFirst}[r.IntN(2)]
		}
		pods, stats := randomPods(r, 30)
		w.h.pods = append(w.h.pods, pods...)
		w.h.stats = byUID(stats...)
		for range 150 {
			d := w.step()
			evicted += len(d.Victims)
			if d.IsNoop() {
				quiet++
			}
		}
		for uid, n := range w.acted {
			require.Equal(t, 1, n, "seed %d: %s was evicted more than once", seed, uid)
		}
	}
	require.Greater(t, evicted, 200, "number of walks with evictions")
	require.Greater(t, quiet, 2000, "number of evaluations without an action")
}

func (w *walk) step() eviction.Decision {
	var seen []eviction.Observation
	for _, s := range []eviction.Signal{eviction.MemoryAvailable, eviction.PIDAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree} {
		if w.r.IntN(6) > 0 {
			seen = append(seen, saw(s, w.r.Int64N(12000)*w.r.Int64N(2)+w.r.Int64N(4000), 100_000))
		}
	}
	before := w.h.state
	w.took = time.Duration(w.r.Int64N(int64(20 * time.Second)))
	d := w.h.look(w.took, seen...)
	w.count(seen)
	w.check(before, d)
	w.act(d)
	return d
}

// count determines independently which thresholds are met.
func (w *walk) count(seen []eviction.Observation) {
	for _, th := range w.h.policy.Thresholds {
		i := slices.IndexFunc(seen, func(o eviction.Observation) bool { return o.Signal == th.Signal })
		if i < 0 {
			continue
		}
		target := th.Value.Quantity
		if w.due[th] {
			target += th.MinReclaim.Quantity
		}
		if seen[i].Available >= target {
			since := w.met[th].Add(2 * w.took) // a short interruption extends the grace period
			if w.due[th] || th.Hard() || w.h.now.Sub(w.last[th]) >= 10*time.Second || !since.Before(w.h.now) {
				delete(w.met, th)
			} else if _, ok := w.met[th]; ok {
				w.met[th] = since
			}
			delete(w.due, th)
			continue
		}
		w.last[th] = w.h.now
		if _, ok := w.met[th]; !ok {
			w.met[th] = w.h.now
		}
		w.due[th] = w.h.now.Sub(w.met[th]) >= th.GracePeriod
	}
}

func (w *walk) check(before eviction.State, d eviction.Decision) {
	w.t.Helper()
	anyDue := false
	for _, due := range w.due {
		anyDue = anyDue || due
	}
	require.True(w.t, anyDue || d.IsNoop(), "without a due threshold, the decision must be empty")
	for _, r := range d.Thresholds {
		if r.State == eviction.Unknown {
			require.False(w.t, r.Due, "an unknown signal must not be due")
		} else if th := r.Threshold; th.Signal != eviction.ContainerFSAvailable && th.Signal != eviction.ContainerFSInodesFree {
			require.Equal(w.t, w.due[th], r.Due, "%s at %v", th, w.h.now)
		}
	}
	require.LessOrEqual(w.t, len(d.Victims), max(w.h.policy.MaxParallelEvictions, 1))
	last := -1
	for _, v := range d.Victims {
		require.False(w.t, podspec.IsCritical(v.Pod), "a critical pod must not be evicted")
		require.False(w.t, slices.ContainsFunc(before.InFlight, func(f eviction.InFlight) bool { return f.UID == v.Pod.UID }))
		for i := last + 1; i < v.Index; i++ {
			require.NotEmpty(w.t, d.Candidates[i].Kept, "a skipped pod must have a reason")
		}
		last = v.Index
		require.GreaterOrEqual(w.t, v.GracePeriodSeconds, int64(1))
		if d.Threshold.Threshold.Hard() {
			require.EqualValues(w.t, 1, v.GracePeriodSeconds)
		}
	}
	w.checkOrder(d)
	w.checkEnough(d)
}

// checkOrder compares each candidate with the next by the declared order.
func (w *walk) checkOrder(d eviction.Decision) {
	rank := w.h.policy.Rank
	if rank == nil {
		rank = eviction.KubeletRank
	}
	place := func(c eviction.Candidate) int {
		switch {
		case c.Overdue:
			return 0
		case c.Missing:
			return 2
		default:
			return 1
		}
	}
	for i := 1; i < len(d.Candidates); i++ {
		a, b := d.Candidates[i-1], d.Candidates[i]
		require.LessOrEqual(w.t, place(a), place(b))
		if place(a) == place(b) {
			require.LessOrEqual(w.t, rank(&a, &b), 0)
		}
	}
}

// checkEnough checks that no eviction is unnecessary.
func (w *walk) checkEnough(d eviction.Decision) {
	if len(d.Victims) == 0 {
		return
	}
	free := d.Threshold.InFlight
	for _, v := range d.Victims[:len(d.Victims)-1] {
		require.True(w.t, v.Usage.Known())
		free += v.Usage.Value
	}
	require.Less(w.t, free, d.Threshold.Shortfall)
}

// act starts evictions, and ends some evictions in progress.
func (w *walk) act(d eviction.Decision) {
	flights := slices.Clone(w.h.state.InFlight)
	flights = slices.DeleteFunc(flights, func(f eviction.InFlight) bool {
		if w.r.IntN(3) > 0 {
			return false
		}
		w.h.pods = slices.DeleteFunc(slices.Clone(w.h.pods), func(p *corev1.Pod) bool { return p.UID == f.UID })
		return true
	})
	for i := range flights {
		if slices.Contains(d.Escalate, flights[i].UID) {
			require.False(w.t, flights[i].Hard)
			flights[i].Hard = true
		}
	}
	for _, v := range d.Victims {
		w.acted[v.Pod.UID]++
		flights = append(flights, eviction.InFlight{
			UID: v.Pod.UID, Hard: d.Threshold.Threshold.Hard(), Since: d.At, Deadline: d.At.Add(10 * time.Second),
			Frees: map[eviction.Signal]int64{d.Signal: v.Usage.Value},
		})
	}
	w.h.state.InFlight = flights
}
