package oomwatch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/oomwatch"
)

// recorder records events as "kind name: type reason message".
type recorder struct{ events []string }

func (r *recorder) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	name := object.(metav1.Object).GetName()
	r.events = append(r.events, fmt.Sprintf("%s: %s %s %s", name, eventtype, reason, fmt.Sprintf(format, args...)))
}

type reports struct {
	recorder

	clock      *testingclock.FakePassiveClock
	suppressed int
	*oomwatch.Reporter
}

func newReports(t *testing.T) *reports {
	t.Helper()
	r := &reports{clock: testingclock.NewFakePassiveClock(time.Unix(0, 0))}
	reporter, err := oomwatch.NewReporter(oomwatch.ReporterConfig{
		Events: r, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		Pod: func(uid types.UID, id string) (*corev1.Pod, string, bool) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-" + string(uid), UID: uid}}
			return pod, id, uid != "unknown"
		},
		Clock: r.clock, Suppressed: func(oomwatch.Kill) { r.suppressed++ },
	})
	require.NoError(t, err)
	r.Reporter = reporter
	return r
}

func TestReporter_Events(t *testing.T) {
	exe := oomwatch.Victim{Process: "exe", PID: 7}
	const (
		pod       = "/kubepods/pod8dd2e6c1-40d5-4b02-9a8f-4c3f2d7f9c11"
		container = pod + "/f20ebb44f6702de441b027aacb40bca460723ed11ddceaf371f719ce09f32cef"
	)
	for name, c := range map[string]struct {
		kill   oomwatch.Kill
		events []string
	}{
		"the machine, as in the kubelet": {
			oomwatch.Kill{Kind: oomwatch.System, Kills: 1, Victim: exe},
			[]string{"node: Warning SystemOOM System OOM encountered, victim process: exe, pid: 7"},
		},
		"the machine, unknown victim": {
			oomwatch.Kill{Kind: oomwatch.System, Kills: 1},
			[]string{"node: Warning SystemOOM System OOM encountered"},
		},
		"the machine, a pod's process": {
			oomwatch.Kill{Kind: oomwatch.System, Kills: 1, Victim: exe, PodUID: "a", ContainerID: "c"},
			[]string{
				"node: Warning SystemOOM System OOM encountered, victim process: exe, pid: 7",
				"pod-a: Warning OOMKilled The node ran out of memory, killed process: exe, pid: 7",
			},
		},
		"a container": {
			oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: container, VictimCgroup: container},
			[]string{"pod-a: Warning OOMKilled Container c reached its memory limit, killed process: exe, pid: 7"},
		},
		"a container by its pod's limit": {
			oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: pod, VictimCgroup: container},
			[]string{"pod-a: Warning OOMKilled The pod reached its memory limit, killed process: exe, pid: 7"},
		},
		"a group": {
			oomwatch.Kill{Kind: oomwatch.Group, Kills: 3, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: container, VictimCgroup: container},
			[]string{"pod-a: Warning OOMKilled Container c reached its memory limit, killed 3 processes, the first: exe, pid: 7"},
		},
		"a kill in a pod that only counters report": {
			oomwatch.Kill{Kills: 2, PodUID: "a"},
			[]string{"pod-a: Warning OOMKilled The pod ran out of memory, processes killed: 2"},
		},
		"a kill in a container that only counters report": {
			oomwatch.Kill{Kills: 2, PodUID: "a", ContainerID: "c"},
			[]string{"pod-a: Warning OOMKilled Container c ran out of memory, processes killed: 2"},
		},
		"a cgroup that the runtime creates inside the container's": {
			oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: container, VictimCgroup: container + "/container"},
			[]string{"pod-a: Warning OOMKilled Container c reached its memory limit, killed process: exe, pid: 7"},
		},
		"all pods together": {
			oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: "/kubepods", VictimCgroup: container},
			[]string{"pod-a: Warning OOMKilled The node's pods together reached their common memory limit, killed process: exe, pid: 7"},
		},
		"the machine, and a container that is killed as a whole": {
			oomwatch.Kill{Kind: oomwatch.Group, Kills: 3, Victim: exe, PodUID: "a", ContainerID: "c", LimitCgroup: "/", VictimCgroup: container},
			[]string{
				"node: Warning SystemOOM System OOM encountered, victim process: exe, pid: 7",
				"pod-a: Warning OOMKilled The node ran out of memory, killed 3 processes, the first: exe, pid: 7",
			},
		},
		"a name with unprintable bytes": {
			oomwatch.Kill{Kind: oomwatch.System, Kills: 1, Victim: oomwatch.Victim{Process: "a\xff\n(b)", PID: 7}},
			[]string{"node: Warning SystemOOM System OOM encountered, victim process: a\ufffd\ufffd(b), pid: 7"},
		},
		"a pod that does not exist any more": {oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, PodUID: "unknown"}, nil},
		"no pod":                             {oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReports(t)
			r.Report(t.Context(), c.kill)
			require.Equal(t, c.events, r.events)
		})
	}
}

func TestReporter_FiveEventsAtOnceThenOnePerMinute(t *testing.T) {
	r := newReports(t)
	report := func(n int) (told int) {
		before := len(r.events)
		for range n {
			r.Report(t.Context(), oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, PodUID: "a"})
		}
		return len(r.events) - before
	}
	require.Equal(t, 5, report(100))
	require.Equal(t, 95, r.suppressed)
	r.clock.SetTime(time.Unix(59, 0))
	require.Zero(t, report(1))
	r.clock.SetTime(time.Unix(60, 0))
	require.Equal(t, 1, report(3))
	r.clock.SetTime(time.Unix(150, 0))
	require.Equal(t, 1, report(3))
	r.clock.SetTime(time.Unix(180, 0))
	require.Equal(t, 1, report(3), "the earlier half minute must count for the budget")
	r.Report(t.Context(), oomwatch.Kill{Kind: oomwatch.Cgroup, Kills: 1, PodUID: "b"})
	require.Contains(t, r.events[len(r.events)-1], "pod-b", "another pod must have a separate budget")
	r.clock.SetTime(time.Unix(3600, 0))
	require.Equal(t, 5, report(9))
}
