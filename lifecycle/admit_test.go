package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// events records events as text.
type events struct {
	mu  sync.Mutex
	all []string
}

func (e *events) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	about := ""
	switch o := object.(type) {
	case *corev1.Pod:
		about = o.Name
	case *corev1.ObjectReference:
		about = o.Name + " " + o.FieldPath
	}
	e.all = append(e.all, fmt.Sprintf("%s %s %s %s", about, eventtype, reason, fmt.Sprintf(format, args...)))
}

func admits(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{Admit: true}
}

func refuses(reason string) lifecycle.AdmitFunc {
	return func(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
		return lifecycle.PodAdmitResult{Reason: reason, Message: reason + " it is"}
	}
}

func TestChain_FirstRejectionIsTheResult(t *testing.T) {
	t.Parallel()
	clk := testingclock.NewFakeClock(epoch())
	var seen []lifecycle.AdmitInfo
	slow := lifecycle.AdmitFunc(func(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
		clk.Step(3 * time.Second)
		return admits(ctx, attrs)
	})
	chain, err := lifecycle.NewChain(lifecycle.ChainConfig{
		Handlers: []lifecycle.NamedHandler{{"slow", slow}, {"a", refuses("A")}, {"b", refuses("B")}},
		Clock:    clk,
		Observer: lifecycle.AdmitObserver{Asked: func(i lifecycle.AdmitInfo) { seen = append(seen, i) }},
	})
	require.NoError(t, err)
	pod := &corev1.Pod{}
	result := chain.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: pod})
	require.Equal(t, lifecycle.PodAdmitResult{Reason: "A", Message: "A it is"}, result)
	require.Equal(t, []lifecycle.AdmitInfo{
		{Handler: "slow", Pod: pod, Result: lifecycle.PodAdmitResult{Admit: true}, Elapsed: 3 * time.Second},
		{Handler: "a", Pod: pod, Result: result},
	}, seen)
}

func TestChains(t *testing.T) {
	t.Parallel()
	none, err := lifecycle.NewChain(lifecycle.ChainConfig{})
	require.NoError(t, err)
	attrs := lifecycle.PodAdmitAttributes{Pod: &corev1.Pod{}, Operation: lifecycle.ResizeOperation}
	require.Equal(t, lifecycle.PodAdmitResult{Admit: true}, none.Admit(t.Context(), attrs))
	require.Equal(t, lifecycle.UnexpectedAdmissionError, none.Admit(t.Context(), lifecycle.PodAdmitAttributes{}).Reason)

	outer, err := lifecycle.NewChain(lifecycle.ChainConfig{Handlers: []lifecycle.NamedHandler{{"inner", none}, {"yes", lifecycle.AdmitFunc(admits)}}})
	require.NoError(t, err)
	require.True(t, outer.Admit(t.Context(), attrs).Admit)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, lifecycle.PodAdmitResult{
		Reason: "UnexpectedAdmissionError", Message: "admission was cancelled: context canceled",
	}, outer.Admit(ctx, attrs))

	_, err = lifecycle.NewChain(lifecycle.ChainConfig{Handlers: []lifecycle.NamedHandler{{"a", none}, {"a", none}, {}}})
	require.EqualError(t, err, "lifecycle: invalid chain config: field Handlers[1].Name: \"a\" is used twice\n"+
		"field Handlers[2].Name is required\nfield Handlers[2].Handler is required")
}

func TestActiveDeadline(t *testing.T) {
	t.Parallel()
	clk := testingclock.NewFakeClock(epoch())
	handler := lifecycle.ActiveDeadline{Clock: clk}
	start := metav1.NewTime(epoch().Add(-10 * time.Second))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "a"},
		Spec:       corev1.PodSpec{ActiveDeadlineSeconds: new(int64(30))},
		Status:     corev1.PodStatus{StartTime: &start},
	}
	stays := lifecycle.ShouldEvictResponse{}
	goes := lifecycle.ShouldEvictResponse{
		Evict: true, Reason: "DeadlineExceeded", Message: "Pod was active on the node longer than the specified deadline",
	}
	due, ok := handler.Due(pod)
	require.True(t, ok)
	require.Equal(t, epoch().Add(20*time.Second), due)
	clk.Step(20*time.Second - 1)
	require.False(t, handler.ShouldSync(pod))
	require.Equal(t, stays, handler.ShouldEvict(pod))
	clk.Step(1)
	require.True(t, handler.ShouldSync(pod))
	require.Equal(t, goes, handler.ShouldEvict(pod))

	for name, change := range map[string]func(*corev1.Pod){
		"no deadline":               func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
		"not started":               func(p *corev1.Pod) { p.Status.StartTime = nil },
		"no time":                   func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{} },
		"a deadline that overflows": func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(1<<63 - 1)) },
	} {
		other := pod.DeepCopy()
		change(other)
		require.False(t, handler.ShouldSync(other), name)
	}
	require.False(t, handler.ShouldSync(nil))

	newer := metav1.NewTime(epoch())
	handler.Status = func(uid types.UID) (corev1.PodStatus, bool) {
		return corev1.PodStatus{StartTime: &newer}, uid == "a"
	}
	require.False(t, handler.ShouldSync(pod), "the status manager's start time must be used")
	pod.UID = "b"
	require.True(t, handler.ShouldSync(pod), "a pod without a known start time must not exceed its deadline")

	require.True(t, lifecycle.ActiveDeadline{}.ShouldSync(pod), "by the system clock, the pod started long ago")
}

