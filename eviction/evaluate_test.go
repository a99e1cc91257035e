package eviction_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/eviction"
)

// history runs evaluations one after the other.
type history struct {
	t      *testing.T
	state  eviction.State
	policy eviction.Policy
	layout eviction.Layout
	pods   []*corev1.Pod
	stats  map[types.UID]*eviction.PodStats
	now    time.Time
}

func newHistory(t *testing.T, thresholds ...eviction.Threshold) *history {
	t.Helper()
	return &history{
		t: t, policy: eviction.Policy{Thresholds: thresholds}, layout: eviction.SingleFS,
		stats: map[types.UID]*eviction.PodStats{}, now: epoch(),
	}
}

// look evaluates after d with the given observations.
func (h *history) look(d time.Duration, all ...eviction.Observation) eviction.Decision {
	h.t.Helper()
	h.now = h.now.Add(d)
	for i := range all {
		if all[i].Time.IsZero() {
			all[i].Time = h.now
		}
	}
	obs := eviction.Observations{Node: eviction.NodeStats{Observations: all, Layout: h.layout}, Pods: h.pods, PodStats: h.stats}
	got := eviction.PlanEviction(h.state, obs, h.policy, h.now)
	h.state = got.Next
	return got
}

func (h *history) add(pod *corev1.Pod, stats eviction.PodStats) {
	h.pods = append(h.pods, pod)
	h.stats[pod.UID] = &stats
}

func memoryIs(n int64) eviction.Observation { return saw(eviction.MemoryAvailable, n, 10*gi) }

func TestEvaluate_ThresholdIsMetOnlyBelowItsAmount(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("hog"), memoryStats(newPod("hog"), gi))
	require.Empty(t, h.look(0, memoryIs(gi)).Conditions)
	d := h.look(time.Second, memoryIs(gi-1))
	require.Equal(t, []corev1.NodeConditionType{corev1.NodeMemoryPressure}, d.Conditions)
	require.Equal(t, []string{"hog"}, victims(d))
	require.EqualValues(t, 1, d.Victims[0].GracePeriodSeconds)
}

func TestPercentageThresholds(t *testing.T) {
	t.Parallel()
	ten := eviction.Threshold{Signal: eviction.MemoryAvailable, Value: eviction.Value{Fraction: 0.1}}
	for available, want := range map[int64]eviction.ThresholdState{99: eviction.Met, 100: eviction.Fine, 101: eviction.Fine} {
		h := newHistory(t, ten)
		require.Equal(t, want, h.look(0, saw(eviction.MemoryAvailable, available, 1000)).Thresholds[0].State, "%d", available)
	}
	h := newHistory(t, ten)
	require.Equal(t, eviction.Implausible, h.look(0, saw(eviction.MemoryAvailable, 0, 0)).Thresholds[0].State)
}

// A soft threshold sets the condition at once, and evicts after its grace period.
func TestSoftThreshold_EvictsAfterItsGracePeriod(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	h.policy.MaxPodGracePeriodSeconds = 5
	h.add(newPod("hog", grace(30)), memoryStats(newPod("hog"), gi))
	d := h.look(0, memoryIs(gi/2))
	require.Equal(t, []corev1.NodeConditionType{corev1.NodeMemoryPressure}, d.Conditions)
	require.Empty(t, d.Victims)
	require.Empty(t, h.look(59*time.Second, memoryIs(gi/2)).Victims)
	d = h.look(time.Second, memoryIs(gi/2))
	require.Equal(t, []string{"hog"}, victims(d))
	require.EqualValues(t, 5, d.Victims[0].GracePeriodSeconds)
}

func TestGracePeriod_LongBreakRestartsIt(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	h.look(0, memoryIs(gi/2))
	h.look(50*time.Second, memoryIs(2*gi))
	require.False(t, h.look(20*time.Second, memoryIs(gi/2)).Thresholds[0].Due)
	require.True(t, h.look(60*time.Second, memoryIs(gi/2)).Thresholds[0].Due)
}

