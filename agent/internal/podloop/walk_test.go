package podloop

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// none is the phase of a pod without a worker.
const none = podworker.Phase(99)

// world is a model of the parts around the record of one pod: a source, the admission queue,
// a worker and the remover. They deliver their reports later, in order.
type world struct {
	*require.Assertions
	random *rand.Rand
	source string
	r      record
	serial uint64
	log    []string

	posted         []event
	admissionQueue []do
	active         bool // in the list of the admission queue
	worker         podworker.Phase
	earlier        bool // containers of an earlier agent are running
	removing       bool
	answered       map[uint64]bool // versions whose admission has finished
	endedOnce      bool            // the pod had ended before its source defined it, so it was started without admission
}

func (w *world) runs() bool { return w.earlier || w.worker <= podworker.Terminating }

func (w *world) apply(e event) {
	w.serial++
	e.uid, e.serial, e.runs = "u", w.serial, w.runs()
	before := w.r
	after, todo := next(before, e)
	w.log = append(w.log, fmt.Sprintf("%v: %s -> %s", e.kind, show(before, nil), show(after, todo)))
	if before.state == Gone && after.state != Gone {
		w.Contains([]eventKind{evDefined, evDeleted, evFound}, e.kind, "a pod that is gone comes back by its source or the runtime")
	}
	w.r = after
	for _, d := range todo {
		w.perform(after, d, e)
	}
	w.False(after.state == Offered && after.hasWorker, "a worker has a pod that waits for admission")
	w.False(after.removing && after.hasWorker, "a pod is removed while a worker has it")
	w.False(after.state == Gone && after.removing, "a pod is forgotten while it is removed")
}

func (w *world) perform(r record, d do, e event) {
	free := w.worker == none || w.worker == podworker.Finished
	switch d.action {
	case doAdmit, doRelease:
		w.admissionQueue = append(w.admissionQueue, d)
	case doStart:
		w.Equal(none, w.worker, "a pod that is started has no worker")
		w.True(e.kind == evDefined && e.ended || w.answered[r.version], "nothing starts without an answer")
		w.endedOnce = e.ended
		w.worker = podworker.Syncing
	case doUpdate, doSync:
		w.NotEqual(none, w.worker)
	case doStop:
		if w.worker == none || w.worker == podworker.Syncing {
			w.move(podworker.Terminating)
		}
	case doResume, doStopOrphan:
		w.Equal(none, w.worker)
		w.move(podworker.Terminating)
	case doRemove:
		w.True(free, "only what has ended is removed")
		w.False(w.removing)
		w.removing = true
	case doForget, doForgetWorker:
		w.True(free, "no worker is forgotten that works")
		w.False(w.removing)
		w.worker = none
	case doRefuse, doRefuseEdit, doUnrefuse, doReportEdit, doPublish, doTerminate, doEnded:
	}
}

func (w *world) move(to podworker.Phase) {
	w.worker = to
	if to >= podworker.Terminated {
		w.earlier = false
	}
	w.posted = append(w.posted, event{kind: evPhaseChanged, phase: to})
}

// proceed lets the admission queue, the worker or the remover take a step, or delivers one of
// their reports. It returns false if all of them are idle.
func (w *world) proceed() bool {
	var steps []func()
	if len(w.posted) > 0 {
		steps = append(steps, func() { e := w.posted[0]; w.posted = w.posted[1:]; w.apply(e) })
	}
	if len(w.admissionQueue) > 0 {
		steps = append(steps, w.laneStep)
	}
	if w.worker == podworker.Terminating || w.worker == podworker.Terminated {
		steps = append(steps, func() { w.move(w.worker + 1) })
	}
	if w.removing {
		steps = append(steps, func() { w.removing = false; w.posted = append(w.posted, event{kind: evRemoved}) })
	}
	if w.worker == podworker.Syncing && w.endedOnce {
		steps = append(steps, func() { w.move(podworker.Terminating) })
	}
	if len(steps) == 0 {
		return false
	}
	steps[w.random.IntN(len(steps))]()
	return true
}

func (w *world) laneStep() {
	d := w.admissionQueue[0]
	w.admissionQueue = w.admissionQueue[1:]
	switch {
	case d.action == doRelease:
		w.active = false
	case w.random.IntN(2) == 0:
		w.active, w.answered[d.version] = true, true
		w.posted = append(w.posted, event{kind: evAnswered, version: d.version, result: lifecycle.PodAdmitResult{Admit: true}})
	default:
		w.active = w.active && d.edit
		w.posted = append(w.posted, event{kind: evAnswered, version: d.version, result: noPlace()})
	}
}

// disturb applies an external event.
func (w *world) disturb() {
	pod := func(change ...func(*corev1.Pod)) *corev1.Pod {
		return testPod(w.source, fmt.Sprintf("web:%d", w.random.IntN(3)), change...)
	}
	events := []event{
		{kind: evDefined, pod: pod(), source: w.source},
		{kind: evDefined, pod: pod(), source: w.source},
		{kind: evDefined, pod: pod(), source: w.source, ended: w.r.state == Gone && !w.earlier},
		{kind: evUndefined},
		{kind: evReconciled, pod: pod(), source: w.source},
		{kind: evRetry},
		{kind: evDependencyChanged},
		{kind: evKilled},
		{kind: evKilled, removalReason: evicted},
		{kind: evKilled, stopped: true},
		{kind: evKilled, stopped: true, removalReason: emptied},
		{kind: evResumed},
	}
	if w.source == podspec.SourceAPI {
		gone := pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
		events = append(events, event{kind: evDeleted, pod: gone, source: w.source})
	}
	if w.r.state == Gone {
		events = append(events, event{kind: evFound, status: &podcache.Status{UID: "u"}})
	}
	if w.worker == podworker.Syncing && w.random.IntN(3) == 0 {
		w.move(podworker.Terminating) // the pod terminates by itself
		return
	}
	w.apply(events[w.random.IntN(len(events))])
}

// TestNext_RandomWalks applies events in random order. At the end, the pod must reach a state
// in which nothing waits forever, and it must have allocations exactly while it runs.
func TestNext_RandomWalks(t *testing.T) {
	t.Parallel()
	for seed := range uint64(1000) {
		w := &world{
			Assertions: require.New(t), random: rand.New(rand.NewPCG(seed, 1)), source: podspec.SourceFile,
			r: record{uid: "u", state: Gone}, worker: none, answered: map[uint64]bool{},
		}
		if seed%2 == 0 {
			w.source = podspec.SourceAPI
		}
		w.earlier = w.random.IntN(2) == 0
		for range 60 {
			if w.random.IntN(3) == 0 || !w.proceed() {
				w.disturb()
			}
			if t.Failed() {
				break
			}
		}
		for w.proceed() {
		}
		rest := fmt.Sprintf("seed %d: %v", seed, w.log)
		switch w.r.state {
		case Admitted:
			require.Equal(t, podworker.Syncing, w.worker, rest)
			require.True(t, w.active || w.endedOnce, rest)
		case Refused:
			require.Equal(t, none, w.worker, rest)
			require.False(t, w.active, rest)
		case Ended:
			require.False(t, w.r.leaving(), rest)
			require.False(t, w.active, rest)
		case Removed, Gone:
			require.False(t, w.active, rest)
		case Offered, Ending:
			require.Fail(t, "the pod does not reach a final state", rest)
		}
		require.False(t, w.r.removing, rest)
	}
}
