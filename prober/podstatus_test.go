package prober_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/prober"
)

// statusOf returns a generated status of the container.
func statusOf(name, id string, state prober.State) corev1.ContainerStatus {
	st := corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + id}
	switch state {
	case prober.Running:
		st.State.Running = &corev1.ContainerStateRunning{}
	case prober.Exited:
		st.State.Terminated = &corev1.ContainerStateTerminated{}
	case prober.Waiting:
		st.State.Waiting = &corev1.ContainerStateWaiting{}
	}
	return st
}

func TestUpdatePodStatus(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Startup, prober.Readiness))
	pod := podOf(withProbes("app", prober.Startup, prober.Readiness), corev1.Container{Name: "plain"})
	failing := withProbes("failing", prober.Readiness)
	pod.Spec.Containers = append(pod.Spec.Containers, failing)
	pod.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "init2"}, sidecar(withProbes("proxy", prober.Readiness))}
	s.AddPod(pod)
	s.runsAt("proxy", "p", s.clock.Now())
	s.runsAt("failing", "f", s.clock.Now())
	update := func(state prober.State) map[string][2]bool {
		st := corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{
				statusOf("app", "a", state), statusOf("plain", "b", state), statusOf("failing", "f", state),
			},
			InitContainerStatuses: []corev1.ContainerStatus{
				statusOf("init", "i", prober.Exited), statusOf("init2", "j", prober.Running), statusOf("proxy", "p", state),
				{Name: "unknown", Ready: true},
			},
		}
		s.UpdatePodStatus(pod, &st)
		got := map[string][2]bool{}
		for _, c := range append(st.ContainerStatuses, st.InitContainerStatuses...) {
			got[c.Name] = [2]bool{c.Started != nil && *c.Started, c.Ready}
		}
		return got
	}
	s.exits(1)
	_, err := s.Probe(t.Context(), key("failing", prober.Readiness))
	require.NoError(t, err)
	s.exits(0)
	s.refuse(prober.Readiness) // the Manager looks up the container
	_, err = s.Probe(t.Context(), key("proxy", prober.Readiness))
	require.NoError(t, err)
	want := map[string][2]bool{
		"app": {false, false}, "plain": {true, true}, "failing": {true, false}, "proxy": {true, true},
		"init": {false, true}, "init2": {true, false}, "unknown": {false, true},
	}
	require.Equal(t, want, update(prober.Running))
	s.step(prober.Startup)
	want["app"] = [2]bool{true, false}
	require.Equal(t, want, update(prober.Running))
	s.step(prober.Readiness)
	want["app"] = [2]bool{true, true}
	require.Equal(t, want, update(prober.Running))
	for _, state := range []prober.State{prober.Waiting, prober.Exited} {
		for name, got := range update(state) {
			if name != "init" && name != "init2" && name != "unknown" {
				require.Equal(t, [2]bool{}, got, name)
			}
		}
	}
	startup, readiness := s.ProbeResults("1234", "app", "a")
	require.Equal(t, []prober.Result{prober.Success, prober.Success}, []prober.Result{startup, readiness})
	startup, readiness = s.ProbeResults("1234", "plain", "b")
	require.Equal(t, []prober.Result{prober.NoProbe, prober.NoProbe}, []prober.Result{startup, readiness})
}

