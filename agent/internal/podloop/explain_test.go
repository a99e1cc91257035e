package podloop

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/prober"
)

var explainedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func waits(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}}
}

func runs(name string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, Ready: ready, State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(explainedAt.Add(-time.Minute))},
	}}
}

func terminated(name string, code, signal int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Signal: signal, Reason: reason, FinishedAt: metav1.NewTime(explainedAt),
	}}}
}

// explained returns an explainer of a pod in a state with these container statuses. The first
// letter of a name is the kind of the container: i for init, s for sidecar, e for ephemeral.
func explained(state State, statuses ...corev1.ContainerStatus) *explainer {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	for _, s := range statuses {
		c := corev1.Container{Name: s.Name}
		switch s.Name[0] {
		case 's':
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			fallthrough
		case 'i':
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, s)
		case 'e':
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon(c),
			})
			p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, s)
		default:
			p.Spec.Containers = append(p.Spec.Containers, c)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
		}
	}
	return &explainer{
		r:   record{uid: "u", state: state, pod: p, source: "file", since: explainedAt},
		now: explainedAt, out: Explanation{Pod: Pod{Spec: p, State: state}},
	}
}

func TestExplain_Containers(t *testing.T) {
	t.Parallel()
	crashed := waits("a", lifecycle.CrashLoopBackOff)
	crashed.LastTerminationState = terminated("a", 1, 9, "Error").State
	crashed.LastTerminationState.Terminated.Message = "no luck\n"
	const end = " at 2026-01-02T03:04:05Z"
	for name, c := range map[string]struct {
		statuses []corev1.ContainerStatus
		why      []string
	}{
		"all is well": {
			[]corev1.ContainerStatus{terminated("i", 0, 0, "Completed"), runs("s", true), runs("a", true)},
			[]string{"all its containers run and are ready"},
		},
		"crash loop": {[]corev1.ContainerStatus{crashed}, []string{
			"container a waits: CrashLoopBackOff: because",
			"container a last ended with exit code 1 by signal 9 (Error)" + end + ": no luck",
		}},
		"without a status": {[]corev1.ContainerStatus{{Name: "a"}}, []string{"container a waits: it was not started yet"}},
		"init container": {
			[]corev1.ContainerStatus{runs("i", false), waits("a", "PodInitializing")},
			[]string{"init container i is running; the following containers start when it has ended", "container a waits: PodInitializing: because"},
		},
		"failed init container": {
			[]corev1.ContainerStatus{terminated("i", 2, 0, ""), runs("a", true)},
			[]string{"init container i ended with exit code 2" + end},
		},
		"not ready": {
			[]corev1.ContainerStatus{runs("s", false), runs("a", false)},
			[]string{"container s is running but not ready", "container a is running but not ready"},
		},
		"one has ended": {
			[]corev1.ContainerStatus{terminated("a", 0, 0, "Completed"), runs("b", true)},
			[]string{"container a ended with exit code 0 (Completed)" + end},
		},
		"ephemeral containers": {
			[]corev1.ContainerStatus{runs("a", true), runs("e1", false), terminated("e2", 0, 0, "Completed")},
			[]string{"ephemeral container e2 ended with exit code 0 (Completed)" + end},
		},
	} {
		e := explained(Admitted, c.statuses...).explain()
		require.Equal(t, c.why, e.Why, name)
		require.Empty(t, e.Next, name)
	}
}

func TestExplain_WaitingIsNewerThanTheStatus(t *testing.T) {
	t.Parallel()
	x := explained(Admitted, terminated("a", 1, 0, "Error"), waits("b", "ContainerCreating"))
	x.waiting = map[string]corev1.ContainerStateWaiting{
		"a": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}, "b": {Reason: "ImagePullBackOff", Message: "no such image"},
	}
	later, due := explainedAt.Add(time.Minute), explainedAt.Add(30*time.Second)
	x.restarts, x.pulls, x.due = map[string]time.Time{"a": later}, map[string]time.Time{"b": explainedAt}, due
	x.r.pod.Spec.ActiveDeadlineSeconds = new(int64(60))
	x.unanswered, x.r.adopted = errors.New("not every source has defined its pods yet: waiting for api"), true
	e := x.explain()
	require.Equal(t, []string{
		"not every source has defined its pods yet: waiting for api",
		"container a waits: CrashLoopBackOff: back-off 10s",
		"container a last ended with exit code 1 (Error) at 2026-01-02T03:04:05Z",
		"container b waits: ImagePullBackOff: no such image",
		"it ran before this agent started",
	}, e.Why)
	require.Equal(t, []Step{
		{What: "the image of container b is pulled again"},
		{At: due, What: "it is stopped because its active deadline (60 s) is over"},
		{At: later, What: "container a is restarted"},
	}, e.Next)
}

