package eviction_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// kubernetes#129616: images are deleted before pods are evicted, with a measurement after each step.
func TestReclaim_ComesBeforeEvictions(t *testing.T) {
	t.Parallel()
	full := saw(eviction.NodeFSAvailable, 0, 10*gi)
	for _, tt := range []struct {
		layout eviction.Layout
		signal eviction.Signal
		want   []eviction.ReclaimAction
	}{
		{eviction.SingleFS, eviction.NodeFSAvailable, []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}},
		{eviction.SingleFS, eviction.ImageFSInodesFree, []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}},
		{eviction.DedicatedImageFS, eviction.NodeFSInodesFree, nil},
		{eviction.DedicatedImageFS, eviction.ImageFSAvailable, []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}},
		{eviction.SplitFS, eviction.NodeFSAvailable, []eviction.ReclaimAction{eviction.DeleteContainers}},
		{eviction.SplitFS, eviction.ImageFSAvailable, []eviction.ReclaimAction{eviction.DeleteImages}},
		{eviction.SingleFS, eviction.MemoryAvailable, nil},
		{eviction.SingleFS, eviction.PIDAvailable, nil},
	} {
		h := newHistory(t, hard(tt.signal, gi))
		h.layout = tt.layout
		h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}
		h.add(newPod("a"), usesOf(newPod("a"), gi))
		full.Signal = tt.signal
		var got []eviction.ReclaimAction
		for range 3 {
			d := h.look(time.Second, full)
			if len(d.Reclaim) == 0 {
				require.Equal(t, []string{"a"}, victims(d), "%v", tt)
				break
			}
			require.Empty(t, d.Victims)
			require.Len(t, d.Reclaim, 1, "one reclaim at a time")
			got = append(got, d.Reclaim[0].Action)
			began := map[eviction.ReclaimAction]eviction.Reclaim{}
			maps.Copy(began, h.state.Reclaims)
			began[d.Reclaim[0].Action] = eviction.Reclaim{Began: h.now, Ended: h.now.Add(time.Millisecond)}
			h.state.Reclaims = began
		}
		require.Equal(t, tt.want, got, "%v", tt)
	}
}

func TestReclaim_EvictionsWaitOnlyForReclaimTimeout(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi), hard(eviction.MemoryAvailable, gi))
	h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteImages}
	h.add(newPod("a"), usesOf(newPod("a"), gi))
	h.state.Reclaims = map[eviction.ReclaimAction]eviction.Reclaim{eviction.DeleteImages: {Began: h.now}}
	full := saw(eviction.NodeFSAvailable, 0, 10*gi)
	d := h.look(29*time.Second, full)
	require.Equal(t, "disk is being reclaimed", d.Thresholds[0].Why)
	require.Empty(t, d.Victims)
	require.Equal(t, eviction.MemoryAvailable, h.look(0, full, memoryIs(0)).Signal, "memory must not wait for a disk reclaim")
	require.Equal(t, []string{"a"}, victims(h.look(time.Second, full)))
}

// A round of reclaims that takes longer than the interval between rounds must not prevent
// evictions forever.
func TestReclaim_SlowReclaimsDoNotStarveEvictions(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi))
	h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}
	h.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
	full := saw(eviction.NodeFSAvailable, 0, 10*gi)
	h.state.Reclaims = map[eviction.ReclaimAction]eviction.Reclaim{
		eviction.DeleteContainers: {Began: h.now, Ended: h.now.Add(15 * time.Second)},
		eviction.DeleteImages:     {Began: h.now.Add(15 * time.Second), Ended: h.now.Add(30 * time.Second)},
	}
	require.Equal(t, []string{"a"}, victims(h.look(31*time.Second, full)))
	require.NotEmpty(t, h.look(20*time.Second, full).Reclaim, "a new round of reclaims must start")
}

func TestVictims_AreAsFewAsAreEnough(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, 3*gi))
	for _, name := range []string{"a", "b", "c", "d"} {
		h.add(newPod(name), memoryStats(newPod(name), gi))
	}
	h.add(newPod("protected", static), memoryStats(newPod("protected"), 5*gi))
	require.Equal(t, []string{"a", "b"}, victims(h.look(0, memoryIs(gi))))
	require.Equal(t, []string{"a", "b", "c"}, victims(h.look(time.Second, memoryIs(gi-1))))
	h.policy.MaxParallelEvictions = 1
	require.Equal(t, []string{"a"}, victims(h.look(time.Second, memoryIs(0))))
}

