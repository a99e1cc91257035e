package status_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// world is a Manager with a fake clock, and the recorded calls of its observer.
type world struct {
	*status.Manager
	clock   *testingclock.FakeClock
	log     bytes.Buffer
	changes []status.Change
	refused []error
	removed []types.UID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: testingclock.NewFakeClock(at(0))}
	m, err := status.New(status.Config{
		Clock: w.clock, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
		Observer: status.Observer{
			StatusChanged: func(c status.Change) { w.changes = append(w.changes, c) },
			UpdateRefused: func(_ *corev1.Pod, err error) { w.refused = append(w.refused, err) },
			StatusRemoved: func(uid types.UID) { w.removed = append(w.removed, uid) },
		},
	})
	require.NoError(t, err)
	w.Manager = m
	return w
}

func simple(phase corev1.PodPhase, ready corev1.ConditionStatus) corev1.PodStatus {
	return corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}}
}

func readySince(s corev1.PodStatus) time.Time {
	return status.Condition(s.Conditions, corev1.PodReady).LastTransitionTime.Time
}

func TestSetPodStatus(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	_, ok := w.GetPodStatus(pod.UID)
	require.False(t, ok)

	first, changed := w.SetPodStatus(pod, simple("Pending", "False"))
	require.True(t, changed)
	require.Equal(t, at(0).Unix(), first.StartTime.Unix(), "the first start time must be now")
	require.Equal(t, at(0).Unix(), readySince(first).Unix())
	require.Equal(t, int64(2), first.ObservedGeneration, "the generation must be that of the pod")

	w.clock.Step(10 * time.Second)
	same, changed := w.SetPodStatus(pod, simple("Pending", "False"))
	require.False(t, changed)
	require.Equal(t, first, same)

	second, changed := w.SetPodStatus(pod, simple("Running", "False"))
	require.True(t, changed)
	require.Equal(t, at(0).Unix(), readySince(second).Unix(), "the transition time must be kept, because the condition's status has not changed")
	require.Equal(t, first.StartTime, second.StartTime)

	third, _ := w.SetPodStatus(pod, simple("Running", "True"))
	require.Equal(t, at(10).Unix(), readySince(third).Unix())

	got, ok := w.GetPodStatus(pod.UID)
	require.True(t, ok)
	require.Equal(t, third, got)
	require.Len(t, w.changes, 3)
	for i, c := range w.changes {
		require.Equal(t, uint64(i+1), c.Version)
		require.Same(t, pod, c.Pod)
		require.False(t, c.Finished)
	}
	require.Equal(t, corev1.PodStatus{}, w.changes[0].Old)
	require.Equal(t, second, w.changes[2].Old)
	require.Equal(t, third, w.changes[2].New)
}

func TestSetPodStatus_StoresTheNewestPodOfAnEqualStatus(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	s, _ := w.SetPodStatus(pod, simple("Running", "True"))
	for _, status := range []corev1.PodStatus{s, simple("Running", "True")} {
		edited := pod.DeepCopy()
		edited.Labels = map[string]string{"edited": ""}
		_, changed := w.SetPodStatus(edited, status)
		require.False(t, changed)
		w.Update(pod.UID, func(s *corev1.PodStatus) { s.Message += "." })
		require.Same(t, edited, w.changes[len(w.changes)-1].Pod)
		require.Equal(t, uint64(len(w.changes)), w.changes[len(w.changes)-1].Version)
		w.Update(pod.UID, func(s *corev1.PodStatus) { s.Message = "" })
	}
}

func TestManager_UsesThePodsStatusUntilOneIsSet(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	pod.Status = simple("Running", "True")
	pod.Status.StartTime = &metav1.Time{Time: at(-100)}
	pod.Status.Conditions[0].LastTransitionTime = metav1.Time{Time: at(-50)}
	pod.Status.ObservedGeneration = 7
	s, changed := w.SetPodStatus(pod, simple("Running", "True"))
	require.True(t, changed)
	require.Equal(t, at(-100).Unix(), s.StartTime.Unix())
	require.Equal(t, at(-50).Unix(), readySince(s).Unix())
	require.Equal(t, int64(7), s.ObservedGeneration)
}