func TestExplain_Retries(t *testing.T) {
	t.Parallel()
	const (
		image = "the image of container a is tried again in the next sync"
		start = "the start of container a is tried again in the next sync"
	)
	for reason, want := range map[string]string{
		"ErrImageNeverPull":          "the image of container a is looked up again in the next sync; its pull policy is Never",
		"InvalidImageName":           "container a is started when the pod is defined with a valid image name",
		"ErrImagePull":               image,
		"ImagePullBackOff":           image,
		"ImageInspectError":          image,
		"RegistryUnavailable":        image,
		"SignatureValidationFailed":  image,
		"CreateContainerConfigError": start,
		"CreateContainerError":       start,
		"RunContainerError":          start,
		"PostStartHookError":         start,
		"PodInitializing":            "",
	} {
		x := explained(Admitted, waits("a", reason))
		x.waiting = map[string]corev1.ContainerStateWaiting{"a": {Reason: reason}}
		e := x.explain()
		if want == "" {
			require.Empty(t, e.Next, reason)
		} else {
			require.Equal(t, []Step{{What: want}}, e.Next, reason)
		}
		x = explained(Admitted, waits("a", reason))
		x.waiting, x.pulls = map[string]corev1.ContainerStateWaiting{"a": {Reason: reason}}, map[string]time.Time{"a": explainedAt.Add(time.Minute)}
		require.Equal(t, []Step{{At: explainedAt.Add(time.Minute), What: "the image of container a is pulled again"}}, x.explain().Next, reason)
	}
}

// probed returns a probe whose runs are five seconds apart, the last one now.
func probed(kind prober.Kind, spec corev1.Probe, result prober.Result, outcomes ...prober.Outcome) Probe {
	spec.PeriodSeconds = 5
	p := Probe{Container: "a", Kind: kind, Spec: &spec, Result: result}
	for i, o := range outcomes {
		p.Runs = append(p.Runs, prober.Record{
			At: explainedAt.Add(time.Duration(i-len(outcomes)+1) * 5 * time.Second), Outcome: o, Output: "HTTP 500\n",
		})
	}
	return p
}

func TestExplain_Probes(t *testing.T) {
	t.Parallel()
	const (
		startup, readiness, liveness = prober.Startup, prober.Readiness, prober.Liveness
		success, failure, unknown    = prober.Success, prober.Failure, prober.Unknown
		ok, bad, broken              = prober.Succeeded, prober.Failed, prober.Errored
	)
	many := corev1.Probe{FailureThreshold: 10}
	for name, c := range map[string]struct {
		probe     Probe
		why, next string // without the heading of the probe
	}{
		"two of three":    {probed(liveness, corev1.Probe{}, success, ok, bad, bad), "fails, 2 of 3 failures: HTTP 500", "; after 1 more failure the container is killed"},
		"one of three":    {probed(readiness, corev1.Probe{}, success, bad, ok, bad), "fails, 1 of 3 failures: HTTP 500", "; after 2 more failures the container counts as not ready"},
		"failed":          {probed(readiness, corev1.Probe{}, failure, bad, bad, bad), "has failed: HTTP 500", " "},
		"one of ten":      {probed(startup, many, unknown, bad), "fails, 1 of 10 failures: HTTP 500", "; after 9 more failures the container is killed"},
		"many of ten":     {probed(startup, many, unknown, bad, bad, bad, bad), "fails, at least 4 of 10 failures: HTTP 500", "; after at most 6 more failures the container is killed"},
		"is killed":       {probed(liveness, corev1.Probe{}, failure, bad, bad, bad), "has failed: HTTP 500", ""},
		"not yet":         {probed(startup, corev1.Probe{}, unknown), "has not run yet", ""},
		"lives, not yet":  {probed(liveness, corev1.Probe{}, success), "", ""},
		"recovering":      {probed(readiness, corev1.Probe{SuccessThreshold: 3}, failure, bad, ok, ok), "succeeds, 2 of 3 successes", " "},
		"not run":         {probed(liveness, corev1.Probe{}, success, bad, broken), "could not be run: HTTP 500", "; after 2 more failures the container is killed"},
		"all is well":     {probed(liveness, corev1.Probe{}, success, ok), "", " "},
		"has started":     {probed(startup, corev1.Probe{}, success, ok), "", ""},
		"a warning":       {probed(readiness, corev1.Probe{}, success, prober.Warned), "", " "},
		"earlier failure": {probed(liveness, corev1.Probe{}, success, bad, bad, ok), "", " "},
	} {
		x := explained(Admitted, runs("a", true))
		other := c.probe
		other.Container = "b"
		x.probes = []Probe{c.probe, other}
		e := x.explain()
		title := c.probe.title()
		if c.why == "" {
			require.Equal(t, []string{"all its containers run and are ready"}, e.Why, name)
		} else {
			require.Equal(t, []string{title + " " + c.why}, e.Why, name)
		}
		switch c.next {
		case "":
			require.Empty(t, e.Next, name)
		case " ":
			require.Equal(t, []Step{{At: explainedAt.Add(5 * time.Second), What: title + " runs"}}, e.Next, name)
		default:
			require.Equal(t, []Step{{At: explainedAt.Add(5 * time.Second), What: title + " runs" + c.next}}, e.Next, name)
		}
	}
}

