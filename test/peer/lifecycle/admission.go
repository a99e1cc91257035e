package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	kubelet "k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/preemption"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

var (
	errNode = errors.New("no node")
	errKill = errors.New("cannot be ended")
)

// noNode is the error of our handler for a config without its only required field.
const noNode = "lifecycle: invalid node handler config: field Node is required"

// A side is one side's state of a world: the pods that it admitted, and its actions in the
// current step.
type side struct {
	w       *world
	pods    []*corev1.Pod
	fetched int
	victims []string
	events  []string
	told    []string // result of each kill
	pod     *corev1.Pod
}

// play admits all pods in order.
func (s *side) play(admit func(pod *corev1.Pod) (bool, string, string)) (all []judge.Facts) {
	for _, pod := range s.w.Pods {
		s.fetched, s.victims, s.events, s.told, s.pod = 0, nil, nil, nil, pod
		ok, reason, message := admit(pod)
		if ok {
			s.pods = append(s.pods, pod)
		}
		all = append(all, judge.Facts{
			"admitted": fmt.Sprint(ok), "reason": reason, "message": message, "fetched": fmt.Sprint(s.fetched),
			"victims": strings.Join(s.victims, " "), "events": strings.Join(s.events, "\n"), "pods": names(s.pods),
			"told": strings.Join(s.told, "\n"),
		})
	}
	return all
}

func names(pods []*corev1.Pod) string {
	var all []string
	for _, p := range pods {
		all = append(all, p.Name)
	}
	return strings.Join(all, " ")
}

func (s *side) node() (*corev1.Node, error) {
	if s.w.Node == nil {
		return nil, errNode
	}
	return s.w.Node, nil
}

func (s *side) fresh() (*corev1.Node, error) {
	if s.w.NoFresh {
		return s.node()
	}
	s.fetched++
	if s.w.Fresh == nil {
		return nil, errNode
	}
	return s.w.Fresh, nil
}

// silent removes the error of a failed lookup if the world demands it.
func (s *side) silent(n *corev1.Node, err error) (*corev1.Node, error) {
	if s.w.Silent {
		return n, nil
	}
	return n, err
}

// kill kills a victim, which then leaves the node.
func (s *side) kill(victim string) error {
	s.victims = append(s.victims, victim)
	if s.w.CannotEnd[victim] {
		return errKill
	}
	s.pods = slices.DeleteFunc(slices.Clone(s.pods), func(p *corev1.Pod) bool { return p.Name == victim })
	return nil
}

func (s *side) tell(preemptor, victim *corev1.Pod, err error) {
	s.told = append(s.told, fmt.Sprint(preemptor.Name, " ends ", victim.Name, ": ", err))
}

// Eventf records an event.
func (s *side) Eventf(object apiruntime.Object, eventtype, reason, messageFmt string, args ...any) {
	pod, _ := object.(*corev1.Pod)
	s.events = append(s.events, fmt.Sprintf("%s %s %s: %s", pod.GetName(), eventtype, reason, fmt.Sprintf(messageFmt, args...)))
}

// A recorder is an event recorder that writes to a side.
type recorder struct {
	record.EventRecorder
	*side
	spares func(victim string) bool
}

// Eventf records an event.
func (r recorder) Eventf(object apiruntime.Object, eventtype, reason, messageFmt string, args ...any) {
	if pod, ok := object.(*corev1.Pod); ok && r.spares(pod.Name) {
		return
	}
	r.side.Eventf(object, eventtype, reason, messageFmt, args...)
}

func admitKubelet(_ *testing.T, w *world) []judge.Facts {
	all := admitVariant(&side{w: w}, variant{})
	for i, pod := range w.Pods {
		all[i]["fits the node"] = kubeletFits(pod, w.Node)
	}
	return all
}

// kubeletFits returns the reason for which the kubelet does not run a pod on a node with
// these labels and this name.
func kubeletFits(pod *corev1.Pod, n *corev1.Node) string {
	if n == nil {
		return ""
	}
	info := framework.NewNodeInfo()
	info.SetNode(n)
	for _, r := range scheduler.AdmissionCheck(pod, info, true) {
		if r.Name == lifecycle.NodeAffinity || r.Name == lifecycle.NodeName {
			return fmt.Sprintf("%s: Predicate %s failed: %s", r.Name, r.Name, r.Reason)
		}
	}
	return ""
}

// ourFits is kubeletFits for our package.
func ourFits(pod *corev1.Pod, n *corev1.Node) string {
	if n == nil {
		return ""
	}
	if m := lifecycle.FitsNode(pod, n); m != nil {
		return m.Reason + ": " + m.Message
	}
	return ""
}

// admitVariant runs the admission of a side's pods with the kubelet's package.
func admitVariant(s *side, v variant) []judge.Facts {
	candidates := func() []*corev1.Pod {
		pods := slices.Clone(s.pods)
		if v.excluded {
			pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return v.spares(p.Name) })
		}
		if v.held {
			pods = flat(pods)
		}
		return pods
	}
	kill := func(victim *corev1.Pod, _ bool, _ *int64, _ func(*corev1.PodStatus)) error {
		if v.spares(victim.Name) {
			return nil
		}
		err := s.kill(victim.Name)
		s.tell(s.pod, victim, err)
		return err
	}
	handler := kubelet.NewPredicateAdmitHandler(
		func(_ context.Context, cached bool) (*corev1.Node, error) {
			if cached {
				return s.node()
			}
			return s.fresh()
		},
		preemption.NewCriticalPodAdmissionHandler(candidates, kill, recorder{side: s, spares: v.spares}),
		func(*framework.NodeInfo, *kubelet.PodAdmitAttributes) error { return nil },
	)
	return s.play(func(pod *corev1.Pod) (bool, string, string) {
		r := handler.Admit(&kubelet.PodAdmitAttributes{Pod: pod, OtherPods: slices.Clone(s.pods)})
		return r.Admit, r.Reason, r.Message
	})
}

func admitOurs(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	s := &side{w: w}
	fresh := func(context.Context) (*corev1.Node, error) { return s.silent(s.fresh()) }
	if w.NoFresh {
		fresh = nil
	}
	handler, err := lifecycle.NewNodeHandler(lifecycle.NodeConfig{
		Node:      func(context.Context) (*corev1.Node, error) { return s.silent(s.node()) },
		FreshNode: fresh,
		Allocated: func(pod *corev1.Pod) bool { return w.Settled[pod.Name] },
		Preempt:   func(_ context.Context, victim *corev1.Pod) error { return s.kill(victim.Name) },
		Events:    s,
		Observer:  lifecycle.NodeObserver{Preempted: func(p lifecycle.Preemption) { s.tell(p.Preemptor, p.Victim, p.Err) }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lifecycle.NewNodeHandler(lifecycle.NodeConfig{}); err == nil || err.Error() != noNode {
		t.Fatalf("error for a config without a node: %v", err)
	}
	all := s.play(func(pod *corev1.Pod) (bool, string, string) {
		others := slices.Clone(s.pods)
		if w.Gaps {
			others = slices.Concat([]*corev1.Pod{nil}, others, []*corev1.Pod{nil})
		}
		r := handler.Admit(t.Context(), lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others})
		return r.Admit, r.Reason, r.Message
	})
	for i, pod := range w.Pods {
		all[i]["fits the node"] = ourFits(pod, w.Node)
	}
	return all
}