// A missing figure does not mean zero. It neither resets the grace period nor causes an
// action.
func TestGracePeriod_ContinuesWhileASignalIsUnknown(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	h.look(0, memoryIs(gi/2))
	for range 3 {
		d := h.look(30 * time.Second)
		require.Equal(t, eviction.Unknown, d.Thresholds[0].State)
		require.True(t, d.IsNoop())
	}
	require.True(t, h.look(time.Second, memoryIs(gi/2)).Thresholds[0].Due)
}

func TestEvaluate_PartOfTheSignalsIsEnough(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi), hard(eviction.NodeFSAvailable, gi))
	h.add(newPod("hog"), memoryStats(newPod("hog"), gi))
	require.Equal(t, []string{"hog"}, victims(h.look(0, memoryIs(0))))
}

// kubernetes#52386: impossible values must not evict a pod.
func TestEvaluate_ImplausibleAndStaleObservationsDoNotCount(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	for _, o := range []eviction.Observation{
		saw(eviction.MemoryAvailable, -2_097_758_044_639_028<<10, 10*gi),
		saw(eviction.MemoryAvailable, 0, -1),
		saw(eviction.MemoryAvailable, 11*gi, 10*gi),
	} {
		d := h.look(time.Second, o)
		require.Equal(t, eviction.Implausible, d.Thresholds[0].State)
		require.Empty(t, d.Conditions)
	}
	old := memoryIs(0)
	old.Time = h.now.Add(-2 * time.Minute)
	require.Equal(t, eviction.Stale, h.look(0, old).Thresholds[0].State)
}

func TestMinReclaim_KeepsAThresholdDue(t *testing.T) {
	t.Parallel()
	th := hard(eviction.MemoryAvailable, gi)
	th.MinReclaim = eviction.Value{Quantity: gi}
	h := newHistory(t, th)
	require.Equal(t, eviction.Fine, h.look(0, memoryIs(gi+1)).Thresholds[0].State, "a threshold that was never due must not apply the minimum reclaim")
	require.Equal(t, 2*gi-1, h.look(time.Second, memoryIs(1)).Thresholds[0].Shortfall)
	d := h.look(time.Second, memoryIs(gi+1))
	require.Equal(t, eviction.Reclaiming, d.Thresholds[0].State)
	require.Equal(t, gi-1, d.Thresholds[0].Shortfall)
	h.look(time.Second) // the signal is unknown in this evaluation
	require.Equal(t, eviction.Reclaiming, h.look(time.Second, memoryIs(2*gi-1)).Thresholds[0].State)
	require.Equal(t, eviction.Fine, h.look(time.Second, memoryIs(2*gi)).Thresholds[0].State)
	require.Equal(t, eviction.Fine, h.look(time.Second, memoryIs(2*gi-1)).Thresholds[0].State)
}

func TestMinReclaim_DoesNotCountBeforeTheGracePeriod(t *testing.T) {
	t.Parallel()
	th := soft(eviction.MemoryAvailable, gi, time.Minute)
	th.MinReclaim = eviction.Value{Fraction: 0.1}
	h := newHistory(t, th)
	h.look(0, memoryIs(gi/2))
	require.Equal(t, eviction.Fine, h.look(time.Second, memoryIs(gi)).Thresholds[0].State)
}

func TestConditions_StayForTheTransitionPeriod(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi), hard(eviction.PIDAvailable, 10))
	pids := saw(eviction.PIDAvailable, 5, 100)
	require.Len(t, h.look(0, memoryIs(0), pids).Conditions, 2)
	pids.Available = 50
	require.Len(t, h.look(5*time.Minute-1, memoryIs(0), pids).Conditions, 2)
	d := h.look(1, memoryIs(2*gi), pids)
	require.Equal(t, []corev1.NodeConditionType{corev1.NodeMemoryPressure}, d.Conditions)
	require.Empty(t, h.look(5*time.Minute, memoryIs(2*gi), pids).Conditions)
	require.Empty(t, h.look(time.Second, memoryIs(2*gi), pids).Next.NodeConditionsLastObservedAt)
}