// kubernetes#43166: evictions in progress count before more pods are evicted.
func TestVictims_EvictionsInFlightAreSubtracted(t *testing.T) {
	t.Parallel()
	flight := func(s eviction.Signal, n int64) eviction.InFlight {
		return eviction.InFlight{UID: "x", Hard: true, Since: epoch(), Deadline: epoch().Add(10 * time.Second), Frees: map[eviction.Signal]int64{s: n}}
	}
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("a"), memoryStats(newPod("a"), gi))
	h.state.InFlight = []eviction.InFlight{flight(eviction.MemoryAvailable, gi)}
	d := h.look(time.Second, memoryIs(0))
	require.Empty(t, d.Victims)
	require.Equal(t, "evictions in flight free enough", d.Thresholds[0].Why)

	h.state.InFlight = []eviction.InFlight{flight(eviction.MemoryAvailable, gi-1)}
	require.Len(t, h.look(time.Second, memoryIs(0)).Victims, 1, "the eviction in progress does not free enough")

	h.state.InFlight = []eviction.InFlight{flight(eviction.PIDAvailable, 5)}
	d = h.look(time.Second, memoryIs(0))
	require.Empty(t, d.Victims)
	require.True(t, d.Thresholds[0].Pending, "the threshold must wait, because the memory of the evicted pod is unknown")

	ended := flight(eviction.MemoryAvailable, gi)
	ended.Ended = true
	h.state.InFlight = []eviction.InFlight{ended}
	require.Len(t, h.look(time.Second, memoryIs(0)).Victims, 1, "the memory of the evicted pod is already free, and must not count again")

	h.state.InFlight = []eviction.InFlight{flight(eviction.MemoryAvailable, gi)}
	require.Len(t, h.look(10*time.Second, memoryIs(0)).Victims, 1, "an overdue eviction must not count")
}

func TestVictims_DiskOfATerminatedPodIsStillExpected(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi))
	h.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
	h.state.InFlight = []eviction.InFlight{{
		UID: "x", Hard: true, Ended: true, Deadline: epoch().Add(30 * time.Second),
		Frees: map[eviction.Signal]int64{eviction.NodeFSAvailable: 2 * gi},
	}}
	full := saw(eviction.NodeFSAvailable, 0, 10*gi)
	require.Empty(t, h.look(29*time.Second, full).Victims)
	require.Len(t, h.look(time.Second, full).Victims, 1)
}

func TestVictims_UnknownUsageEndsThePlan(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.ImageFSAvailable, gi))
	h.layout = eviction.SplitFS
	h.add(newPod("low", priority(-1)), diskStats(newPod("low"), gi, 0, 0))
	h.add(newPod("high"), diskStats(newPod("high"), gi, 0, 0))
	require.Equal(t, []string{"low"}, victims(h.look(0, saw(eviction.ImageFSAvailable, 0, 10*gi))))
}

// kubernetes#123872: a hard threshold does not wait for slow evictions.
func TestEscalation_HardThresholdShortensSoftEvictions(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, 4*gi, time.Second), hard(eviction.MemoryAvailable, gi))
	h.add(newPod("next"), memoryStats(newPod("next"), gi))
	slow := func(uid types.UID, n int64) eviction.InFlight {
		return eviction.InFlight{UID: uid, Name: "default/" + string(uid), Deadline: epoch().Add(time.Hour), Frees: map[eviction.Signal]int64{eviction.MemoryAvailable: n}}
	}
	h.state.InFlight = []eviction.InFlight{slow("none", 0), slow("one", gi/2), slow("two", gi/2), slow("three", gi), slow("four", 0), slow("five", 0)}
	h.look(0, memoryIs(3*gi))
	d := h.look(time.Minute, memoryIs(2*gi))
	require.Empty(t, d.Escalate, "a soft threshold must not shorten evictions")
	require.Empty(t, d.Victims)
	d = h.look(time.Second, memoryIs(0))
	require.Equal(t, []types.UID{"one", "two"}, d.Escalate)
	require.Empty(t, d.Victims, "the escalated evictions free enough")
	h.state.InFlight = h.state.InFlight[:3]
	h.state.InFlight[1].Frees = map[eviction.Signal]int64{eviction.MemoryAvailable: 1}
	d = h.look(time.Second, memoryIs(0))
	require.Len(t, d.Escalate, 2)
	require.Equal(t, []string{"next"}, victims(d), "the escalated evictions do not free enough, and must not count toward MaxParallelEvictions")
}

