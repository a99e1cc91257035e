package agent_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// source is a source of pods that a test sets.
type source struct {
	mu      sync.Mutex
	pods    []*corev1.Pod
	changed chan struct{}
}

func newSource(pods ...*corev1.Pod) *source {
	return &source{pods: pods, changed: make(chan struct{}, 1)}
}

// run is an agent.Source's Run.
func (s *source) run(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	for {
		s.mu.Lock()
		pods := s.pods
		s.mu.Unlock()
		set(ctx, pods)
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		}
	}
}

// define replaces all pods of the source.
func (s *source) define(pods ...*corev1.Pod) {
	s.mu.Lock()
	s.pods = pods
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// file returns s as a source of static pods.
func (s *source) file() agent.Source { return agent.Source{Name: podspec.SourceFile, Run: s.run} }

// api returns s as the source of the API server's pods.
func (s *source) api() agent.Source { return agent.Source{Name: podspec.SourceAPI, Run: s.run} }

// newPod returns a pod with one container of a demo image.
func newPod(name, image string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: new(int64(5)),
		Containers: []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent}},
	}}
	p.Name, p.Namespace, p.UID = name, "default", types.UID("uid-"+name)
	return p
}

// newNode returns a runtime in memory that has the demo programs.
func newNode(tb testing.TB, change ...func(*fakecri.Config)) *fakecri.Node {
	tb.Helper()
	c := fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()}
	for _, f := range change {
		f(&c)
	}
	node, err := fakecri.New(c)
	require.NoError(tb, err)
	return node
}

// config returns the config of an agent on a runtime in memory.
func config(node *fakecri.Node, sources ...agent.Source) agent.Config {
	return agent.Config{
		Name: "one", NodeName: "node1", Runtime: node, Host: fakehost.New(node), Sources: sources,
		Random: func() float64 { return 0.5 },
	}
}

// moves records the state changes of pods.
type moves struct {
	mu  sync.Mutex
	all []agent.Move
}

func (m *moves) add(move agent.Move) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, move)
}

// of returns the states that a pod has reached.
func (m *moves) of(uid types.UID) (states []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, move := range m.all {
		if move.Pod.UID == uid {
			states = append(states, move.To.String())
		}
	}
	return states
}

// running is a running agent.
type running struct {
	*agent.Agent
	stop func()       // stops the agent once, and waits until Run has returned
	err  func() error // error of Run, valid after stop
}

// start runs an agent until stop is called or the test ends.
func start(tb testing.TB, c agent.Config) *running {
	tb.Helper()
	a, err := agent.New(c)
	require.NoError(tb, err)
	ctx, cancel := context.WithCancel(tb.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	var result error
	r := &running{Agent: a, err: func() error { return result }}
	r.stop = sync.OnceFunc(func() {
		cancel()
		result = <-done
	})
	tb.Cleanup(r.stop)
	return r
}

// after advances the bubble's time, and waits until all goroutines are idle.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// phases returns a line for each pod, by name.
func (r *running) phases() (lines []string) {
	for _, p := range r.Pods() {
		lines = append(lines, fmt.Sprintf("%s %s %s", p.Spec.Name, p.State, cmp.Or(p.Spec.Status.Phase, "-")))
	}
	slices.Sort(lines)
	return lines
}

// hardEviction returns a policy that evicts pods when the disk is nearly full.
func hardEviction(tb testing.TB) eviction.Policy {
	tb.Helper()
	thresholds, err := eviction.ParseThresholds(eviction.ThresholdSettings{EvictionHard: map[string]string{"nodefs.available": "10%"}})
	require.NoError(tb, err)
	return eviction.Policy{Thresholds: thresholds}
}

// one is the quantity 1.
func one() *resource.Quantity { return resource.NewQuantity(1, resource.DecimalSI) }
