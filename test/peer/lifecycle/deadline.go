package lifecycle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	_ "k8s.io/kubernetes/pkg/kubelet" // the linker must include the functions below
	kubeletlifecycle "k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

//go:linkname newActiveDeadlineHandler k8s.io/kubernetes/pkg/kubelet.newActiveDeadlineHandler
func newActiveDeadlineHandler(statuses kubeletstatus.PodStatusProvider, events record.EventRecorder, c clock.Clock) (unsafe.Pointer, error)

//go:linkname shouldSync k8s.io/kubernetes/pkg/kubelet.(*activeDeadlineHandler).ShouldSync
func shouldSync(handler unsafe.Pointer, pod *corev1.Pod) bool

//go:linkname shouldEvict k8s.io/kubernetes/pkg/kubelet.(*activeDeadlineHandler).ShouldEvict
func shouldEvict(handler unsafe.Pointer, pod *corev1.Pod) kubeletlifecycle.ShouldEvictResponse

// A deadlineWorld is a pod, and the agent's knowledge of it over time.
type deadlineWorld struct {
	Pod   *corev1.Pod
	Steps []deadlineStep
}

// A deadlineStep is one check of the pod. Its changes also apply to later steps.
type deadlineStep struct {
	After time.Duration // since the previous step; negative if the clock is set back
	// Known is set if the agent has reported a status with this start time.
	Known bool
	Start *metav1.Time
	// Limit is the pod's activeDeadlineSeconds, which may be set or lowered later.
	Limit *int64
}

func drawDeadlineWorld(d *judge.Draw) *deadlineWorld {
	start := func() *metav1.Time {
		return judge.Pick(d, new(metav1.NewTime(deadlineBegin())), new(metav1.NewTime(deadlineBegin().Add(-time.Hour))),
			new(metav1.NewTime(deadlineBegin().Add(20*time.Second))), &metav1.Time{}, nil)
	}
	w := &deadlineWorld{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid"}}}
	w.Pod.Status.StartTime = start()
	step := deadlineStep{}
	for range d.Between(1, 6) {
		step.After = judge.Pick(d, 0, time.Second, 10*time.Second, 29*time.Second, 999*time.Millisecond, time.Hour, -10*time.Second, 100*365*24*time.Hour)
		if d.Chance(40) {
			step.Known, step.Start = d.Chance(70), start()
		}
		if d.Chance(50) {
			step.Limit = judge.Maybe(d, 90, func() int64 { return judge.Pick(d, int64(30), 1, 10, 3600, math.MaxInt32) })
		}
		w.Steps = append(w.Steps, step)
	}
	return w
}

func deadlineBegin() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

// A deadlineAgent provides the reported status and the time to both sides.
type deadlineAgent struct {
	kubeletstatus.PodStatusProvider

	clock *testingclock.FakeClock
	step  *deadlineStep
}

func (a *deadlineAgent) GetPodStatus(uid types.UID) (corev1.PodStatus, bool) {
	if !a.step.Known || uid != "uid" {
		return corev1.PodStatus{}, false
	}
	return corev1.PodStatus{StartTime: a.step.Start}, true
}

// play runs look for the pod in each step.
func (w *deadlineWorld) play(look func(*deadlineAgent, *corev1.Pod) judge.Facts) (all []judge.Facts) {
	a := &deadlineAgent{clock: testingclock.NewFakeClock(deadlineBegin())}
	for i := range w.Steps {
		a.step = &w.Steps[i]
		a.clock.SetTime(a.clock.Now().Add(a.step.After))
		w.Pod.Spec.ActiveDeadlineSeconds = a.step.Limit
		all = append(all, look(a, w.Pod.DeepCopy()))
	}
	return all
}

func playDeadlineKubelet(t *testing.T, w *deadlineWorld) []judge.Facts {
	t.Helper()
	return w.play(func(a *deadlineAgent, pod *corev1.Pod) judge.Facts {
		events := record.NewFakeRecorder(10)
		handler, err := newActiveDeadlineHandler(a, events, a.clock)
		require.NoError(t, err)
		answer := shouldEvict(handler, pod)
		f := judge.Facts{"sync": strconv.FormatBool(shouldSync(handler, pod)), "evict": evictText(answer.Evict, answer.Reason, answer.Message)}
		if len(events.Events) > 0 {
			f["event"] = <-events.Events
		}
		if due, ok := a.due(pod); ok { // recorded only if the kubelet confirms it
			now := a.clock.Now()
			a.clock.SetTime(due.Add(-1))
			before := shouldSync(handler, pod)
			a.clock.SetTime(due)
			require.True(t, !before && shouldSync(handler, pod), "the kubelet's deadline of the pod is not %v", due)
			a.clock.SetTime(now)
			f["due"] = due.String()
		}
		return f
	})
}

// due returns the end of the pod's active deadline, if it has one and has started.
func (a *deadlineAgent) due(pod *corev1.Pod) (time.Time, bool) {
	start := pod.Status.StartTime
	if a.step.Known {
		start = a.step.Start
	}
	if start.IsZero() || pod.Spec.ActiveDeadlineSeconds == nil {
		return time.Time{}, false
	}
	return start.Add(time.Duration(*pod.Spec.ActiveDeadlineSeconds) * time.Second), true
}

func playDeadlineOurs(_ *testing.T, w *deadlineWorld) []judge.Facts {
	return w.play(func(a *deadlineAgent, pod *corev1.Pod) judge.Facts {
		handler := lifecycle.ActiveDeadline{Clock: a.clock, Status: a.GetPodStatus}
		answer := lifecycle.SyncHandlers{handler}.ShouldEvict(pod)
		f := judge.Facts{
			"sync":  strconv.FormatBool(lifecycle.SyncLoopHandlers{handler}.ShouldSync(pod)),
			"evict": evictText(answer.Evict, answer.Reason, answer.Message),
		}
		if due, ok := handler.Due(pod); ok {
			f["due"] = due.String()
		}
		return f
	})
}

func evictText(evict bool, reason, message string) string {
	return fmt.Sprintf("%t %s %s", evict, reason, message)
}

func deadlineRules() []judge.Rule[*deadlineWorld] {
	return []judge.Rule[*deadlineWorld]{{
		Name: "no DeadlineExceeded event", Class: judge.Deliberate, Doc: doc,
		Sentence: "ActiveDeadline sends no event; the kubelet sends an event each time it finds that a pod's deadline has passed.",
		Explains: func(s judge.Scene[*deadlineWorld]) bool {
			_, text, evicts := strings.Cut(s.KubeletFacts[s.Step]["evict"], "true ")
			return s.Fact == "event" && evicts && s.Kubelet == "Normal "+text && s.Ours == ""
		},
	}}
}