// An eviction past its deadline no longer counts, until it is escalated.
func TestEscalation_StartsANewDeadline(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("next"), memoryStats(newPod("next"), gi))
	h.state.InFlight = []eviction.InFlight{{
		UID: "slow", Deadline: h.now.Add(-time.Second), Frees: map[eviction.Signal]int64{eviction.MemoryAvailable: 2 * gi},
	}}
	d := h.look(0, memoryIs(0))
	require.Equal(t, []types.UID{"slow"}, d.Escalate)
	require.Empty(t, d.Victims, "the escalated eviction frees enough")
}

// A kubelet defect: -1 must mean the pod's own grace period.
func TestVictims_GracePeriodsOfSoftEvictions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		maxGrace  int32
		own, want int64 // grace period of the pod; -1 means not set
	}{
		{0, 30, 1},
		{0, -1, 1},
		{5, 30, 5},
		{60, 30, 30},
		{60, -1, 60},
		{60, 0, 1},
		{-1, 45, 45},
		{-1, -1, 30},
		{-1, 0, 1},
	} {
		h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Nanosecond))
		h.policy.MaxPodGracePeriodSeconds = tt.maxGrace
		pod := newPod("a")
		if tt.own >= 0 {
			grace(tt.own)(pod)
		}
		h.add(pod, memoryStats(pod, gi))
		h.look(0, memoryIs(0))
		require.Equal(t, tt.want, h.look(time.Second, memoryIs(0)).Victims[0].GracePeriodSeconds, "%+v", tt)
	}
}

// TestVictims_PodWithoutStatsUsesNothing is a regression test: a pod without stats was evicted as a pod
// that frees an unknown amount, even if it was the only candidate.
func TestVictims_PodWithoutStatsUsesNothing(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, 2*gi))
	h.pods = append(h.pods, newPod("new"))
	d := h.look(0, memoryIs(0))
	require.Empty(t, d.Victims)
	require.Equal(t, eviction.KeptUnmeasured, d.Candidates[0].Kept)
	require.Equal(t, "no pod can be evicted", d.Thresholds[0].Why)
	h.add(newPod("hog"), memoryStats(newPod("hog"), gi))
	require.Equal(t, []string{"hog"}, victims(h.look(2*time.Minute-1, memoryIs(0))), "until StatsGrace ends, the pod with stats must be evicted, not the pod without stats")
	require.Equal(t, []string{"new"}, victims(h.look(1, memoryIs(0))))
}

// TestVictims_StatsGraceEndsWhileAnotherThresholdIsDue is a regression test: ranking the pods for the
// next threshold restarted the grace of missing stats.
func TestVictims_StatsGraceEndsWhileAnotherThresholdIsDue(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, 2*gi), hard(eviction.PIDAvailable, 100))
	h.add(newPod("hog"), eviction.PodStats{UID: "uid-hog", Processes: used(0)}) // the usage of memory is missing
	pids := saw(eviction.PIDAvailable, 10, 1000)
	require.Empty(t, h.look(0, memoryIs(0), pids).Victims)
	require.Empty(t, h.look(time.Minute, memoryIs(0), pids).Victims)
	require.Equal(t, []string{"hog"}, victims(h.look(time.Minute, memoryIs(0), pids)))
}

// TestVictims_FailedPodsAreRetriedInTurn is a regression test: failed pods used all parallel
// evictions forever, because each was retried as soon as its delay was over.
func TestVictims_FailedPodsAreRetriedInTurn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i, name := range []string{"stuck", "stuck too", "next", "last"} {
		n.add(newPod(name, priority(int32(i))), memoryStats(newPod(name), gi))
	}
	cfg := n.config(hard(eviction.MemoryAvailable, 10*gi))
	cfg.Policy.MaxParallelEvictions = 2
	m := newManager(t, cfg)
	for _, want := range [][]string{{"stuck", "stuck too"}, {"next", "last"}, {"stuck", "stuck too"}} {
		require.Equal(t, want, victims(n.has(m, 0, 10*time.Second)))
		n.waitCalls(2)
		n.end(want[0], errors.New("the process can't be killed"))
		n.end(want[1], errors.New("the process can't be killed"))
		m.Wait()
	}
}
