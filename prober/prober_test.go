package prober_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/prober"
)

func TestConfig_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := prober.New(prober.Config{
		MaxParallel: -1, MaxExec: -1, History: -2, HistoryBytes: -1, ExecGrace: -1, PollPeriod: -1, EventPeriod: -1,
		LivenessErrors: 9, ReadinessErrors: 9, StartupErrors: 9, EventPolicy: 9,
	})
	for _, field := range []string{
		"Lookup", "MaxParallel", "MaxExec", "History", "HistoryBytes", "ExecGrace", "PollPeriod", "EventPeriod",
		"LivenessErrors", "ReadinessErrors", "StartupErrors", "EventPolicy",
	} {
		require.ErrorContains(t, err, "field "+field)
	}
}

func TestString_KubeletNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word fmt.Stringer
		want string
	}{
		{prober.Startup, "Startup"},
		{prober.Readiness, "Readiness"},
		{prober.Liveness, "Liveness"},
		{prober.Kind(9), "Unknown"},
		{prober.NoProbe, "NoProbe"},
		{prober.Unknown, "Unknown"},
		{prober.Success, "Success"},
		{prober.Failure, "Failure"},
		{prober.Result(9), "Invalid"},
		{prober.Succeeded, "success"},
		{prober.Warned, "warning"},
		{prober.Failed, "failure"},
		{prober.Errored, "unknown"},
		{prober.Outcome(9), "invalid"},
	} {
		require.Equal(t, c.want, c.word.String())
	}
}

func TestAddPod_AddsAndRemoves(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Startup, prober.Readiness, prober.Liveness))
	spec := s.pod
	for range 3 { // every sync
		s.AddPod(spec)
	}
	s.step(prober.Startup)
	s.RemovePod(spec.UID)
	s.RemovePod(spec.UID)
	require.Len(t, s.removed, 3)
	for _, k := range []prober.Kind{prober.Startup, prober.Readiness, prober.Liveness} {
		_, err := s.Probe(t.Context(), key("app", k))
		require.ErrorIs(t, err, prober.ErrNoProbe)
		require.Equal(t, prober.NoProbe, s.Result(key("app", k), "a"))
	}
	s.AddPod(podOf(corev1.Container{Name: "unprobed"}))
	s.Refresh("1234")
	s.Trigger(key("unprobed", prober.Liveness))
	require.Nil(t, s.History(key("unprobed", prober.Liveness)))
}

// kubernetes#132826: a missing probe must be added, even if it follows an existing probe.
func TestAddPod_AddsMissingProbes(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Startup, prober.Readiness, prober.Liveness))
	spec := s.pod.DeepCopy()
	spec.Spec.Containers[0].ReadinessProbe = nil
	s.AddPod(spec)
	require.Equal(t, []prober.Key{key("app", prober.Readiness)}, s.removed)
	s.AddPod(s.pod)
	s.step(prober.Startup)
	require.Equal(t, prober.Success, s.step(prober.Readiness))
}

func TestAddPod_SidecarsButNotInitContainers(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	spec := podOf(withProbes("app", prober.Liveness))
	spec.Spec.InitContainers = []corev1.Container{
		withProbes("init", prober.Liveness), sidecar(withProbes("proxy", prober.Readiness, prober.Liveness)),
	}
	s.AddPod(spec)
	s.runsAt("proxy", "p", s.clock.Now())
	_, err := s.Probe(t.Context(), key("init", prober.Liveness))
	require.ErrorIs(t, err, prober.ErrNoProbe)
	_, err = s.Probe(t.Context(), key("proxy", prober.Liveness))
	require.NoError(t, err)

	// kubernetes#141766: the termination of a pod stops the probes of sidecars too.
	// kubernetes#140881: readiness probes continue.
	s.StopLivenessAndStartup(spec.UID)
	s.AddPod(spec)
	_, err = s.Probe(t.Context(), key("proxy", prober.Liveness))
	require.ErrorIs(t, err, prober.ErrNoProbe)
	s.exits(1)
	for range 3 {
		_, err = s.Probe(t.Context(), key("proxy", prober.Readiness))
		require.NoError(t, err)
	}
	require.Equal(t, prober.Failure, s.Result(key("proxy", prober.Readiness), "p"))
}