func TestSetPodStatus_StartTimeNeverChanges(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	given := simple("Running", "True")
	given.StartTime = &metav1.Time{Time: at(-5)}
	s, _ := w.SetPodStatus(pod, given)
	require.Equal(t, at(-5).Truncate(time.Second), s.StartTime.Time)
	given.StartTime = &metav1.Time{Time: at(5)}
	_, changed := w.SetPodStatus(pod, given)
	require.False(t, changed)
}

func TestSetPodStatus_ObservedGenerationNeverDecreases(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, simple("Running", "True"))
	older := pod.DeepCopy()
	older.Generation = 1
	_, changed := w.SetPodStatus(older, simple("Running", "True"))
	require.False(t, changed)
	newer := pod.DeepCopy()
	newer.Generation = 3
	s, changed := w.SetPodStatus(newer, simple("Running", "True"))
	require.True(t, changed)
	require.Equal(t, int64(3), s.ObservedGeneration)
}

func TestSetPodStatus_TerminalPhaseIsFinalAndNotReady(t *testing.T) {
	t.Parallel()
	for phase, reason := range map[corev1.PodPhase]string{"Failed": status.ReasonPodFailed, "Succeeded": status.ReasonPodCompleted} {
		w, pod := newWorld(t), newPod("Always", "a")
		end := simple(phase, "True")
		end.Reason, end.Message = "Evicted", "too much"
		s, _ := w.SetPodStatus(pod, end)
		require.Equal(t, corev1.ConditionFalse, s.Conditions[0].Status)
		require.Equal(t, reason, s.Conditions[0].Reason)
		for _, other := range []corev1.PodPhase{"Pending", "Running", "Unknown", "Failed", "Succeeded", ""} {
			w.SetPodStatus(pod, end)
			s, _ = w.SetPodStatus(pod, simple(other, "True"))
			require.Equal(t, phase, s.Phase)
			require.Equal(t, corev1.ConditionFalse, s.Conditions[0].Status)
			if other != phase {
				require.Equal(t, "Evicted", s.Reason)
				require.Equal(t, "too much", s.Message)
			}
		}
	}
}

func TestSetPodStatus_RejectedStatus(t *testing.T) {
	t.Parallel()
	ended, revived := parseScene(t, "Never", "exit0").s, parseScene(t, "Never", "run").s
	ended.Phase, revived.Phase = "Running", "Running"

	w, pod := newWorld(t), newPod("Never", "c0")
	stored, _ := w.SetPodStatus(pod, ended)
	got, changed := w.SetPodStatus(pod, revived)
	require.False(t, changed)
	require.Equal(t, stored, got, "the previous status must be returned")
	require.Len(t, w.refused, 1)
	require.ErrorContains(t, w.refused[0], "attempted illegal transition")
	require.Contains(t, w.log.String(), `level=WARN msg="pod status update rejected, the previous status remains" pod=ns/pod podUID=uid`)
	require.False(t, w.Update(pod.UID, func(s *corev1.PodStatus) { s.ContainerStatuses = revived.ContainerStatuses }))
	require.Len(t, w.refused, 2)

	w = newWorld(t)
	pod.Status = ended
	got, changed = w.SetPodStatus(pod, revived)
	require.False(t, changed)
	revived.ObservedGeneration = pod.Generation
	require.Equal(t, revived, got, "without a previous status, the input must be returned")
	_, ok := w.GetPodStatus(pod.UID)
	require.False(t, ok)
	require.Empty(t, w.changes)
}

