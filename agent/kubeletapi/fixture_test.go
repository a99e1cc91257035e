package kubeletapi_test

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/podcache"
)

var (
	_ kubeletapi.Agent    = (*agent.Agent)(nil)
	_ kubeletapi.Events   = (*eventlog.Log)(nil)
	_ agent.EventRecorder = (*eventlog.Log)(nil)
)

// at is the current time of these tests.
var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fake is an agent that returns the values of its fields. A nil function returns nothing.
type fake struct {
	pods    []agent.Pod
	probes  []agent.Probe // probes of each pod
	node    *corev1.Node
	health  []agent.Check
	explain func(types.UID) (agent.Explanation, error)
	summary func(context.Context) (*statsapi.Summary, error)
	plan    func(context.Context) (agent.Plan, error)
	changes func(context.Context) <-chan struct{}
}

func (f *fake) Changes(ctx context.Context) <-chan struct{} {
	if f.changes == nil {
		none := make(chan struct{})
		context.AfterFunc(ctx, func() { close(none) })
		return none
	}
	return f.changes(ctx)
}

func (f *fake) Pods() []agent.Pod { return f.pods }

func (f *fake) Pod(uid types.UID) (agent.Pod, bool) {
	for _, p := range f.pods {
		if p.Spec.UID == uid {
			return p, true
		}
	}
	return agent.Pod{}, false
}

func (f *fake) Probes(types.UID) []agent.Probe { return f.probes }
func (f *fake) Node() *corev1.Node             { return f.node }
func (f *fake) Health() []agent.Check          { return f.health }

func (f *fake) Explain(_ context.Context, uid types.UID) (agent.Explanation, error) {
	if f.explain == nil {
		return agent.Explanation{}, agent.ErrUnknownPod
	}
	return f.explain(uid)
}

func (f *fake) Summary(ctx context.Context) (*statsapi.Summary, error) {
	if f.summary == nil {
		return nil, errors.New("nothing is measured")
	}
	return f.summary(ctx)
}

func (f *fake) Plan(ctx context.Context) (agent.Plan, error) {
	if f.plan == nil {
		return agent.Plan{}, nil
	}
	return f.plan(ctx)
}

func (f *fake) PlanEviction(ctx context.Context) (eviction.Decision, error) {
	p, err := f.Plan(ctx)
	return p.Eviction, err
}

// withAgent adds an agent without pods to a configuration that has no agent.
func withAgent(cfg kubeletapi.Config) kubeletapi.Config {
	if cfg.Agent == nil {
		cfg.Agent = &fake{}
	}
	return cfg
}

// podOf returns a pod in the namespace ns with containers, whose UID is its name. A source
// defines it.
func podOf(name string, state agent.State, containers ...string) agent.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Image: "image"})
	}
	return agent.Pod{Spec: p, Source: "file", State: state, Runtime: &podcache.Status{UID: p.UID}}
}

// undefined returns the pod without a source.
func undefined(p agent.Pod) agent.Pod {
	p.Source = ""
	return p
}

// nodeNamed returns a node whose condition Ready has a status.
func nodeNamed(name string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}