func TestSyncHandlers_SeveralAsOne(t *testing.T) {
	t.Parallel()
	clk := testingclock.NewFakeClock(epoch())
	start := metav1.NewTime(epoch().Add(-time.Hour))
	pod := &corev1.Pod{Spec: corev1.PodSpec{ActiveDeadlineSeconds: new(int64(1))}, Status: corev1.PodStatus{StartTime: &start}}
	never := lifecycle.ActiveDeadline{Clock: testingclock.NewFakeClock(time.Time{})}
	now := lifecycle.ActiveDeadline{Clock: clk}
	require.False(t, lifecycle.SyncLoopHandlers{}.ShouldSync(pod))
	require.False(t, lifecycle.SyncLoopHandlers{never}.ShouldSync(pod))
	require.True(t, lifecycle.SyncLoopHandlers{never, now}.ShouldSync(pod))
	require.False(t, lifecycle.SyncHandlers{never}.ShouldEvict(pod).Evict)
	require.Equal(t, lifecycle.DeadlineExceeded, lifecycle.SyncHandlers{never, now}.ShouldEvict(pod).Reason)
}

func nodeHandler(t *testing.T, cfg lifecycle.NodeConfig) *lifecycle.NodeHandler {
	t.Helper()
	if cfg.Node == nil {
		cfg.Node = returns(machine(nil))
	}
	if cfg.OS == "" {
		cfg.OS = "linux"
	}
	h, err := lifecycle.NewNodeHandler(cfg)
	require.NoError(t, err)
	return h
}

func returns(node *corev1.Node) func(context.Context) (*corev1.Node, error) {
	return func(context.Context) (*corev1.Node, error) { return node, nil }
}

func fails(context.Context) (*corev1.Node, error) { return nil, errors.New("no such luck") }

func TestNodeHandler_FirstReason(t *testing.T) {
	t.Parallel()
	_, err := lifecycle.NewNodeHandler(lifecycle.NodeConfig{})
	require.EqualError(t, err, "lifecycle: invalid node handler config: field Node is required")

	windows := podWantingFoo()
	windows.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	strict := podWantingFoo()
	strict.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}
	big := podAsking("cpu", "8m", "memory", "10")
	big.Spec.NodeName = "elsewhere"
	for name, tt := range map[string]struct {
		cfg    lifecycle.NodeConfig
		pod    *corev1.Pod
		reason string
	}{
		"fits":                          {pod: &corev1.Pod{}},
		"node lookup fails":             {cfg: lifecycle.NodeConfig{Node: fails}, pod: &corev1.Pod{}, reason: "InvalidNodeInfo"},
		"nil node":                      {cfg: lifecycle.NodeConfig{Node: returns(nil)}, pod: &corev1.Pod{}, reason: "InvalidNodeInfo"},
		"no pod":                        {reason: "UnexpectedAdmissionError"},
		"OS is checked first":           {pod: windows, reason: "PodOSNotSupported"},
		"group policy is checked first": {pod: strict, reason: "SupplementalGroupsPolicyNotSupported"},
		"resources before name":         {pod: big, reason: "OutOfcpu"},
		"affinity":                      {pod: podWantingFoo(), reason: "NodeAffinity"},
	} {
		attrs := lifecycle.PodAdmitAttributes{Pod: tt.pod, OtherPods: []*corev1.Pod{podAsking("cpu", "5m", "memory", "19")}}
		result := nodeHandler(t, tt.cfg).Admit(t.Context(), attrs)
		require.Equal(t, tt.reason, result.Reason, name)
		require.Equal(t, tt.reason == "", result.Admit, name)
		require.Equal(t, tt.reason == "", result.Message == "", name)
	}
}

// The kubelet writes the node's operating system into the labels of a node
// object that it shares with other parts of the process.
func TestNodeHandler_DoesNotModifyTheNode(t *testing.T) {
	t.Parallel()
	node := machine(map[string]string{corev1.LabelOSStable: "dummyOS"})
	before := node.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	require.True(t, nodeHandler(t, lifecycle.NodeConfig{Node: returns(node)}).Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: pod}).Admit)
	require.Equal(t, before, node)
}

