package prober_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/prober"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// epoch is the start time of the fake clock.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// node contains containers, the results of their commands, and the recorded callbacks.
type node struct {
	mu      sync.Mutex
	targets map[string]prober.Target // by container name
	answer  func(ctx context.Context, r prober.ExecRequest) (int32, error)
	before  func() // called in each command before it returns
	runs    []prober.Run
	events  []string
	removed []prober.Key
	outlive int
	kills   int
}

func newTestNode() *node {
	return &node{
		targets: map[string]prober.Target{},
		answer:  func(context.Context, prober.ExecRequest) (int32, error) { return 0, nil },
		before:  func() {},
	}
}

func (n *node) config() prober.Config {
	return prober.Config{
		Lookup: n.lookup, Runner: n, Killer: n, Events: n,
		Observer: prober.Observer{
			RunFinished:  func(r prober.Run) { n.do(func() { n.runs = append(n.runs, r) }) },
			ExecOutlived: func(prober.Key) { n.do(func() { n.outlive++ }) },
			Removed:      func(k prober.Key) { n.do(func() { n.removed = append(n.removed, k) }) },
		},
	}
}

func (n *node) do(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) lookup(_ types.UID, container string) (prober.Target, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.targets[container]
	return t, ok
}

func (n *node) set(container string, t prober.Target) { n.do(func() { n.targets[container] = t }) }

func (n *node) runsAt(container, id string, since time.Time) {
	n.set(container, prober.Target{ID: id, State: prober.Running, StartedAt: since, PodIP: "127.0.0.1"})
}

func (n *node) ends(container string) {
	n.do(func() {
		t := n.targets[container]
		t.State = prober.Exited
		n.targets[container] = t
	})
}

func (n *node) answers(f func(ctx context.Context, r prober.ExecRequest) (int32, error)) {
	n.do(func() { n.answer = f })
}

// exits makes commands end with the given code.
func (n *node) exits(code int32) {
	n.answers(func(context.Context, prober.ExecRequest) (int32, error) { return code, nil })
}

func (n *node) Exec(ctx context.Context, r prober.ExecRequest) (int32, error) {
	n.before()
	n.mu.Lock()
	answer := n.answer
	n.mu.Unlock()
	return answer(ctx, r)
}

func (n *node) KillExec(context.Context, prober.ExecRequest) { n.do(func() { n.kills++ }) }

func (n *node) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	ref, _ := object.(*corev1.ObjectReference)
	n.do(func() {
		n.events = append(n.events, fmt.Sprintf("%s %s %s: %s", eventtype, reason, ref.FieldPath, fmt.Sprintf(format, args...)))
	})
}

// starts returns the start times of the runs of a probe, relative to since.
func (n *node) starts(k prober.Kind, since time.Time) (all []time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.runs {
		if r.Kind == k {
			all = append(all, r.At.Sub(since).Round(time.Microsecond))
		}
	}
	return all
}

// probeOf returns an exec probe.
func probeOf(change ...func(*corev1.Probe)) *corev1.Probe {
	p := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}},
		PeriodSeconds: 10, TimeoutSeconds: 1, SuccessThreshold: 1, FailureThreshold: 3,
	}
	for _, f := range change {
		f(p)
	}
	return p
}

// podOf returns a pod with one container per argument.
func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1234"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: containers},
	}
}

func withProbes(name string, kinds ...prober.Kind) corev1.Container {
	c := corev1.Container{Name: name}
	for _, k := range kinds {
		set(&c, k, probeOf())
	}
	return c
}

func set(c *corev1.Container, k prober.Kind, p *corev1.Probe) {
	switch k {
	case prober.Startup:
		c.StartupProbe = p
	case prober.Readiness:
		c.ReadinessProbe = p
	case prober.Liveness:
		c.LivenessProbe = p
	}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func key(container string, k prober.Kind) prober.Key {
	return prober.Key{PodUID: "1234", Container: container, Kind: k}
}

// manager returns a Manager with the given clock.
func manager(tb testing.TB, n *node, c clock.Clock, change ...func(*prober.Config)) *prober.Manager {
	tb.Helper()
	cfg := n.config()
	cfg.Clock = c
	for _, f := range change {
		f(&cfg)
	}
	m, err := prober.New(cfg)
	require.NoError(tb, err)
	return m
}

// stepper is a manager with the fake clock and one container, "app". Tests run its
// probe by hand.
type stepper struct {
	*prober.Manager
	*node
	t     *testing.T
	clock *testingclock.FakeClock
	pod   *corev1.Pod
}

func newStepper(t *testing.T, c corev1.Container, change ...func(*prober.Config)) *stepper {
	t.Helper()
	s := &stepper{node: newTestNode(), t: t, clock: testingclock.NewFakeClock(epoch), pod: podOf(c)}
	s.Manager = manager(t, s.node, s.clock, change...)
	s.AddPod(s.pod)
	s.clock.Step(time.Second)
	s.runsAt(c.Name, "a", s.clock.Now())
	return s
}

// step runs a probe once, and returns the result after the run.
func (s *stepper) step(k prober.Kind) prober.Result {
	s.t.Helper()
	r, err := s.Probe(s.t.Context(), key("app", k))
	require.NoError(s.t, err)
	return r.Result
}

// refuse checks that a probe cannot be run.
func (s *stepper) refuse(k prober.Kind) {
	s.t.Helper()
	_, err := s.Probe(s.t.Context(), key("app", k))
	require.ErrorIs(s.t, err, prober.ErrNotRunnable)
}

func httpGet(port int, path string) func(*corev1.Probe) {
	return func(p *corev1.Probe) {
		p.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt(port)}}
	}
}

func intOrString(s string) intstr.IntOrString { return intstr.Parse(s) }

// discard is a logger for servers whose clients misbehave on purpose.
func discard() *log.Logger { return log.New(io.Discard, "", 0) }

func realClock() clock.Clock { return clock.RealClock{} }