func TestEvaluate_ActsOnAnObservationOnce(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	h.add(newPod("a"), memoryStats(newPod("a"), gi))
	o := memoryIs(0)
	o.Time = h.now
	require.NotEmpty(t, h.look(time.Second, o).Victims)
	d := h.look(time.Second, o)
	require.Empty(t, d.Victims, "the same sample must not evict again")
	require.Equal(t, "not measured since the last evaluation", d.Thresholds[0].Why)
	h.look(time.Second) // the signal is unknown; after that, the same sample must not evict either
	require.Empty(t, h.look(time.Second, o).Victims)
	o.Time = o.Time.Add(-time.Second)
	require.Empty(t, h.look(time.Second, o).Victims, "an older sample must not evict")
	o.Time = h.now
	require.NotEmpty(t, h.look(time.Second, o).Victims)
}

// A kubelet defect: the soft threshold was chosen in 345 of 400 runs.
func TestEvaluate_HardThresholdsComeFirst(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, 2*gi, time.Second), hard(eviction.MemoryAvailable, gi))
	h.policy.MaxPodGracePeriodSeconds = 600
	h.add(newPod("hog", grace(600)), memoryStats(newPod("hog"), gi))
	h.look(0, memoryIs(gi+1))
	d := h.look(time.Minute, memoryIs(gi/2))
	require.True(t, d.Threshold.Threshold.Hard())
	require.EqualValues(t, 1, d.Victims[0].GracePeriodSeconds)
}

// A kubelet defect: the order of several thresholds is random.
func TestEvaluate_OrderOfThresholdsIsFixed(t *testing.T) {
	t.Parallel()
	all := []eviction.Signal{
		eviction.ImageFSInodesFree, eviction.ImageFSAvailable, eviction.NodeFSInodesFree, eviction.NodeFSAvailable,
		eviction.PIDAvailable, eviction.MemoryAvailable,
	}
	var thresholds []eviction.Threshold
	var seen []eviction.Observation
	for _, s := range all {
		thresholds = append(thresholds, hard(s, 100))
		seen = append(seen, saw(s, 50, 1000))
	}
	var order []eviction.Signal
	for len(thresholds) > 0 {
		h := newHistory(t, thresholds...)
		h.layout = eviction.DedicatedImageFS
		st := diskStats(newPod("a"), 500, 500, 0)
		st.Memory, st.Processes = used(500), used(500)
		h.add(newPod("a"), st)
		d := h.look(0, seen...)
		order = append(order, d.Signal)
		thresholds = thresholds[:len(thresholds)-1]
		seen = seen[:len(seen)-1]
	}
	require.Equal(t, []eviction.Signal{
		eviction.MemoryAvailable, eviction.PIDAvailable, eviction.NodeFSAvailable, eviction.NodeFSInodesFree,
		eviction.ImageFSAvailable, eviction.ImageFSInodesFree,
	}, order)
}

func TestEvaluate_TheScarcerOfTwoMemorySignalsIsFirst(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, 100), hard(eviction.AllocatableMemoryAvailable, 100))
	h.add(newPod("a"), memoryStats(newPod("a"), 10))
	d := h.look(0, saw(eviction.MemoryAvailable, 50, 1000), saw(eviction.AllocatableMemoryAvailable, 10, 1000))
	require.Equal(t, eviction.AllocatableMemoryAvailable, d.Signal)
}