func TestManager_CopiesStatuses(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a", "b", "c")
	given := *full()
	stored, _ := w.SetPodStatus(pod, given)
	want := stored.DeepCopy()

	given.Conditions[0].Status = "Spoilt"
	given.ContainerStatuses[0].State.Running.StartedAt.Time = at(999)
	given.PodIPs[0].IP = "spoilt"
	given.StartTime.Time = at(999)
	before, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, *want, before)

	var kept *corev1.PodStatus
	require.True(t, w.Update(pod.UID, func(s *corev1.PodStatus) {
		s.Message = "new"
		kept = s
	}))
	require.Equal(t, *want, stored, "a returned status must not change")
	require.Equal(t, *want, before, "a returned status must not change")
	require.Equal(t, "new", w.changes[1].New.Message)
	kept.Message = "later"
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "new", got.Message)
}

func TestManager_DoesNotModifyInputs(t *testing.T) {
	t.Parallel()
	w, pod, given := newWorld(t), newPod("Always", "a", "b", "c"), *full()
	given.StartTime = nil
	podBefore, givenBefore := pod.DeepCopy(), *given.DeepCopy()
	w.SetPodStatus(pod, given)
	w.TerminatePod(pod)
	w.SetPodStatus(pod, given)
	require.Equal(t, podBefore, pod)
	require.Equal(t, givenBefore, given)
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	require.False(t, w.Update(pod.UID, func(*corev1.PodStatus) { t.Error("the function was called for an unknown pod") }))
	w.SetPodStatus(pod, simple("Running", "False"))
	require.False(t, w.Update(pod.UID, func(*corev1.PodStatus) {}))
	w.clock.Step(time.Minute)
	require.True(t, w.Update(pod.UID, func(s *corev1.PodStatus) {
		_, ok := w.GetPodStatus(pod.UID) // reading is allowed
		require.True(t, ok)
		s.Conditions[0].Status = "True"
	}))
	s, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, at(60).Unix(), readySince(s).Unix())
}

func TestUpdate_Atomic(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{Name: "a"}}})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				w.Update(pod.UID, func(s *corev1.PodStatus) { s.ContainerStatuses[0].RestartCount++ })
				s, _ := w.GetPodStatus(pod.UID)
				assert.Positive(t, s.ContainerStatuses[0].RestartCount)
				w.RemoveOrphanedStatuses(func(types.UID) bool { return true })
			}
		})
	}
	wg.Wait()
	require.Len(t, w.changes, 401)
	require.Equal(t, int32(400), w.changes[400].New.ContainerStatuses[0].RestartCount)
	for i, c := range w.changes {
		require.Equal(t, uint64(i+1), c.Version, "each change must be delivered once and in order")
		if i > 0 {
			require.Equal(t, w.changes[i-1].New, c.Old)
		}
	}
}

func TestRemoveOrphanedStatuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, uid := range []types.UID{"3", "1", "2"} {
		w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, simple("Running", "True"))
	}
	keep := func(uid types.UID) bool {
		_, ok := w.GetPodStatus(uid) // reading is allowed
		return ok && uid == "2"
	}
	require.Equal(t, 2, w.RemoveOrphanedStatuses(keep))
	require.Equal(t, []types.UID{"1", "3"}, w.removed)
	require.Zero(t, w.RemoveOrphanedStatuses(keep))
	_, ok := w.GetPodStatus("1")
	require.False(t, ok)
	_, ok = w.GetPodStatus("2")
	require.True(t, ok)
}

func TestRemovePodStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, uid := range []types.UID{"1", "2"} {
		w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, simple("Succeeded", "False"))
	}
	w.SetPodResizePending("3", "Deferred", "no room", 1) // no status yet
	require.False(t, w.RemovePodStatus("3"))
	require.True(t, w.RemovePodStatus("1"))
	require.False(t, w.RemovePodStatus("1"))
	require.Equal(t, []types.UID{"1"}, w.removed)
	pending, _ := w.ResizeConditions("3")
	require.Nil(t, pending)
	_, ok := w.GetPodStatus("2")
	require.True(t, ok)
	stored, _ := w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, simple("Failed", "False"))
	require.Equal(t, corev1.PodFailed, stored.Phase, "after a restart of the container the pod may fail")
}