// KEP-4781, kubernetes#100277: after an agent's restart, older containers keep their reported
// state until their probes have results. New containers start with the usual state.
func TestUpdatePodStatus_AgentRestartChangesNothing(t *testing.T) {
	t.Parallel()
	type said struct{ started, ready bool }
	for _, c := range []struct {
		name    string
		old     bool // older than the agent
		kind    prober.Kind
		sidecar bool
		before  said
		result  prober.Result
		want    said
	}{
		{"old, ready", true, prober.Readiness, false, said{true, true}, prober.Unknown, said{true, true}},
		{"old, unready", true, prober.Readiness, false, said{true, false}, prober.Unknown, said{true, false}},
		{"old, nothing reported", true, prober.Readiness, false, said{}, prober.Unknown, said{true, false}},
		{"old sidecar, ready", true, prober.Readiness, true, said{true, true}, prober.Unknown, said{true, true}},
		{"old sidecar, unready", true, prober.Readiness, true, said{true, false}, prober.Unknown, said{true, false}},
		{"new, though reported ready", false, prober.Readiness, false, said{true, true}, prober.Failure, said{true, false}},
		{"new", false, prober.Readiness, false, said{}, prober.Failure, said{true, false}},
		{"new sidecar", false, prober.Readiness, true, said{}, prober.Failure, said{true, false}},
		{"old, alive", true, prober.Liveness, false, said{true, true}, prober.Unknown, said{true, true}},
		{"new, alive", false, prober.Liveness, false, said{}, prober.Success, said{true, true}},
		{"new sidecar, alive", false, prober.Liveness, true, said{}, prober.Success, said{true, true}},
		{"old, started", true, prober.Startup, false, said{true, true}, prober.Success, said{true, true}},
		{"old, not started (142305)", true, prober.Startup, false, said{false, false}, prober.Unknown, said{false, false}},
		{"old sidecar, started", true, prober.Startup, true, said{true, true}, prober.Success, said{true, true}},
		{"old sidecar, not started", true, prober.Startup, true, said{false, false}, prober.Unknown, said{false, false}},
		{"new, not started", false, prober.Startup, false, said{}, prober.Unknown, said{false, false}},
		{"new sidecar, not started", false, prober.Startup, true, said{}, prober.Unknown, said{false, false}},
	} {
		t.Run(c.name+" "+c.kind.String(), func(t *testing.T) {
			t.Parallel()
			n, clock := newTestNode(), testingclock.NewFakeClock(epoch)
			m := manager(t, n, clock)
			changes := 0
			ctx, cancel := context.WithCancel(t.Context())
			results := m.Results(ctx)
			clock.Step(time.Minute)
			started := clock.Now()
			if c.old {
				started = epoch.Add(-time.Hour)
			}
			container := withProbes("app", c.kind)
			pod := podOf(container)
			if c.sidecar {
				pod.Spec.Containers, pod.Spec.InitContainers = nil, []corev1.Container{sidecar(container)}
			}
			n.set("app", prober.Target{ID: "a", State: prober.Running, StartedAt: started, Started: c.before.started})
			status := statusOf("app", "a", prober.Running)
			if c.before.started || c.old {
				before := statusOf("app", "a", prober.Running)
				before.Started, before.Ready = &c.before.started, c.before.ready
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{before}
				pod.Status.InitContainerStatuses = pod.Status.ContainerStatuses
			}
			m.AddPod(pod)
			m.Refresh("1234")
			require.Equal(t, c.result, m.Result(key("app", c.kind), "a"))
			st := &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}}
			if c.sidecar {
				st = &corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{status}}
			}
			m.UpdatePodStatus(pod, st)
			got := append(st.ContainerStatuses, st.InitContainerStatuses...)[0]
			require.Equal(t, c.want, said{*got.Started, got.Ready})
			if !c.old && c.kind == prober.Readiness { // the initial result of a new container is a change
				require.Equal(t, prober.Failure, (<-results).Result)
			}
			cancel()
			for range results {
				changes++
			}
			require.Zero(t, changes, "without a result, the status must not change")
		})
	}
}

// Results after the restart are reported, even if they are the opposite of the earlier state.
func TestUpdatePodStatus_ResultsAfterAnAgentRestart(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Readiness))
	s.set("app", prober.Target{ID: "a", State: prober.Running, StartedAt: epoch.Add(-time.Hour), Started: true})
	s.refuse(prober.Readiness) // the first run is delayed, because it is spread
	s.clock.Step(10 * time.Second)
	s.exits(1)
	require.Equal(t, prober.Unknown, s.step(prober.Readiness))
	require.Equal(t, prober.Unknown, s.step(prober.Readiness))
	require.Equal(t, prober.Failure, s.step(prober.Readiness))
}