// A kubelet defect: only the threshold itself must decide whether enough is free.
func TestEvaluate_AnotherThresholdDoesNotEvictForADisk(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi), soft(eviction.MemoryAvailable, gi, time.Hour))
	h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteContainers, eviction.DeleteImages}
	h.add(newPod("a"), diskStats(newPod("a"), gi, 0, 0))
	d := h.look(0, saw(eviction.NodeFSAvailable, 0, 10*gi), memoryIs(gi/2))
	require.Empty(t, d.Victims)
	require.Equal(t, []eviction.ReclaimPlan{{Action: eviction.DeleteContainers, Signal: eviction.NodeFSAvailable, Amount: gi}}, d.Reclaim)
	h.state.Reclaims = map[eviction.ReclaimAction]eviction.Reclaim{eviction.DeleteContainers: {Began: h.now, Ended: h.now.Add(1)}}
	d = h.look(time.Second, saw(eviction.NodeFSAvailable, 5*gi, 10*gi), memoryIs(gi/2))
	require.True(t, d.IsNoop())
	require.Len(t, d.Conditions, 2)
}

// The thresholds of containerfs depend on the filesystem of the writable layers.
func TestThresholds_ContainerFSFollowsFromTheLayout(t *testing.T) {
	t.Parallel()
	all := []eviction.Threshold{
		hard(eviction.NodeFSAvailable, 1), soft(eviction.NodeFSInodesFree, 2, time.Hour), hard(eviction.ImageFSAvailable, 3),
		soft(eviction.ImageFSInodesFree, 4, time.Minute), hard(eviction.ContainerFSAvailable, 99),
	}
	for layout, want := range map[eviction.Layout][2]int64{
		eviction.SingleFS: {1, 2}, eviction.SplitFS: {1, 2}, eviction.DedicatedImageFS: {3, 4},
	} {
		h := newHistory(t, all...)
		h.layout = layout
		got := map[eviction.Signal]eviction.Threshold{}
		for _, r := range h.look(0).Thresholds {
			got[r.Threshold.Signal] = r.Threshold
		}
		require.Equal(t, want[0], got[eviction.ContainerFSAvailable].Value.Quantity, layout)
		require.Equal(t, want[1], got[eviction.ContainerFSInodesFree].Value.Quantity, layout)
		require.False(t, got[eviction.ContainerFSInodesFree].Hard(), "the derived threshold must have the grace period")
	}
	h := newHistory(t, hard(eviction.ImageFSAvailable, 3))
	require.Len(t, h.look(0).Thresholds, 1, "the layout must add no other threshold")
}

func TestEvaluate_UsesTheLastLayoutWhileUnknown(t *testing.T) {
	t.Parallel()
	h := newHistory(t)
	h.layout = eviction.UnknownLayout
	require.Equal(t, eviction.SingleFS, h.look(0).Layout)
	h.layout = eviction.SplitFS
	h.look(0)
	h.layout = eviction.UnknownLayout
	require.Equal(t, eviction.SplitFS, h.look(0).Layout)
}

func TestEvaluate_ClockJumps(t *testing.T) {
	t.Parallel()
	h := newHistory(t, soft(eviction.MemoryAvailable, gi, time.Minute))
	h.add(newPod("a"), memoryStats(newPod("a"), gi))
	h.look(0, memoryIs(0))
	d := h.look(-time.Hour, memoryIs(0))
	require.Empty(t, d.Victims, "back")
	require.NotEmpty(t, d.Conditions)
	require.NotEmpty(t, h.look(2*time.Hour, memoryIs(0)).Victims, "forth")
}

func TestEvaluate_ModifiesNothing(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi), soft(eviction.PIDAvailable, 10, time.Minute))
	h.add(newPod("a"), memoryStats(newPod("a"), gi))
	h.look(0, memoryIs(0), saw(eviction.PIDAvailable, 5, 100))
	before, err := json.Marshal([]any{h.state.LastObservations, h.state.NodeConditionsLastObservedAt, h.state.ThresholdsMet, h.pods})
	require.NoError(t, err)
	state, now := h.state, h.now
	first := h.look(time.Minute, memoryIs(gi), saw(eviction.PIDAvailable, 5, 100))
	after, err := json.Marshal([]any{state.LastObservations, state.NodeConditionsLastObservedAt, state.ThresholdsMet, h.pods})
	require.NoError(t, err)
	require.JSONEq(t, string(before), string(after))
	h.state, h.now = state, now
	require.Equal(t, first, h.look(time.Minute, memoryIs(gi), saw(eviction.PIDAvailable, 5, 100)))
}

