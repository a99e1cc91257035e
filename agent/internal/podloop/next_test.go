package podloop

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// testPod returns a pod with one container. Each image is a different spec.
func testPod(source, image string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "u",
			Annotations: map[string]string{podspec.SourceAnnotation: source},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func noPlace() lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{Reason: "OutOfpods", Message: "no place"}
}

// exampleRecords returns the initial states of the tables in testdata/next, for static and
// API pods.
func exampleRecords(source string) []struct {
	name string
	record
} {
	v1, v2 := testPod(source, "web:1"), testPod(source, "web:2")
	of := func(state State, change func(*record)) record {
		r := record{uid: "u", state: state, pod: v1, source: source, version: 1}
		if change != nil {
			change(&r)
		}
		return r
	}
	return []struct {
		name string
		record
	}{
		{"unknown", record{uid: "u", state: Gone}},
		{"offered", of(Offered, nil)},
		{"offered after a refusal", of(Offered, func(r *record) { r.refusal = noPlace() })},
		{"refused", of(Refused, func(r *record) { r.refusal = noPlace() })},
		{"refused, an earlier version stops", of(Refused, func(r *record) { r.refusal, r.hasWorker = noPlace(), true })},
		{"admitted", of(Admitted, func(r *record) { r.hasWorker = true })},
		{"admitted, edit waits", of(Admitted, func(r *record) { r.newer, r.hasWorker = v2, true })},
		{"admitted, edit refused", of(Admitted, func(r *record) { r.newer, r.hasWorker, r.refusal = v2, true, noPlace() })},
		{"ending, defined", of(Ending, func(r *record) { r.hasWorker = true })},
		{"ending, undefined", of(Ending, func(r *record) { r.source, r.hasWorker = "", true })},
		{"ending, defined again", of(Ending, func(r *record) { r.newer, r.restartAfterRemoval, r.hasWorker = v2, true, true })},
		{"ending, deleted", of(Ending, func(r *record) { r.removalReason, r.hasWorker = deleted, true })},
		{"ending, evicted", of(Ending, func(r *record) { r.removalReason, r.hasWorker = evicted, true })},
		{"ending, stopped", of(Ending, func(r *record) { r.removalReason, r.hasWorker, r.stopped = emptied, true, true })},
		{"ended, worker cleans up", of(Ended, func(r *record) { r.hasWorker = true })},
		{"ended, undefined, worker cleans up", of(Ended, func(r *record) { r.source, r.hasWorker = "", true })},
		{"ended", of(Ended, nil)},
		{"ended, undefined", of(Ended, func(r *record) { r.source, r.removing = "", true })},
		{"ended, defined again", of(Ended, func(r *record) { r.restartAfterRemoval, r.removing = true, true })},
		{"ended, deleted", of(Ended, func(r *record) { r.removalReason, r.removing = deleted, true })},
		{"ended, evicted", of(Ended, func(r *record) { r.removalReason, r.removing = evicted, true })},
		{"ended by a shutdown", of(Ended, func(r *record) { r.stopped = true })},
		{"removed, deleted", of(Removed, func(r *record) { r.removalReason = deleted })},
		{"removed, evicted", of(Removed, func(r *record) { r.removalReason = evicted })},
		{"removed, stopped", of(Removed, func(r *record) { r.removalReason, r.stopped = emptied, true })},
	}
}