func TestAddPod_DeletedPodHasReadinessOnly(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	spec := podOf(withProbes("app", prober.Startup, prober.Readiness, prober.Liveness))
	spec.UID, spec.DeletionTimestamp = "5678", &metav1.Time{Time: epoch}
	s.AddPod(spec)
	for k, want := range map[prober.Kind]prober.Result{
		prober.Startup: prober.NoProbe, prober.Liveness: prober.NoProbe, prober.Readiness: prober.Unknown,
	} {
		require.Equal(t, want, s.Result(prober.Key{PodUID: "5678", Container: "app", Kind: k}, "a"))
	}
}

func TestCleanupPods(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	for i := range 100 {
		spec := podOf(withProbes("app", prober.Readiness, prober.Liveness))
		spec.UID = types.UID(fmt.Sprint(i))
		s.AddPod(spec)
	}
	for range 10 {
		s.CleanupPods(func(uid types.UID) bool { return uid == "1234" || uid == "7" })
	}
	require.Len(t, s.removed, 198)
	require.Equal(t, 2, s.CleanupPods(func(types.UID) bool { return false }))
}

func TestProbe_FailureThreshold(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	s.exits(1)
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	require.Equal(t, prober.Failure, s.step(prober.Liveness))
	s.refuse(prober.Liveness) // the probe does not run before the container is replaced
	require.Equal(t, prober.Failure, s.Result(key("app", prober.Liveness), "a"))
	s.runsAt("app", "b", s.clock.Now())
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	require.Equal(t, prober.Unknown, s.Result(key("app", prober.Liveness), "a"))
}

// kubernetes#53530, kubernetes#62853: in the kubelet, after two failures and a crash, the
// first failure of the new container counts as the third failure.
func TestProbe_NewContainerStartsWithNewCounts(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	s.exits(1)
	s.step(prober.Liveness)
	s.step(prober.Liveness)
	s.runsAt("app", "b", s.clock.Now())
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	require.Equal(t, prober.Success, s.step(prober.Liveness))
	require.Equal(t, prober.Failure, s.step(prober.Liveness))
}

func TestProbe_OthersWaitForStartup(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Startup, prober.Readiness, prober.Liveness))
	s.exits(1)
	s.refuse(prober.Readiness)
	s.refuse(prober.Liveness)
	require.Equal(t, prober.Unknown, s.step(prober.Startup))
	s.exits(0)
	require.Equal(t, prober.Success, s.step(prober.Startup))
	s.refuse(prober.Startup)
	require.Equal(t, prober.Success, s.step(prober.Readiness))
	require.Equal(t, prober.Success, s.step(prober.Liveness))
}

func TestProbe_StartupFails(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Startup))
	s.exits(1)
	s.step(prober.Startup)
	s.step(prober.Startup)
	require.Equal(t, prober.Failure, s.step(prober.Startup))
	s.refuse(prober.Startup)
}

func TestProbe_WaitsForTheInitialDelay(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.InitialDelaySeconds = 20
	s := newStepper(t, c)
	s.refuse(prober.Liveness)
	require.Equal(t, prober.Success, s.Result(key("app", prober.Liveness), "a"))
	s.clock.Step(20*time.Second - 1)
	s.refuse(prober.Liveness)
	s.clock.Step(1)
	s.step(prober.Liveness)

	c.LivenessProbe.InitialDelaySeconds = -10 // counts as no delay
	newStepper(t, c).step(prober.Liveness)
}

