package prober_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/prober"
)

// Each known defect of the kubelet has a test. The tests of these defects are in other files:
//
//	kubernetes#82440   commands use too much CPU           TestRun_MaxExec
//	kubernetes#110070  timed-out commands accumulate       TestExec_HangingCommand
//	kubernetes#106682  broken commands never restart       TestProbe_ErrorPolicies
//	kubernetes#53530   counts survive a restart            TestProbe_NewContainerStartsWithNewCounts
//	kubernetes#141766  sidecars are probed while ending    TestAddPod_SidecarsButNotInitContainers
//	kubernetes#132826  missing probes are never added      TestAddPod_AddsMissingProbes
//	kubernetes#100277  an agent's restart changes statuses TestUpdatePodStatus_AgentRestartChangesNothing
//	kubernetes#136910  and resets started of sidecars      TestUpdatePodStatus_AgentRestartChangesNothing
//	kubernetes#52154   probes run together after a restart TestRun_SpreadsProbesOfOlderContainers
//	kubernetes#80431   and in every later period           TestRun_SpreadsProbesThatStartTogether
//	kubernetes#96614   initial delays are rounded up       TestRun_FirstRunIsExactlyAfterTheInitialDelay
//	kubernetes#38778   periods are at least a second       TestOptions_SubSecondStartAndEdgePeriods
//	kubernetes#89898   TIME_WAIT exhausts the ports        TestConnections_NoneRemainInTimeWait
//	kubernetes#15643   a stale connection is a failure     grpcprobe.TestCheck_StaleConnectionIsNoFailure
//	KEP-4939           no TLS for gRPC                     grpcprobe.TestTLS
//	kubernetes#128365  refused gRPC needs the whole timeout grpcprobe.TestCheck_RefusedConnectionFailsAtOnce
//	kubernetes#115823  an event for every failure          TestEvents_Failures
//	kubernetes#118815  triggered runs are counted          TestTrigger_RunsAreAdditional
//	kubernetes#128820  exited containers stay ready        TestRefresh_ExitedContainerIsNotReadyAtOnce

// kubernetes#122591: the kubelet sends a request whose body stalls three times, and then
// ignores the result.
func TestHTTP_StalledBodyIsAFailure(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 32)
	s := probeSite(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Content-Length", "10")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), impatient, func(c *corev1.Container) { c.ReadinessProbe.FailureThreshold = 2 })
	runs := 0
	for range 2 {
		runs += within(t, 2*time.Second, func() { // one timeout, not three
			r, err := s.Probe(t.Context(), key("app", prober.Readiness))
			require.NoError(t, err)
			require.Equal(t, prober.Failed, r.Outcome)
			require.Equal(t, prober.Failure, r.Result)
		})
	}
	require.NotEmpty(t, asked)
	require.LessOrEqual(t, len(asked), runs, "one request per run")
}

// kubernetes#140881: in the kubelet, readiness does not change while a pod terminates,
// because the probes are cancelled with the sync of the pod worker. Here the probes continue
// until the container exits.
func TestReadiness_ProbedDuringTermination(t *testing.T) {
	t.Parallel()
	inBubble(t, withProbes("app", prober.Readiness, prober.Liveness), func(t *testing.T, l *loop) {
		t.Helper()
		wait(time.Second)
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "a"))
		l.StopLivenessAndStartup("1234")
		l.exits(1)
		wait(40 * time.Second)
		require.Equal(t, prober.Failure, l.Result(key("app", prober.Readiness), "a"))
		require.Equal(t, prober.NoProbe, l.Result(key("app", prober.Liveness), "a"))
		l.exits(0)
		wait(10 * time.Second)
		require.Equal(t, prober.Success, l.Result(key("app", prober.Readiness), "a"))
	})
}