func TestEvents_Failures(t *testing.T) {
	t.Parallel()
	output := func(code int32) func(context.Context, prober.ExecRequest) (int32, error) {
		return func(_ context.Context, r prober.ExecRequest) (int32, error) {
			fmt.Fprintf(r.Output, "code %d", code)
			return code, nil
		}
	}
	const about = "Warning Unhealthy spec.containers{app}: Readiness probe "
	s := newStepper(t, withProbes("app", prober.Readiness))
	run := func(n int, answer func(context.Context, prober.ExecRequest) (int32, error)) []string {
		s.answers(answer)
		for range n {
			s.step(prober.Readiness)
			s.clock.Step(10 * time.Second)
		}
		defer func() { s.events = nil }()
		return s.events
	}
	require.Empty(t, run(2, output(0)))
	require.Equal(t, []string{about + "failed: code 1 (failure 1 of 3)", about + "failed: code 1"}, run(5, output(1)))
	require.Empty(t, run(1, output(0)))
	require.Empty(t, run(2, output(1)), "occasional failures must not cause an event within EventPeriod")
	require.Equal(t, []string{about + "failed: code 1"}, run(3, output(1))[:1])
	require.Len(t, run(60, output(1)), 2, "one event in five minutes")
	require.Equal(t, []string{about + "errored and resulted in unknown state: broken"},
		run(3, func(context.Context, prober.ExecRequest) (int32, error) { return 0, errors.New("broken") }))

	always := newStepper(t, withProbes("app", prober.Liveness), func(cfg *prober.Config) { cfg.EventPolicy = prober.EventsAlways })
	always.answers(output(2))
	always.step(prober.Liveness)
	always.step(prober.Liveness)
	const failed = "Warning Unhealthy spec.containers{app}: Liveness probe failed: code 2"
	require.Equal(t, []string{failed, failed}, always.events)
}

func TestEvents_Warning(t *testing.T) {
	t.Parallel()
	s := probeSite(t, script(t, say("HTTP/1.1 304 Not Modified\r\n\r\n")))
	s.want(prober.Warned, "Probe terminated redirects")
	require.Equal(t, prober.Success, s.runs[0].Result)
	require.Equal(t, []string{
		"Warning ProbeWarning spec.containers{app}: Readiness probe warning: Probe terminated redirects, Response body: ",
	}, s.events)
}

func TestEvents_Sidecars(t *testing.T) {
	t.Parallel()
	s := newStepper(t, corev1.Container{Name: "app"})
	pod := podOf()
	pod.Spec.InitContainers = []corev1.Container{sidecar(withProbes("app", prober.Liveness))}
	s.AddPod(pod)
	s.exits(1)
	s.step(prober.Liveness)
	require.Equal(t, []string{"Warning Unhealthy spec.initContainers{app}: Liveness probe failed:  (failure 1 of 3)"}, s.events)
}

func TestExec_CommandsAreExpanded(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.Env = []corev1.EnvVar{
		{Name: "A", Value: "old"}, {Name: "A", Value: "1"}, {Name: "B", ValueFrom: &corev1.EnvVarSource{}},
	}
	c.LivenessProbe.Exec.Command = []string{"$(A)", "x$(B)y", "$$(A)", "$(C)", "$(A", "$A$", "plain"}
	s := newStepper(t, c)
	var got prober.ExecRequest
	s.answers(func(_ context.Context, r prober.ExecRequest) (int32, error) {
		got = r
		n, err := r.Output.Write(make([]byte, 11<<10))
		require.NoError(t, err)
		require.Equal(t, 11<<10, n)
		return 0, nil
	})
	s.step(prober.Liveness)
	require.Equal(t, []string{"1", "xy", "$(A)", "$(C)", "$(A", "$A$", "plain"}, got.Command)
	require.Equal(t, time.Second, got.Timeout)
	require.Equal(t, "a", got.ContainerID)
	require.Equal(t, "$(A)", c.LivenessProbe.Exec.Command[0], "the spec must not be modified")
	require.Len(t, s.runs[0].Output, 10<<10)

	s.answers(func(context.Context, prober.ExecRequest) (int32, error) { return 0, context.DeadlineExceeded })
	s.step(prober.Liveness)
	require.Equal(t, `command timed out: "1 xy $(A) $(C) $(A $A$ plain" timed out after 1s`, s.runs[1].Output)
}