func TestExplain_ProbesOfAnEarlierContainer(t *testing.T) {
	t.Parallel()
	old := probed(prober.Readiness, corev1.Probe{}, prober.Failure, prober.Failed)
	old.Runs[0].At = explainedAt.Add(-time.Hour)
	x := explained(Admitted, runs("a", false))
	x.probes = []Probe{old}
	require.Equal(t, []string{"container a is running but not ready", "the readiness probe of container a has not run yet"}, x.explain().Why)
	require.Len(t, old.Runs, 1, "the argument must not be modified")
	x = explained(Admitted, waits("a", "CrashLoopBackOff"))
	x.probes = []Probe{old}
	require.Equal(t, []string{"container a waits: CrashLoopBackOff: because"}, x.explain().Why)
}

func TestExplain_Admission(t *testing.T) {
	t.Parallel()
	x := explained(Offered)
	x.r.why, x.r.refusal, x.overdue = "the node has changed", noPlace(), "admission handler vendor has not returned for 1m0s"
	e := x.explain()
	require.Equal(t, []string{
		"it waits for admission: the node has changed", "it was not admitted before: OutOfpods: no place", x.overdue,
	}, e.Why)
	require.Equal(t, []Step{{What: "the admission handlers decide about it"}}, e.Next)

	x = explained(Refused)
	x.r.refusal = noPlace()
	e = x.explain()
	require.Equal(t, []string{"it was not admitted: OutOfpods: no place", "it has failed, and admission is not retried"}, e.Why)
	require.Empty(t, e.Next)
	x = explained(Refused)
	x.r.refusal, x.r.pod.Annotations = noPlace(), map[string]string{podspec.SourceAnnotation: "file"}
	e = x.explain()
	require.Equal(t, []string{"it was not admitted: OutOfpods: no place"}, e.Why)
	require.Equal(t, []Step{{What: "admission is retried when the node has changed or another pod has ended"}}, e.Next)

	x = explained(Admitted, runs("a", true))
	x.r.newer = x.r.pod
	require.Equal(t, []string{"its spec was changed, and the previous version keeps running until the change is admitted"}, x.explain().Why)
}

func TestExplain_Ends(t *testing.T) {
	t.Parallel()
	const end = "container a ended with exit code 2 (Error) at 2026-01-02T03:04:05Z"
	for name, c := range map[string]struct {
		state  State
		change func(*explainer)
		why    []string
		next   []Step
	}{
		"by itself": {Ended, func(x *explainer) { x.r.pod.Spec.RestartPolicy = corev1.RestartPolicyNever }, []string{end, "it does not run again: its restart policy is Never"}, nil},
		"evicted": {Removed, func(x *explainer) {
			x.r.pod.Status.Reason, x.r.pod.Status.Message = "Evicted", "The node was low on resource: memory."
			x.r.removalReason = evicted
		}, []string{"Evicted: The node was low on resource: memory.", end, "a pod that has ended does not run again"}, nil},
		"undefined": {Ended, func(x *explainer) { x.r.source = "" }, []string{end}, []Step{{What: "its remaining data is removed"}}},
		"again": {Ended, func(x *explainer) { x.r.restartAfterRemoval = true }, []string{end}, []Step{
			{What: "its remaining data is removed"}, {What: "it starts again when its earlier run is completely removed"},
		}},
		"is stopped": {Ending, func(*explainer) {}, []string{end}, []Step{
			{What: "its containers are stopped"}, {At: explainedAt.Add(30 * time.Second), What: "its grace period is over, and containers that still run are killed"},
		}},
		"is stopped and removed": {Ending, func(x *explainer) { x.r.source, x.r.grace = "", new(5*time.Second) }, []string{end}, []Step{
			{What: "its containers are stopped, and its remaining data is removed"},
			{At: explainedAt.Add(5 * time.Second), What: "its grace period is over, and containers that still run are killed"},
		}},
	} {
		x := explained(c.state, terminated("i", 0, 0, "Completed"), terminated("a", 2, 0, "Error"), runs("b", false))
		x.r.why = "the reason of its state"
		c.change(x)
		e := x.explain()
		require.Equal(t, append([]string{"the reason of its state"}, c.why...), e.Why, name)
		require.Equal(t, c.next, e.Next, name)
	}
}
