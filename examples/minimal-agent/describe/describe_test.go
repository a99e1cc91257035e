package describe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/describe"
	"github.com/kubeparts/kubeparts/prober"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}}
}

func running(name string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Ready: ready, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}},
	}
}

func ended(name string, code, signal int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Signal: signal, Reason: reason, FinishedAt: metav1.NewTime(now),
	}}}
}

// pod has the containers that its statuses are about. Those of init containers come
// first; a name that begins with s is a sidecar's.
func pod(phase corev1.PodPhase, inits, mains []corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for _, s := range inits {
		c := corev1.Container{Name: s.Name}
		if s.Name[0] == 's' {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for _, s := range mains {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: s.Name, Image: "image"})
	}
	p.Status = corev1.PodStatus{Phase: phase, InitContainerStatuses: inits, ContainerStatuses: mains}
	return p
}

func list(s ...corev1.ContainerStatus) []corev1.ContainerStatus { return s }

func TestStateIsWhatKubectlShows(t *testing.T) {
	t.Parallel()
	evicted := pod(corev1.PodFailed, nil, list(ended("a", 137, 9, "Error")))
	evicted.Status.Reason = "Evicted"
	deleted := pod(corev1.PodRunning, nil, list(running("a", true)))
	deleted.DeletionTimestamp = new(metav1.NewTime(now))
	ready := pod(corev1.PodRunning, nil, list(ended("a", 0, 0, "Completed"), running("b", true)))
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for want, p := range map[string]*corev1.Pod{
		"Pending":               pod("", nil, nil),
		"Running":               pod(corev1.PodRunning, nil, list(running("a", true))),
		"CrashLoopBackOff":      pod(corev1.PodRunning, nil, list(waiting("a", "CrashLoopBackOff"), running("b", true))),
		"ContainerCreating":     pod(corev1.PodPending, nil, list(waiting("a", "ContainerCreating"))),
		"Completed":             pod(corev1.PodSucceeded, nil, list(ended("a", 0, 0, "Completed"))),
		"OOMKilled":             pod(corev1.PodFailed, nil, list(ended("a", 137, 0, "OOMKilled"))),
		"ExitCode:3":            pod(corev1.PodFailed, nil, list(ended("a", 3, 0, ""))),
		"Signal:9":              pod(corev1.PodFailed, nil, list(ended("a", 137, 9, ""))),
		"NotReady":              pod(corev1.PodRunning, nil, list(ended("a", 0, 0, "Completed"), running("b", true))),
		"Init:0/2":              pod(corev1.PodPending, list(running("i", false), waiting("j", "PodInitializing")), list(waiting("a", "PodInitializing"))),
		"Init:1/2":              pod(corev1.PodPending, list(ended("i", 0, 0, "Completed"), running("j", false)), list(waiting("a", "PodInitializing"))),
		"Init:Error":            pod(corev1.PodPending, list(ended("i", 1, 0, "Error")), list(waiting("a", "PodInitializing"))),
		"Init:ImagePullBackOff": pod(corev1.PodPending, list(running("s", true), waiting("i", "ImagePullBackOff")), list(waiting("a", "PodInitializing"))),
		"Evicted":               evicted,
		"Terminating":           deleted,
	} {
		require.Equal(t, want, describe.State(p, false), want)
	}
	require.Equal(t, "Running", describe.State(ready, false))
	require.Equal(t, "Running", describe.State(pod(corev1.PodRunning, list(ended("i", 0, 0, "Completed"), running("s", true)), list(running("a", true))), false))
	require.Equal(t, "Terminating", describe.State(pod(corev1.PodRunning, nil, list(running("a", true))), true))
	require.Equal(t, "Completed", describe.State(pod(corev1.PodSucceeded, nil, list(ended("a", 0, 0, "Completed"))), true))
}

