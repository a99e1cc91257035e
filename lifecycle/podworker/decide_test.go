package podworker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// describe formats a state and the effects of a decision.
func describe(s state, e effects) string {
	words := []string{s.phase.String()}
	for _, flag := range []struct {
		set  bool
		name string
	}{
		{s.pending, "wanted"},
		{s.stopping, "stopping"},
		{s.deleted, "deleted"},
		{s.evicted, "evicted"},
		{s.restart, "restart"},
		{s.inRuntime, "inRuntime"},
		{len(s.waiters) > 0, "waits"},
		{e.cancel, "cancel"},
		{len(e.report) > 0, "report"},
		{e.ignored != "", "ignored"},
	} {
		if flag.set {
			words = append(words, flag.name)
		}
	}
	if s.grace != 0 {
		words = append(words, s.grace.String())
	}
	return strings.Join(words, " ")
}

func TestApplyUpdate(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "a"}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(30))}}
	gone, failed := pod.DeepCopy(), pod.DeepCopy()
	gone.DeletionTimestamp, gone.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, new(int64(5))
	failed.Status.Phase = corev1.PodFailed
	seen := &podcache.Status{UID: "a"}
	kill := func(how KillOptions) Update { return Update{Type: Kill, Pod: pod, Kill: how} }
	create, killed, onlyRuntime := Update{Type: Create, Pod: pod}, kill(KillOptions{}), Update{Type: Kill, Running: seen}

	syncing := state{pod: pod, started: true}
	ending := state{pod: pod, started: true, phase: Terminating, stopping: true, grace: 10 * time.Second}
	ended := state{pod: pod, started: true, phase: Terminated, stopping: true, grace: time.Second}
	finished := state{pod: pod, started: true, phase: Finished, stopping: true}
	known := facts{known: true}

	for _, tt := range []struct {
		name   string
		before state
		update Update
		facts  facts
		want   string
	}{
		{"a new pod", state{}, create, facts{}, "sync wanted report"},
		{"a new pod that is being deleted", state{}, Update{Type: Create, Pod: gone}, facts{}, "terminating wanted deleted waits cancel 5s"},
		{"a new pod that ended before", state{}, Update{Type: Create, Pod: failed}, facts{}, "terminated wanted stopping report"},
		{"a new pod that ended and runs", state{}, Update{Type: Create, Pod: failed}, facts{runs: true}, "terminating wanted waits cancel 30s"},
		{"a new pod from the runtime", state{}, onlyRuntime, facts{}, "terminating wanted deleted inRuntime waits cancel 1s"},
		{"a pod from the runtime that is to sync", state{}, Update{Type: Sync, Running: seen}, facts{}, "sync report ignored"},
		{"sync of an unknown pod", state{}, Update{Type: Sync, Pod: pod}, facts{}, "sync report ignored"},
		{"change of an unknown pod", state{}, Update{Type: Change, Pod: pod}, facts{}, "sync wanted report"},
		{"kill", syncing, killed, known, "terminating wanted waits cancel 30s"},
		{"evict", syncing, kill(KillOptions{Evict: true}), known, "terminating wanted evicted waits cancel 30s"},
		{"the runtime's view of a known pod", syncing, onlyRuntime, known, "terminating wanted deleted inRuntime waits cancel 30s"},
		{"create again", syncing, create, known, "sync wanted report"},
		{"create while the pod terminates", ending, create, known, "terminating stopping restart report ignored 10s"},
		{"create after the pod has finished", finished, create, known, "finished stopping restart report ignored"},
		{"sync while the pod terminates", ending, Update{Type: Sync, Pod: pod}, known, "terminating wanted stopping waits 10s"},
		{"kill with the same grace", ending, kill(KillOptions{Grace: new(10 * time.Second)}), known, "terminating wanted stopping waits 10s"},
		{"kill with a longer grace", ending, kill(KillOptions{Grace: new(time.Minute)}), known, "terminating wanted stopping waits 10s"},
		{"kill with a shorter grace", ending, kill(KillOptions{Grace: new(2 * time.Second)}), known, "terminating wanted stopping waits cancel 2s"},
		{"a shorter grace period without a kill", ending, Update{Type: Change, Pod: pod, Kill: KillOptions{Grace: new(time.Second)}}, known, "terminating wanted stopping waits 10s"},
		{"kill when nothing runs", ended, killed, known, "terminated wanted stopping report 1s"},
		{"the runtime's view when nothing runs", ended, onlyRuntime, known, "terminated stopping inRuntime report ignored 1s"},
		{"kill after the end", finished, killed, known, "finished stopping report ignored"},
		{"kill while the pod waits for another", state{pod: pod}, killed, facts{known: true, waits: true}, "finished stopping cancel report 30s"},
		{"evict while the pod waits for another", state{pod: pod}, kill(KillOptions{Evict: true, StatusFn: func(*corev1.PodStatus) {}}), facts{known: true, waits: true}, "terminating wanted evicted waits cancel 30s"},
		{"kill while the pod waits for another, but runs", state{pod: pod}, killed, facts{known: true, waits: true, runs: true}, "terminating wanted inRuntime waits cancel 30s"},
		{"kill behind another after a start", syncing, killed, facts{known: true, waits: true}, "terminating wanted waits cancel 30s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			done := make(chan error, 1)
			got, e := applyUpdate(tt.before, tt.update, done, tt.facts)
			require.Equal(t, tt.want, describe(got, e))
			require.Equal(t, 1, len(got.waiters)+len(e.report), "a waiter must be either kept or notified")
			require.GreaterOrEqual(t, got.phase, tt.before.phase)
		})
	}
}

func TestAdvance(t *testing.T) {
	t.Parallel()
	pod, failure := &corev1.Pod{}, fmt.Errorf("no")
	for _, tt := range []struct {
		name   string
		before state
		turn   outcome
		want   string
		moved  bool
	}{
		{"a sync", state{pod: pod}, outcome{}, "sync", false},
		{"a sync to the end", state{pod: pod}, outcome{terminal: true}, "terminating wanted 30s", true},
		{"a sync to the end that failed", state{pod: pod}, outcome{terminal: true, err: failure}, "sync", false},
		{"a sync that was overtaken", state{pod: pod, phase: Terminating}, outcome{terminal: true}, "terminating", false},
		{"a stop", state{pod: pod, phase: Terminating}, outcome{phase: Terminating}, "terminated wanted", true},
		{"a stop that failed", state{pod: pod, phase: Terminating}, outcome{phase: Terminating, err: failure}, "terminating", false},
		{"a stop without a spec", state{phase: Terminating, pending: true}, outcome{phase: Terminating}, "finished", true},
		{"a cleanup", state{pod: pod, phase: Terminated, pending: true}, outcome{phase: Terminated}, "finished", true},
		{"a cleanup that failed", state{pod: pod, phase: Terminated}, outcome{phase: Terminated, err: failure}, "terminated", false},
		{"nothing", state{pod: pod, phase: Finished}, outcome{phase: Finished}, "finished", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, moved, report := advance(tt.before, tt.turn)
			require.Equal(t, tt.want, describe(got, effects{report: report}))
			require.Equal(t, tt.moved, moved)
		})
	}
}