// TestDecision_PrintsCandidatesInTheUnitOfTheirRank is a regression test: if no pod could be evicted,
// the usage was printed in the unit of the first due threshold.
func TestDecision_PrintsCandidatesInTheUnitOfTheirRank(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.NodeFSAvailable, gi), hard(eviction.PIDAvailable, 100_000))
	h.policy.Reclaimers = []eviction.ReclaimAction{eviction.DeleteImages}
	h.add(newPod("kept", static), eviction.PodStats{UID: "uid-kept", Processes: used(20480)})
	d := h.look(0, saw(eviction.NodeFSAvailable, 0, 10*gi), saw(eviction.PIDAvailable, 10, 1_000_000))
	require.Contains(t, d.String(), "  1. default/kept: uses 20480, priority 0, Burstable - not evicted: critical\n")
}

func TestDecision_MarshalsWithoutPodObjects(t *testing.T) {
	t.Parallel()
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	pod := newPod("hog", asks(corev1.ResourceMemory, "1Mi"))
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "SECRET", Value: "x"}}
	h.add(pod, memoryStats(pod, gi))
	data, err := json.Marshal(h.look(0, memoryIs(0)))
	require.NoError(t, err)
	require.NotContains(t, string(data), "SECRET")
	var got struct {
		Signal     string
		Thresholds []struct {
			Threshold struct{ Signal, Value string }
			State     string
			Shortfall int64
		}
		Victims []struct {
			Namespace, Name, UID string
			Usage                int64
			GracePeriodSeconds   int64
		}
	}
	require.NoError(t, json.Unmarshal(data, &got))
	require.Equal(t, "memory.available", got.Signal)
	require.Equal(t, "1Gi", got.Thresholds[0].Threshold.Value)
	require.Equal(t, gi, got.Thresholds[0].Shortfall)
	require.Equal(t, "hog", got.Victims[0].Name)
	require.EqualValues(t, 1, got.Victims[0].GracePeriodSeconds)
	require.Equal(t, gi, got.Victims[0].Usage)
}

// TestConditions_StayWhileAllSignalsAreUnknown is a regression test: the conditions ended
// after the transition period, and pods were admitted to a node that could still be under
// pressure.
func TestConditions_StayWhileAllSignalsAreUnknown(t *testing.T) {
	t.Parallel()
	pressure := []corev1.NodeConditionType{corev1.NodeMemoryPressure}
	h := newHistory(t, hard(eviction.MemoryAvailable, gi))
	require.Equal(t, pressure, h.look(0, memoryIs(0)).Conditions)
	require.Equal(t, pressure, h.look(time.Hour).Conditions, "the conditions must stay while all signals are unknown")
	require.Empty(t, h.look(time.Second, memoryIs(gi)).Conditions, "the conditions must end after the transition period")

	old := memoryIs(gi - 1)
	old.Time = h.now
	require.Equal(t, pressure, h.look(0, old).Conditions)
	d := h.look(time.Hour, old)
	require.Equal(t, pressure, d.Conditions, "an old observation must not end the condition")
	require.Empty(t, d.Victims)
	require.Equal(t, eviction.Stale, d.Thresholds[0].State)
	old.Available = gi
	require.Equal(t, pressure, h.look(5*time.Minute-1, old).Conditions)
	require.Empty(t, h.look(1, old).Conditions)
	require.Equal(t, pressure, h.look(0, memoryIs(0)).Conditions)
	require.Empty(t, h.look(5*time.Minute, saw(eviction.PIDAvailable, 9, 9)).Conditions, "the condition must end if other signals are known")
}