func TestPodHasItsContainersInTheOrderOfTheirBegin(t *testing.T) {
	t.Parallel()
	crashed := waiting("a", "CrashLoopBackOff")
	crashed.RestartCount = 3
	crashed.LastTerminationState = ended("a", 1, 0, "Error").State
	p := pod(corev1.PodRunning, list(ended("i", 0, 0, "Completed"), running("s", true)), list(crashed, running("b", true)))
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	p.Status.PodIP = "10.0.0.1"
	got := describe.Pod(describe.Facts{
		Pod: p, Containers: map[string]api.Usage{"b": {MemoryBytes: 7}},
		Probes: map[string][]describe.Probe{"b": {{Kind: prober.Liveness, Spec: &corev1.Probe{}, Result: prober.Success, Runs: []prober.Record{
			{At: now, Duration: 1500 * time.Microsecond, Output: "fine"},
		}}}},
	})
	require.Equal(t, api.Pod{
		Namespace: "ns", Name: "p", UID: "u", Phase: corev1.PodRunning, State: "CrashLoopBackOff", Ready: 2, Restarts: 3, IP: "10.0.0.1",
		Containers: []api.Container{
			{Name: "i", Kind: "init", State: "Completed", Since: &now, ExitCode: new(int32(0))},
			{Name: "s", Kind: "sidecar", State: "running", Since: &now, Ready: true},
			{Name: "a", Kind: "main", Image: "image", State: "CrashLoopBackOff", Since: &now, ExitCode: new(int32(1)), Restarts: 3},
			{Name: "b", Kind: "main", Image: "image", State: "running", Since: &now, Ready: true, Usage: &api.Usage{MemoryBytes: 7}, Probes: []api.Probe{
				{Kind: "liveness", Result: "success", Time: &now, DurationMS: 1.5, Output: "fine"},
			}},
			{Name: "e", Kind: "ephemeral", State: "waiting"},
		},
	}, got)
	require.Equal(t, []string{"i", "s", "a", "b", "e"}, describe.Containers(p))
	require.Equal(t, "s", describe.ContainerStatus(p, "s").Name)
	require.Nil(t, describe.ContainerStatus(p, "e"))
	empty := describe.Pod(describe.Facts{Pod: &corev1.Pod{}})
	require.Equal(t, corev1.PodPending, empty.Phase)
	require.NotNil(t, empty.Containers, "it is a list in JSON")
}

func runs(outcomes ...prober.Outcome) (out []prober.Record) {
	for i, o := range outcomes {
		out = append(out, prober.Record{At: now.Add(time.Duration(i-len(outcomes)+1) * 5 * time.Second), Outcome: o, Output: "HTTP 500"})
	}
	return out
}

func explain(q describe.Question) api.Explanation {
	q.Now, q.Desired = now, true
	return describe.Explain(q)
}

func TestExplainTellsWhyAContainerWaits(t *testing.T) {
	t.Parallel()
	crashed := waiting("a", "CrashLoopBackOff")
	crashed.LastTerminationState = ended("a", 1, 9, "Error").State
	crashed.LastTerminationState.Terminated.Message = "no luck\n"
	later, due := now.Add(time.Minute), now.Add(30*time.Second)
	p := pod(corev1.PodRunning, list(ended("i", 0, 0, "Completed")), list(crashed, waiting("b", "ContainerCreating")))
	p.Spec.ActiveDeadlineSeconds = new(int64(60))
	e := explain(describe.Question{
		Facts: describe.Facts{Pod: p}, Due: due, Plan: "wait with container a\n", Problems: []string{"p.yaml: bad"}, Runtime: "gone", Ready: "not read yet",
		Waiting:  map[string]corev1.ContainerStateWaiting{"b": {Reason: "ImagePullBackOff", Message: "no such image"}},
		Restarts: map[string]time.Time{"a": later}, Pulls: map[string]time.Time{"b": now.Add(-time.Second)},
	})
	require.Equal(t, []string{
		"a manifest has a problem, so that its last good version counts: p.yaml: bad",
		"the agent does nothing with pods yet: not read yet",
		"the runtime is not well, so nothing can be done: gone",
		"container a waits: CrashLoopBackOff: because",
		"container a last ended with exit code 1 by signal 9 (Error) at 2026-01-02T03:04:05Z: no luck",
		"container b waits: ImagePullBackOff: no such image",
	}, e.Why)
	require.Equal(t, []api.Step{
		{What: "the image of container b is pulled again"},
		{At: &due, What: "its active deadline of 60 s is over, and it is ended"},
		{At: &later, What: "container a starts again"},
	}, e.Next)
	require.Equal(t, "wait with container a", e.Plan)
}