func TestConfig_ZeroIsValid(t *testing.T) {
	t.Parallel()
	require.NoError(t, status.Config{}.Validate())
	m, err := status.New(status.Config{})
	require.NoError(t, err)
	pod := newPod("Never", "c0")
	m.SetPodStatus(pod, parseScene(t, "Never", "exit0").s)
	_, changed := m.SetPodStatus(pod, parseScene(t, "Never", "run").s)
	require.False(t, changed)
	require.Equal(t, corev1.PodFailed, m.TerminatePod(pod).Phase)
	require.Equal(t, 1, m.RemoveOrphanedStatuses(func(types.UID) bool { return false }))
}

// TestManager_Invariants writes at random and checks the guarantees of the package after
// every write. A failure contains its seed.
func TestManager_Invariants(t *testing.T) {
	t.Parallel()
	phases := []corev1.PodPhase{"Pending", "Running", "Running", "Unknown", "", "Succeeded", "Failed"}
	words := []string{"none", "run", "wait", "exit0", "exit1", "back1", "empty"}
	policies := []corev1.RestartPolicy{"Always", "OnFailure", "Never"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t)
		policy := policies[r.IntN(3)]
		pod := parseScene(t, policy, "run run").pod
		pod.UID = "uid"
		for range 40 {
			w.clock.Step(time.Duration(r.IntN(3000)) * time.Millisecond)
			next := parseScene(t, policy, fmt.Sprint(words[r.IntN(len(words))], " ", words[r.IntN(len(words))])).s
			next.Phase = phases[r.IntN(len(phases))]
			next.ObservedGeneration = r.Int64N(5)
			for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized} {
				next.Conditions = append(next.Conditions, corev1.PodCondition{
					Type: kind, Status: []corev1.ConditionStatus{"True", "False"}[r.IntN(2)], Reason: words[r.IntN(2)],
				})
			}
			switch r.IntN(20) {
			case 0:
				w.TerminatePod(pod)
			case 1, 2, 3:
				w.Update(pod.UID, func(s *corev1.PodStatus) { *s = next })
			default:
				w.SetPodStatus(pod, next)
			}
		}
		for i, c := range w.changes {
			require.Equal(t, uint64(i+1), c.Version, "seed %d", seed)
			checkNeverBack(t, pod, c, fmt.Sprintf("seed %d, change %d", seed, i))
		}
	}
}

func checkNeverBack(t *testing.T, pod *corev1.Pod, c status.Change, name string) {
	t.Helper()
	require.GreaterOrEqual(t, c.New.ObservedGeneration, c.Old.ObservedGeneration, name)
	if podspec.IsTerminal(c.Old.Phase) {
		require.Equal(t, c.Old.Phase, c.New.Phase, name)
	}
	if podspec.IsTerminal(c.New.Phase) {
		for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
			if cond := status.Condition(c.New.Conditions, kind); cond != nil {
				require.Equal(t, corev1.ConditionFalse, cond.Status, name)
			}
		}
	}
	if c.Version == 1 {
		return
	}
	require.Equal(t, c.Old.StartTime, c.New.StartTime, name)
	require.NoError(t, status.CheckTransition(pod, &c.Old, &c.New), name)
	for _, cond := range c.New.Conditions {
		before := status.Condition(c.Old.Conditions, cond.Type)
		if before != nil && before.Status == cond.Status {
			require.Equal(t, before.LastTransitionTime, cond.LastTransitionTime, name)
		} else if before != nil {
			require.False(t, cond.LastTransitionTime.Time.Before(before.LastTransitionTime.Time), name)
		}
	}
}