// Upstream's TestGeneralPredicates, the cases with a cached and a fresh node.
func TestNodeHandler_ReadsTheNodeAgain(t *testing.T) {
	t.Parallel()
	foo := map[string]string{"foo": "bar"}
	taint := corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoExecute}
	started := func(pod *corev1.Pod) *corev1.Pod {
		pod = pod.DeepCopy()
		pod.Status.StartTime = new(metav1.NewTime(epoch()))
		return pod
	}
	named := podWantingFoo()
	named.Spec.NodeName = "some-node-name"
	for _, tt := range []struct {
		name          string
		pod           *corev1.Pod
		cached, fresh *corev1.Node
		allocated     bool
		want          string
	}{
		{"neither node matches", podWantingFoo(), machine(nil), machine(nil), false, "NodeAffinity"},
		{"only the fresh node matches", podWantingFoo(), machine(nil), machine(foo), false, ""},
		{"only the cached node matches", podWantingFoo(), machine(foo), machine(nil), false, ""},
		{"the fresh node matches, but not the node name", named, machine(nil), machine(foo), false, "NodeAffinity"},
		{"the fresh node is not available", podWantingFoo(), machine(nil), nil, false, "NodeAffinity"},
		{"the pod has run on this node", started(podWantingFoo()), machine(nil), machine(nil), true, ""},
		{"the pod has not started", podWantingFoo(), machine(nil), machine(nil), true, "NodeAffinity"},
		{"the pod has run on this node, but the node name is wrong", started(named), machine(nil), machine(foo), true, "NodeName"},
		{"the pod has run on this node, which now has a taint", started(&corev1.Pod{}), machine(nil, taint), nil, true, ""},
		{"the pod has not run on this node, which has a taint", started(&corev1.Pod{}), machine(nil, taint), nil, false, "TaintToleration"},
	} {
		h := nodeHandler(t, lifecycle.NodeConfig{
			Node:      returns(tt.cached),
			FreshNode: returns(tt.fresh),
			Allocated: func(*corev1.Pod) bool { return tt.allocated },
		})
		require.Equal(t, tt.want, h.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: tt.pod}).Reason, tt.name)
	}
	h := nodeHandler(t, lifecycle.NodeConfig{FreshNode: fails})
	require.Equal(t, lifecycle.NodeAffinity, h.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: podWantingFoo()}).Reason)
}

func TestNodeHandler_CriticalPodPreemptsOthers(t *testing.T) {
	t.Parallel()
	var killed []string
	rec := &events{}
	var observed []string
	var killErr error
	h := nodeHandler(t, lifecycle.NodeConfig{
		Preempt: func(_ context.Context, victim *corev1.Pod) error {
			killed = append(killed, victim.Name)
			return killErr
		},
		Events: rec,
		Observer: lifecycle.NodeObserver{Preempted: func(p lifecycle.Preemption) {
			require.Equal(t, corev1.ResourceCPU, p.Resource)
			observed = append(observed, fmt.Sprint(p.Preemptor.Name, " ", p.Victim.Name, " ", p.Err))
		}},
	})
	small, large := podAsking("cpu", "3m"), podAsking("cpu", "7m")
	small.Name, large.Name = "small", "large"
	critical := podAsking("cpu", "5m")
	critical.Name, critical.Spec.Priority = "critical", new(podspec.SystemCriticalPriority)
	attrs := lifecycle.PodAdmitAttributes{Pod: critical, OtherPods: []*corev1.Pod{small, large}}

	require.True(t, h.Admit(t.Context(), attrs).Admit)
	require.Equal(t, []string{"large"}, killed)
	require.Equal(t, []string{"large Warning Preempting Preempted in order to admit critical pod"}, rec.all)
	require.Equal(t, []string{"critical large <nil>"}, observed)

	killErr = errors.New("it resists") // upstream's TestEvictPodsToFreeRequestsWithError
	require.True(t, h.Admit(t.Context(), attrs).Admit)
	require.Equal(t, "critical large it resists", observed[1])

	plain := attrs
	plain.Pod = podAsking("cpu", "5m")
	require.Equal(t, lifecycle.OutOfCPU, h.Admit(t.Context(), plain).Reason, "a pod that is not critical must not preempt")

	critical.Spec.NodeName = "elsewhere"
	require.Equal(t, lifecycle.NodeName, h.Admit(t.Context(), attrs).Reason, "a pod must not preempt if preemption cannot make it fit")
	critical.Spec.NodeName = ""
	require.Len(t, killed, 2)

	attrs.OtherPods = []*corev1.Pod{large, critical}
	critical.Spec.Containers[0].Resources.Requests = res("cpu", "9m")
	require.Equal(t, lifecycle.PodAdmitResult{
		Reason: "UnexpectedAdmissionError",
		Message: "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods " +
			"to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 8), ]",
	}, h.Admit(t.Context(), attrs))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	critical.Spec.Containers[0].Resources.Requests = res("cpu", "4m")
	attrs.OtherPods = []*corev1.Pod{large}
	require.Equal(t, lifecycle.UnexpectedAdmissionError, h.Admit(ctx, attrs).Reason)
	require.Equal(t, lifecycle.OutOfCPU, nodeHandler(t, lifecycle.NodeConfig{}).Admit(t.Context(), attrs).Reason, "without a Preempt function, the pod must be rejected")
	require.Len(t, killed, 2)
}