// exampleEvents returns the events of the tables in testdata/next, by name.
func exampleEvents(source string) map[string]event {
	admitted := lifecycle.PodAdmitResult{Admit: true}
	deletedPod := testPod(source, "web:1", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
	labelled := testPod(source, "web:1", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} })
	// The pod has a readiness gate, whose condition has become True since Ready was computed.
	gate := testPod(source, "web:1", func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		p.Status.Conditions = []corev1.PodCondition{
			{Type: "example.com/gate", Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse},
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", Ready: true}}
	})
	status := &podcache.Status{UID: "u", Namespace: "default", Name: "web"}
	return map[string]event{
		"defined":               {kind: evDefined, pod: testPod(source, "web:3"), source: source},
		"defined, same spec":    {kind: evDefined, pod: labelled, source: source},
		"defined, ended before": {kind: evDefined, pod: testPod(source, "web:3"), source: source, ended: true},
		"deleted":               {kind: evDeleted, pod: deletedPod, source: source},
		"deleted, it runs":      {kind: evDeleted, pod: deletedPod, source: source, runs: true},
		"reconciled":            {kind: evReconciled, pod: labelled, source: source},
		"reconciled, a gate":    {kind: evReconciled, pod: gate, source: source},
		"undefined":             {kind: evUndefined},
		"undefined, it runs":    {kind: evUndefined, runs: true},
		"admitted":              {kind: evAnswered, version: 1, result: admitted},
		"admitted, it runs":     {kind: evAnswered, version: 1, result: admitted, runs: true},
		"refused":               {kind: evAnswered, version: 1, result: noPlace()},
		"refused, it runs":      {kind: evAnswered, version: 1, result: noPlace(), runs: true},
		"an older answer":       {kind: evAnswered, version: 0, result: admitted},
		"retry":                 {kind: evRetry},
		"synced":                {kind: evDependencyChanged},
		"killed":                {kind: evKilled},
		"evicted":               {kind: evKilled, removalReason: evicted},
		"stopped":               {kind: evKilled, removalReason: emptied, stopped: true},
		"terminating":           {kind: evPhaseChanged, phase: podworker.Terminating},
		"terminated":            {kind: evPhaseChanged, phase: podworker.Terminated},
		"finished":              {kind: evPhaseChanged, phase: podworker.Finished},
		"removed":               {kind: evRemoved},
		"found":                 {kind: evFound, status: status},
		"found, it runs":        {kind: evFound, status: status, runs: true},
		"resumed":               {kind: evResumed},
	}
}

func (a action) String() string {
	return [...]string{
		"request admission", "release", "start", "update", "sync", "stop", "resume", "stopOrphan", "refuse", "refuseEdit",
		"unrefuse", "reportEdit", "publish", "terminate", "ended", "remove", "forget", "forgetWorker",
	}[a]
}

func show(r record, todo []do) string {
	words := []string{r.state.String()}
	for _, flag := range []struct {
		set  bool
		name string
	}{
		{r.source == "" && r.state != Gone, "undefined"},
		{r.newer != nil, "newer"},
		{r.refusal.Reason != "", "refusal"},
		{r.hasWorker, "working"},
		{r.removalReason == deleted, "deleted"},
		{r.removalReason == evicted, "evicted"},
		{r.removalReason == emptied, "emptied"},
		{r.removing, "removing"},
		{r.restartAfterRemoval, "again"},
		{r.stopped, "stopped"},
		{r.adopted, "adopted"},
	} {
		if flag.set && r.state != Gone {
			words = append(words, flag.name)
		}
	}
	text := strings.Join(words, " ")
	for i, d := range todo {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		text += sep + d.action.String()
		if d.edit {
			text += " (edit)"
		}
	}
	return text
}

// TestNext shows all transitions. After a deliberate change run:
// go test ./agent/internal/podloop -run TestNext -rewrite
func TestNext(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/next/table", func(t *testing.T, d *datadriven.TestData) string {
		t.Helper()
		var source, name string
		d.ScanArgs(t, "source", &source)
		name = strings.TrimSpace(d.Input)
		e, ok := exampleEvents(source)[name]
		require.True(t, ok, name)
		e.uid, e.serial = "u", 2
		var b strings.Builder
		for _, r := range exampleRecords(source) {
			before := show(r.record, nil)
			after, todo := next(r.record, e)
			require.Equal(t, before, show(r.record, nil), "next must not modify its argument")
			if got := show(after, todo); got != before {
				fmt.Fprintf(&b, "%-35s -> %s\n", r.name, got)
			}
		}
		if b.Len() == 0 {
			return "nothing changes\n"
		}
		return b.String()
	})
}