// kubernetes#128820: a container that has exited must become not ready at once.
func TestRefresh_ExitedContainerIsNotReadyAtOnce(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Readiness, prober.Liveness))
	require.Equal(t, prober.Success, s.step(prober.Readiness))
	s.ends("app")
	s.Refresh("1234")
	require.Equal(t, prober.Failure, s.Result(key("app", prober.Readiness), "a"))
	require.Equal(t, prober.Success, s.Result(key("app", prober.Liveness), "a"))
	s.refuse(prober.Readiness)
}

func TestProbe_KeptForAContainerThatIsNotRestarted(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Readiness))
	spec := s.pod.DeepCopy()
	spec.Spec.RestartPolicy = corev1.RestartPolicyNever
	s.AddPod(spec)
	s.step(prober.Readiness)
	s.ends("app")
	s.refuse(prober.Readiness)
	require.Empty(t, s.removed)
	require.Equal(t, prober.Failure, s.Result(key("app", prober.Readiness), "a"))
}

func TestProbe_ErrorPolicies(t *testing.T) {
	t.Parallel()
	broken := errors.New("the runtime is down")
	missing := fmt.Errorf("exec: %w", prober.ErrCommandNotFound)
	for name, c := range map[string]struct {
		policy prober.ErrorPolicy
		err    error
		want   prober.Result
	}{
		"an error of the runner is ignored":        {prober.CountNotFound, broken, prober.Success},
		"a missing command is a failure (#106682)": {prober.CountNotFound, missing, prober.Failure},
		"unless all is ignored":                    {prober.IgnoreErrors, missing, prober.Success},
		"or all counts":                            {prober.CountErrors, broken, prober.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStepper(t, withProbes("app", prober.Liveness), func(cfg *prober.Config) { cfg.LivenessErrors = c.policy })
			s.answers(func(context.Context, prober.ExecRequest) (int32, error) { return 0, c.err })
			var got prober.Result
			for range 3 {
				got = s.step(prober.Liveness)
			}
			require.Equal(t, c.want, got)
			require.ErrorIs(t, s.runs[0].Err, c.err)
			require.Equal(t, c.err.Error(), s.History(key("app", prober.Liveness))[0].Output)
		})
	}
}

func TestProbe_HandlerThatCannotRunIsAnError(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]corev1.ProbeHandler{
		"missing probe handler for web_default(1234):app": {},
		`strconv.Atoi: parsing "nope": invalid syntax`:    {HTTPGet: &corev1.HTTPGetAction{Port: intOrString("nope")}},
		"invalid port number: 70000":                      {TCPSocket: &corev1.TCPSocketAction{Port: intOrString("70000")}},
		"invalid port number: -1":                         {TCPSocket: &corev1.TCPSocketAction{Port: intOrString("-1")}},
		"invalid port number: 0":                          {HTTPGet: &corev1.HTTPGetAction{}},
		"gRPC probes are not supported by this agent":     {GRPC: &corev1.GRPCAction{Port: 1}},
		"exec probes are not supported by this agent":     {Exec: &corev1.ExecAction{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withProbes("app", prober.Startup)
			c.StartupProbe.ProbeHandler = handler
			s := newStepper(t, c, func(cfg *prober.Config) { cfg.Runner = nil })
			s.step(prober.Startup)
			require.Equal(t, prober.Errored, s.runs[0].Outcome)
			require.ErrorContains(t, s.runs[0].Err, name)
			require.Contains(t, s.events[0], "Startup probe errored and resulted in unknown state: "+name)
		})
	}
}

// A small manifest expands to 250 GB: it contains one large variable many times.
func TestProbe_HugeCommandIsNotExpanded(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Startup)
	c.Env = []corev1.EnvVar{{Name: "A", Value: strings.Repeat("x", 500_000)}}
	c.StartupProbe.Exec.Command = []string{"sh", strings.Repeat("$(A)", 500_000)}
	s := newStepper(t, c)
	s.step(prober.Startup)
	require.Equal(t, prober.Errored, s.runs[0].Outcome)
	require.EqualError(t, s.runs[0].Err, "command of exec probe: more than 6291456 bytes with all $(NAME) references replaced")
}