func TestExplainCountsTheFailuresOfProbes(t *testing.T) {
	t.Parallel()
	spec := &corev1.Probe{PeriodSeconds: 5}
	next := now.Add(5 * time.Second)
	const ok, bad = prober.Succeeded, prober.Failed
	for name, c := range map[string]struct {
		probe     describe.Probe
		why, next string
	}{
		"two of three":  {describe.Probe{Kind: prober.Liveness, Spec: spec, Result: prober.Success, Runs: runs(ok, bad, bad)}, "the liveness probe of container a fails, 2 of 3 failures: HTTP 500", "the liveness probe of container a runs; after 1 more failures the container is killed"},
		"failed":        {describe.Probe{Kind: prober.Readiness, Spec: spec, Result: prober.Failure, Runs: runs(bad, bad, bad)}, "the readiness probe of container a has failed: HTTP 500", "the readiness probe of container a runs"},
		"one of three":  {describe.Probe{Kind: prober.Readiness, Spec: spec, Result: prober.Success, Runs: runs(bad, ok, bad)}, "the readiness probe of container a fails, 1 of 3 failures: HTTP 500", "the readiness probe of container a runs; after 2 more failures it counts as not ready"},
		"not yet":       {describe.Probe{Kind: prober.Startup, Spec: spec, Result: prober.Unknown}, "the startup probe of container a has not run yet", ""},
		"recovering":    {describe.Probe{Kind: prober.Readiness, Spec: &corev1.Probe{PeriodSeconds: 5, SuccessThreshold: 3}, Result: prober.Failure, Runs: runs(bad, ok, ok)}, "the readiness probe of container a succeeds, 2 of 3 successes", "the readiness probe of container a runs"},
		"all is well":   {describe.Probe{Kind: prober.Liveness, Spec: spec, Result: prober.Success, Runs: runs(ok)}, "all its containers run and are ready", "the liveness probe of container a runs"},
		"of other kind": {describe.Probe{Kind: prober.Startup, Spec: &corev1.Probe{FailureThreshold: 10, PeriodSeconds: 5}, Result: prober.Unknown, Runs: runs(bad)}, "the startup probe of container a fails, 1 of 10 failures: HTTP 500", "the startup probe of container a runs; after 9 more failures the container is killed"},
	} {
		e := explain(describe.Question{Facts: describe.Facts{
			Pod: pod(corev1.PodRunning, nil, list(running("a", true))), Probes: map[string][]describe.Probe{"a": {c.probe}},
		}})
		require.Equal(t, []string{c.why}, e.Why, name)
		if c.next == "" {
			require.Empty(t, e.Next, name)
			continue
		}
		require.Equal(t, []api.Step{{At: &next, What: c.next}}, e.Next, name)
	}
}

func TestExplainTellsOfEnds(t *testing.T) {
	t.Parallel()
	refused := pod(corev1.PodFailed, nil, list(waiting("a", "")))
	refused.Status.ContainerStatuses = nil
	refused.Status.Reason, refused.Status.Message = "OutOfcpu", "Pod was rejected: too little"
	e := explain(describe.Question{Facts: describe.Facts{Pod: refused}, Refused: true})
	require.Equal(t, []string{"it was not admitted: OutOfcpu: Pod was rejected: too little"}, e.Why)
	require.Len(t, e.Next, 1)
	require.Empty(t, e.Stays)

	done := pod(corev1.PodFailed, nil, list(ended("a", 2, 0, "Error")))
	done.Spec.RestartPolicy = corev1.RestartPolicyNever
	e = explain(describe.Question{Facts: describe.Facts{Pod: done}})
	require.Equal(t, []string{"container a ended with exit code 2 (Error) at 2026-01-02T03:04:05Z", "its restart policy is Never"}, e.Why)
	done.Status.Reason, done.Status.Message = "Evicted", "The node was low on resource: memory."
	require.Equal(t, "Evicted: The node was low on resource: memory.", explain(describe.Question{Facts: describe.Facts{Pod: done}}).Why[0])

	ends := now.Add(20 * time.Second)
	e = describe.Explain(describe.Question{
		Facts: describe.Facts{Pod: pod(corev1.PodRunning, nil, list(running("a", true))), Terminating: true}, Now: now, EndsBy: ends,
	})
	require.Equal(t, []string{"it is being ended: no manifest asks for it"}, e.Why)
	require.Equal(t, []api.Step{{What: "its containers end, and what is left of it is removed"}, {At: &ends, What: "what still runs of it is killed"}}, e.Next)
}

