package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Misfit is one reason why a pod does not fit on a node.
type Misfit struct {
	// Reason and Message are as in [PodAdmitResult].
	Reason, Message string
	// Resource is what the node has too little of, empty where the misfit is
	// about something else. What follows is set only beside it: cpu in
	// thousandths, everything else in its unit.
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Missing returns how much the node lacks for the pod, 0 where the misfit is not
// about a resource.
func (m Misfit) Missing() int64 { return plus(m.Requested, m.Used) - m.Capacity }

// FitsAll returns every misfit of a pod on a node that holds others already, in
// the kubelet's order: resources, node affinity, node name, host ports, taints.
// None means that the pod fits. Nil pods among the others count for nothing.
// It is pure.
func FitsAll(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) []Misfit {
	all := FitsResources(pod, others, node)
	for _, m := range []*Misfit{
		fitsAffinity(pod, node), fitsName(pod, node), FitsHostPorts(pod, others), FitsTaints(pod, node),
	} {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all
}

// FitsNode says whether the pod may run on the node by its node selector,
// its required node affinity and its node name; nil if so. A term of the affinity
// that can't be understood matches nothing.
func FitsNode(pod *corev1.Pod, node *corev1.Node) *Misfit {
	if m := fitsAffinity(pod, node); m != nil {
		return m
	}
	return fitsName(pod, node)
}

func fitsAffinity(pod *corev1.Pod, node *corev1.Node) *Misfit {
	if ok, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok {
		return predicate(NodeAffinity, nodeAffinityMismatch)
	}
	return nil
}

func fitsName(pod *corev1.Pod, node *corev1.Node) *Misfit {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return predicate(NodeName, nodeNameMismatch)
	}
	return nil
}

// FitsTaints says whether the pod may stay on the node in spite of its taints;
// nil if so. Like the kubelet it looks at NoExecute alone, and never for a static
// pod: whether a pod is put here is the scheduler's business. A toleration with
// the operator Lt or Gt (KEP-5471) matches no taint.
func FitsTaints(pod *corev1.Pod, node *corev1.Node) *Misfit {
	if podspec.IsStatic(pod) {
		return nil
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectNoExecute && !Tolerates(pod, taint) {
			return predicate(TaintToleration, taintNotTolerated)
		}
	}
	return nil
}

// Tolerates says whether one of the pod's tolerations matches the taint.
func Tolerates(pod *corev1.Pod, taint *corev1.Taint) bool {
	for i := range pod.Spec.Tolerations {
		if tolerates(&pod.Spec.Tolerations[i], taint) {
			return true
		}
	}
	return false
}

func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
		return false
	}
	switch t.Operator {
	case "", corev1.TolerationOpEqual:
		return t.Value == taint.Value
	case corev1.TolerationOpExists:
		return true
	default: // Lt and Gt need a feature gate that is off in the kubelet (KEP-5471)
		return false
	}
}

// FitsHostPorts says whether the host ports that the pod wants are free; nil if
// so. Ports of containers and of sidecars count, those of other init containers
// do not: they are gone before anything listens.
func FitsHostPorts(pod *corev1.Pod, others []*corev1.Pod) *Misfit {
	wanted := hostPorts(pod)
	if len(wanted) == 0 {
		return nil
	}
	for _, other := range others {
		if other == nil {
			continue
		}
		for _, taken := range hostPorts(other) {
			for _, port := range wanted {
				if port.clashes(taken) {
					return predicate(NodePorts, nodePortsTaken)
				}
			}
		}
	}
	return nil
}

// A hostPort is one port of the node's, on one of its addresses or on all.
type hostPort struct {
	protocol corev1.Protocol
	ip       string
	port     int32
}

// anyIP stands for all addresses of the node.
const anyIP = "0.0.0.0"

func (p hostPort) clashes(q hostPort) bool {
	return p.port == q.port && p.protocol == q.protocol && (p.ip == q.ip || p.ip == anyIP || q.ip == anyIP)
}

func hostPorts(pod *corev1.Pod) (all []hostPort) {
	for c, init := range podspec.Containers(&pod.Spec) {
		if init && !podspec.IsSidecar(c) {
			continue
		}
		for _, p := range c.Ports {
			if p.HostPort <= 0 {
				continue
			}
			port := hostPort{protocol: p.Protocol, ip: p.HostIP, port: p.HostPort}
			if port.protocol == "" {
				port.protocol = corev1.ProtocolTCP
			}
			if port.ip == "" {
				port.ip = anyIP
			}
			all = append(all, port)
		}
	}
	return all
}

// FitsOS says whether the pod is one for the node's operating system, in Go's
// spelling: "linux", "windows"; nil if so. The pod's label kubernetes.io/os
// counts, and spec.os.
func FitsOS(pod *corev1.Pod, os string) *Misfit {
	if label, ok := pod.Labels[corev1.LabelOSStable]; ok && label != os {
		return &Misfit{
			Reason:  PodOSSelectorNodeLabelDoesNotMatch,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
		return &Misfit{Reason: PodOSNotSupported, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// FitsGroupsPolicy says whether the node's runtime can do what the pod wants with
// supplemental groups; nil if so (KEP-3619).
func FitsGroupsPolicy(pod *corev1.Pod, node *corev1.Node) *Misfit {
	const strict = corev1.SupplementalGroupsPolicyStrict
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != strict {
		return nil
	}
	if f := node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &Misfit{
		Reason:  SupplementalGroupsPolicyNotSupported,
		Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", strict),
	}
}

func predicate(name, why string) *Misfit {
	return &Misfit{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}