// kubernetes#105780: an option stops traffic when termination begins.
func TestUnreadyOnStop_NotReadyWhenTerminationBegins(t *testing.T) {
	t.Parallel()
	ending := func(cfg *prober.Config) { cfg.UnreadyOnStop = true }
	s := newStepper(t, withProbes("app", prober.Readiness, prober.Liveness), ending)
	require.Equal(t, prober.Success, s.step(prober.Readiness))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	results := s.Results(ctx)
	s.StopLivenessAndStartup("1234")
	require.Equal(t, prober.Change{Key: key("app", prober.Readiness), ContainerID: "a", Result: prober.Failure}, <-results)
	s.AddPod(s.pod) // has no effect after the termination has begun
	require.Equal(t, prober.Failure, s.Result(key("app", prober.Readiness), "a"))
	_, err := s.Probe(t.Context(), key("app", prober.Readiness))
	require.ErrorIs(t, err, prober.ErrNoProbe)
	st := &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{statusOf("app", "a", prober.Running)}}
	s.UpdatePodStatus(s.pod, st)
	require.True(t, *st.ContainerStatuses[0].Started)
	require.False(t, st.ContainerStatuses[0].Ready)
	cancel()
	for range results {
		require.Fail(t, "the change was announced twice")
	}

	// A pod without probes becomes not ready as well, and the next pod with the same name is ready
	// again.
	plain := newStepper(t, corev1.Container{Name: "app"}, ending)
	plain.StopLivenessAndStartup("1234")
	plain.Refresh("1234")
	require.Equal(t, prober.Failure, plain.Result(key("app", prober.Readiness), "a"))
	require.Equal(t, prober.NoProbe, plain.Result(key("app", prober.Startup), "a"))
	plain.RemovePod("1234")
	require.Equal(t, prober.NoProbe, plain.Result(key("app", prober.Readiness), "a"))
}

// kubernetes#132826: the kubelet removes the startup probe of a sidecar that exits if the
// pod's restart policy is Never, although sidecars are restarted with any restart policy.
func TestProbe_SidecarKeepsItsStartupProbeWithPolicyNever(t *testing.T) {
	t.Parallel()
	s := newStepper(t, corev1.Container{Name: "other"})
	pod := podOf(corev1.Container{Name: "main"})
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{sidecar(withProbes("app", prober.Startup))}
	s.AddPod(pod)
	s.runsAt("app", "a", s.clock.Now())
	s.step(prober.Startup)
	s.ends("app")
	s.refuse(prober.Startup)
	s.runsAt("app", "b", s.clock.Now())
	s.Refresh("1234")
	require.Equal(t, prober.Unknown, s.Result(key("app", prober.Startup), "b"))
	require.Equal(t, prober.Success, s.step(prober.Startup))
}

// kubernetes#115963: in the kubelet, metrics of removed probes remain, or are attributed to
// another pod of the same name. Here Removed is called for each probe, with the UID.
func TestObserver_RemovedIsCalledForEachProbe(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Readiness, prober.Liveness))
	again := podOf(withProbes("app", prober.Readiness, prober.Liveness))
	again.UID = "5678" // of the same name
	s.AddPod(again)
	s.step(prober.Readiness)
	require.EqualValues(t, "1234", s.runs[0].PodUID)
	s.StopLivenessAndStartup("1234")
	s.RemovePod("1234")
	s.RemovePod("1234")
	require.Equal(t, []prober.Key{key("app", prober.Liveness), key("app", prober.Readiness)}, s.removed)
}

