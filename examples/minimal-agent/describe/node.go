package describe

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/eviction"
)

// NodeFacts are what is known of the node. Nothing in it is modified.
type NodeFacts struct {
	Name      string
	Labels    map[string]string
	IPs       []string
	Info      corev1.NodeSystemInfo
	Created   time.Time // when the agent began
	Capacity  corev1.ResourceList
	Allocate  corev1.ResourceList
	Images    []corev1.ContainerImage
	Features  *corev1.NodeFeatures
	Handlers  []corev1.NodeRuntimeHandler
	Condition []corev1.NodeCondition
	Now       time.Time
}

// Node is the node as a kubelet would report it.
func Node(f NodeFacts) corev1.Node {
	n := corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: f.Name, Labels: f.Labels, CreationTimestamp: metav1.NewTime(f.Created),
		},
		Status: corev1.NodeStatus{
			Capacity: f.Capacity, Allocatable: f.Allocate, NodeInfo: f.Info, Images: f.Images,
			Features: f.Features, RuntimeHandlers: f.Handlers,
		},
	}
	for _, ip := range f.IPs {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: f.Name})
	for _, c := range f.Condition {
		c.LastHeartbeatTime = metav1.NewTime(f.Now)
		n.Status.Conditions = append(n.Status.Conditions, c)
	}
	return n
}

// ReadyCondition is the node's condition Ready: true without problems.
func ReadyCondition(problems []string) corev1.NodeCondition {
	if len(problems) == 0 {
		return corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Reason: "KubeletReady", Message: "kubelet is posting ready status",
		}
	}
	message := problems[0]
	if len(problems) > 1 {
		message = "[" + strings.Join(problems, ", ") + "]"
	}
	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: message}
}

// Conditions are the conditions of a node, in the kubelet's order: what it is short
// of, and whether it is ready. Before holds what was said before: a condition whose
// status is the same keeps its transition time.
func Conditions(before []corev1.NodeCondition, short []corev1.NodeConditionType, problems []string, now time.Time) []corev1.NodeCondition {
	var out []corev1.NodeCondition
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		out = append(out, eviction.ConditionStatus(kind, slices.Contains(short, kind)))
	}
	out = append(out, ReadyCondition(problems))
	for i := range out {
		out[i].LastTransitionTime = metav1.NewTime(now)
		for _, b := range before {
			if b.Type == out[i].Type && b.Status == out[i].Status {
				out[i].LastTransitionTime = b.LastTransitionTime
			}
		}
	}
	return out
}

// Allocatable is what is left of capacity for pods: without what is reserved for others
// and what hard eviction keeps free, which pods could never use. Nothing is less than 0.
func Allocatable(capacity corev1.ResourceList, reserved []corev1.ResourceList, thresholds []eviction.Threshold) corev1.ResourceList {
	out := capacity.DeepCopy()
	take := func(name corev1.ResourceName, q resource.Quantity) {
		left, ok := out[name]
		if !ok {
			return
		}
		left.Sub(q)
		if left.Sign() < 0 {
			left = *resource.NewQuantity(0, left.Format)
		}
		out[name] = left
	}
	for _, list := range reserved {
		for name, q := range list {
			take(name, q)
		}
	}
	signals := map[eviction.Signal]corev1.ResourceName{
		eviction.MemoryAvailable: corev1.ResourceMemory,
		eviction.NodeFSAvailable: corev1.ResourceEphemeralStorage,
	}
	for _, t := range thresholds {
		name, ok := signals[t.Signal]
		if !ok || !t.Hard() {
			continue
		}
		whole := capacity[name]
		take(name, *resource.NewQuantity(t.Value.Of(whole.Value()), resource.BinarySI))
	}
	return out
}