func TestHistory_KeepsTheLastRuns(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Readiness), func(cfg *prober.Config) { cfg.History, cfg.HistoryBytes = 5, 3 })
	for i := range 7 {
		s.answers(func(_ context.Context, r prober.ExecRequest) (int32, error) {
			fmt.Fprintf(r.Output, "%d-output", i/2)
			s.clock.Step(time.Millisecond)
			return int32(i % 2), nil
		})
		s.step(prober.Readiness)
		s.clock.Step(time.Second)
	}
	h := s.History(key("app", prober.Readiness))
	require.Len(t, h, 5)
	for i, r := range h {
		require.Equal(t, fmt.Sprintf("%d-o", (i+2)/2), r.Output)
		require.Equal(t, time.Millisecond, r.Duration)
		require.Equal(t, epoch.Add(time.Second+time.Duration(i+2)*1001*time.Millisecond), r.At)
		require.Equal(t, map[bool]prober.Outcome{true: prober.Failed, false: prober.Succeeded}[i%2 == 1], r.Outcome)
	}
	s.answers(func(_ context.Context, r prober.ExecRequest) (int32, error) {
		fmt.Fprint(r.Output, "noé")
		return 0, nil
	})
	s.step(prober.Readiness)
	require.Equal(t, "no", s.History(key("app", prober.Readiness))[4].Output, "the output must not be truncated within a rune")
	none := newStepper(t, withProbes("app", prober.Readiness), func(cfg *prober.Config) { cfg.History = -1 })
	none.step(prober.Readiness)
	require.Empty(t, none.History(key("app", prober.Readiness)))
}

func TestProbe_OnlyOneRunInFlight(t *testing.T) {
	t.Parallel()
	s := newStepper(t, withProbes("app", prober.Liveness))
	s.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
		_, err := s.Probe(ctx, key("app", prober.Liveness))
		require.ErrorIs(t, err, prober.ErrInFlight)
		s.Trigger(key("app", prober.Liveness)) // Trigger has no effect either
		return 0, nil
	})
	s.step(prober.Liveness)
	require.Len(t, s.runs, 1)
}

// Late is counted from the end of the initial delay, also on the first run.
func TestRun_LateOfTheFirstRun(t *testing.T) {
	t.Parallel()
	c := withProbes("app", prober.Liveness)
	c.LivenessProbe.InitialDelaySeconds = 3
	s := newStepper(t, c)
	s.clock.Step(5 * time.Second)
	s.step(prober.Liveness)
	require.Equal(t, 2*time.Second, s.runs[0].Late)
}

// A run is not counted if its pod was removed, or its container exited or was replaced, while
// the run was in progress.
func TestProbe_CancelledRunIsNotCounted(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*stepper, context.CancelFunc){
		"removed":   func(s *stepper, _ context.CancelFunc) { s.RemovePod("1234") },
		"exited":    func(s *stepper, _ context.CancelFunc) { s.ends("app"); s.Refresh("1234") },
		"replaced":  func(s *stepper, _ context.CancelFunc) { s.runsAt("app", "b", s.clock.Now()); s.Refresh("1234") },
		"cancelled": func(_ *stepper, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withProbes("app", prober.Liveness)
			c.LivenessProbe.FailureThreshold, c.LivenessProbe.TimeoutSeconds = 1, 60
			s := newStepper(t, c)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.answers(func(ctx context.Context, _ prober.ExecRequest) (int32, error) {
				cut(s, cancel)
				<-ctx.Done()
				return 1, nil
			})
			_, err := s.Probe(ctx, key("app", prober.Liveness))
			require.Error(t, err)
			require.Empty(t, s.runs)
			require.NotEqual(t, prober.Failure, s.Result(key("app", prober.Liveness), "a"))
		})
	}
}