// kubernetes#103877: an option defines whether a redirect is a success.
func TestOptions_RedirectsAndStatuses(t *testing.T) {
	t.Parallel()
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there" {
			fmt.Fprint(w, "arrived")
			return
		}
		status, _ := strconv.Atoi(r.URL.Path[1:])
		if status < 400 && status >= 300 {
			w.Header().Set("Location", "/there")
		}
		w.WriteHeader(status)
	})
	only := func(first, last int) []prober.StatusRange { return []prober.StatusRange{{First: first, Last: last}} }
	for name, c := range map[string]struct {
		options prober.Options
		path    string
		want    prober.Outcome
		output  string
	}{
		"followed":                                    {prober.Options{}, "/302", prober.Succeeded, "arrived"},
		"not followed":                                {prober.Options{Redirects: prober.FollowNone}, "/302", prober.Warned, "Probe terminated redirects"},
		"not followed, status in the range":           {prober.Options{Redirects: prober.FollowNone, Statuses: only(200, 399)}, "/302", prober.Succeeded, ""},
		"not followed, status outside the range":      {prober.Options{Redirects: prober.FollowNone, Statuses: only(200, 299)}, "/302", prober.Failed, "HTTP probe failed with statuscode: 302"},
		"followed to a status in the range":           {prober.Options{Statuses: only(200, 200)}, "/302", prober.Succeeded, "arrived"},
		"status 401 is the only success":              {prober.Options{Statuses: only(401, 401)}, "/401", prober.Succeeded, ""},
		"status 204 fails if 401 is the only success": {prober.Options{Statuses: only(401, 401)}, "/204", prober.Failed, "HTTP probe failed with statuscode: 204"},
		"a status in the second range":                {prober.Options{Statuses: append(only(200, 200), only(404, 410)...)}, "/410", prober.Succeeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := probeSite(t, address, get(func(h *corev1.HTTPGetAction) { h.Path = c.path }))
			s.Manager = manager(t, s.node, realClock(), func(cfg *prober.Config) {
				cfg.Options = func(*corev1.Pod, string, prober.Kind) prober.Options { return c.options }
			})
			_, port, err := net.SplitHostPort(address)
			require.NoError(t, err)
			number, err := strconv.Atoi(port)
			require.NoError(t, err)
			s.AddPod(podOf(corev1.Container{Name: "app", ReadinessProbe: probeOf(httpGet(number, c.path))}))
			s.runsAt("app", "a", time.Now())
			t.Cleanup(func() { s.RemovePod("1234") })
			s.want(c.want, c.output)
		})
	}
}

// After a change of the handler in the spec, a command of the old handler does not affect the
// new handler.
func TestExec_HandlerMayChangeWhileACommandHangs(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	inBubble(t, c, func(t *testing.T, l *loop) {
		t.Helper()
		var ended error
		l.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
			<-ctx.Done()
			l.do(func() { ended = ctx.Err() })
			return 0, ctx.Err()
		})
		wait(2 * time.Second)
		changed := withProbes("app", prober.Liveness)
		changed.LivenessProbe.ProbeHandler = corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}
		l.AddPod(podOf(changed))
		wait(10 * time.Second)
		l.do(func() {
			require.Equal(t, prober.Errored, l.runs[1].Outcome)
			require.ErrorContains(t, l.runs[1].Err, "gRPC probes are not supported by this agent")
			require.ErrorIs(t, ended, context.Canceled)
		})
	})
}

// DeadlineExceeded of a Runner is a failure of the probe, not an error.
func TestExec_RunnerTimesOutItself(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	s.answers(func(context.Context, prober.ExecRequest) (int32, error) {
		return 0, errors.Join(errors.New("rpc"), context.DeadlineExceeded)
	})
	s.step(prober.Liveness)
	require.Equal(t, prober.Failed, s.runs[0].Outcome)
	require.Equal(t, `command timed out: "check" timed out after 1s`, s.runs[0].Output)
}

// When a command ends, its context is cancelled as well. The manager must not depend on the
// order in which it notices the end and the cancellation.
func TestExec_EndedCommandIsNotCancelled(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.TimeoutSeconds = 60 // longer than any command takes, even on a busy machine
	s := newStepper(t, c)
	for range 2000 {
		s.step(prober.Liveness)
	}
	for _, r := range s.runs {
		require.Equal(t, prober.Succeeded, r.Outcome)
	}
}