func TestExplainTellsThePlaceInTheOrderOfEviction(t *testing.T) {
	t.Parallel()
	p := pod(corev1.PodRunning, nil, list(running("a", true)))
	other := p.DeepCopy()
	other.UID = "other"
	memory, disk := eviction.MemoryAvailable, eviction.NodeFSAvailable
	q := describe.Question{
		Facts: describe.Facts{Pod: p},
		Signals: []api.Signal{
			{Name: string(memory), Available: 1 << 30, Time: &now, Thresholds: []api.Threshold{{Text: "memory.available<100Mi", Value: 100 << 20}}},
			{Name: string(disk), Available: 100 << 30, Time: &now, Thresholds: []api.Threshold{{Text: "nodefs.available<1Gi", Value: 1 << 30}}},
		},
		Ranks: map[eviction.Signal][]eviction.Candidate{
			memory: {{Pod: other}, {Pod: p, QOS: corev1.PodQOSBurstable, Usage: eviction.Usage{Value: 3 << 20, Time: now}, Request: 1 << 20}},
			disk:   {{Pod: p}, {Pod: other}},
		},
	}
	require.Equal(t, "number 2 of 2 to be evicted when memory.available runs short (memory.available<100Mi; there is 1Gi): "+
		"priority 0, class Burstable, uses 3Mi and asks for 1Mi", explain(q).Stays)
	q.Ranks[memory][1].Kept = eviction.KeptCritical
	require.Contains(t, explain(q).Stays, "it is never evicted: critical; it would be number 2 of 2")
	q.Ranks[memory] = q.Ranks[memory][:1]
	require.Equal(t, "it is not among the pods that can be evicted", explain(q).Stays)
	q.Ranks = nil
	require.Equal(t, "there is no threshold of eviction that is near", explain(q).Stays)
}

func TestNodeIsAsAKubeletWouldReportIt(t *testing.T) {
	t.Parallel()
	n := describe.Node(describe.NodeFacts{
		Name: "n", Labels: map[string]string{"a": "b"}, Created: now, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "1"}},
	})
	require.Equal(t, []string{"Node", "v1", "n", "b", "1"}, []string{n.Kind, n.APIVersion, n.Name, n.Labels["a"], n.Status.NodeInfo.BootID})
	require.Equal(t, now, n.CreationTimestamp.Time)
}

func TestExplainSaysWhatBecomesOfAContainerThatCouldNotStart(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string][]api.Step{
		"ErrImageNeverPull":          {{What: "container a starts when its image is there: it is looked for again within a minute, and never pulled"}},
		"InvalidImageName":           {{What: "container a starts when its manifest names an image that can be"}},
		"ErrImagePull":               {{What: "container a is tried again within a minute"}},
		"CreateContainerConfigError": {{What: "container a is tried again within a minute"}},
		"CreateContainerError":       {{What: "container a is tried again within a minute"}},
		"RunContainerError":          {{What: "container a is tried again within a minute"}},
		"PodInitializing":            {},
	} {
		q := describe.Question{
			Now: now, Facts: describe.Facts{Pod: pod(corev1.PodPending, nil, list(waiting("a", reason)))},
			Waiting: map[string]corev1.ContainerStateWaiting{"a": {Reason: reason}},
		}
		require.Equal(t, want, describe.Explain(q).Next, reason)
		later := now.Add(time.Minute)
		q.Pulls = map[string]time.Time{"a": later}
		require.Equal(t, []api.Step{{What: "the image of container a is pulled again", At: &later}}, describe.Explain(q).Next, "when it is known")
	}
}
