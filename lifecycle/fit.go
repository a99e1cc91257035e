package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// AdmissionFailure is one reason why a pod does not fit on a node.
type AdmissionFailure struct {
	// Reason and Message have the same meaning as in [PodAdmitResult].
	Reason, Message string
	// Resource is the resource that the node has too little of. It is empty if
	// the reason is not a resource. Requested, Used and Capacity are set only
	// if Resource is set. Their unit is millicores for CPU, and the resource's
	// own unit for other resources.
	Resource                  corev1.ResourceName
	Requested, Used, Capacity int64
}

// Missing returns how much of the resource the node lacks, 0 if the reason is
// not a resource.
func (m AdmissionFailure) Missing() int64 { return plus(m.Requested, m.Used) - m.Capacity }

// FitsAll returns every reason why the pod does not fit on the node beside the
// other pods of the node. It ignores other pods that are nil. The order of the
// reasons is the kubelet's: resources, node affinity, node name, host ports,
// taints. An empty result means that the pod fits. FitsAll is pure.
func FitsAll(pod *corev1.Pod, others []*corev1.Pod, node *corev1.Node) []AdmissionFailure {
	all := FitsResources(pod, others, node)
	for _, m := range []*AdmissionFailure{
		fitsAffinity(pod, node), fitsName(pod, node), FitsHostPorts(pod, others), FitsTaints(pod, node),
	} {
		if m != nil {
			all = append(all, *m)
		}
	}
	return all
}

// FitsNode checks the pod's node selector, required node affinity and node
// name. It returns nil if the pod may run on the node. An affinity term that
// cannot be parsed matches nothing.
func FitsNode(pod *corev1.Pod, node *corev1.Node) *AdmissionFailure {
	if m := fitsAffinity(pod, node); m != nil {
		return m
	}
	return fitsName(pod, node)
}

func fitsAffinity(pod *corev1.Pod, node *corev1.Node) *AdmissionFailure {
	if ok, _ := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); !ok {
		return predicate(NodeAffinity, nodeAffinityMismatch)
	}
	return nil
}

func fitsName(pod *corev1.Pod, node *corev1.Node) *AdmissionFailure {
	if pod.Spec.NodeName != "" && pod.Spec.NodeName != node.Name {
		return predicate(NodeName, nodeNameMismatch)
	}
	return nil
}

// FitsTaints checks the node's taints. It returns nil if the pod tolerates
// them. Like the kubelet, it checks only taints with the effect NoExecute. The
// scheduler checks the other effects. For a static pod, FitsTaints checks no
// taints. A toleration with the operator Lt or Gt (KEP-5471) matches no taint.
func FitsTaints(pod *corev1.Pod, node *corev1.Node) *AdmissionFailure {
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

// Tolerates reports whether one of the pod's tolerations matches the taint.
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

// FitsHostPorts checks the host ports that the pod requests. It returns nil if
// they are free. Ports of containers and sidecars count. Ports of other init
// containers do not count, because these init containers have ended before the
// containers start to listen.
func FitsHostPorts(pod *corev1.Pod, others []*corev1.Pod) *AdmissionFailure {
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

// A hostPort is one port on one or all addresses of the node.
type hostPort struct {
	protocol corev1.Protocol
	ip       string
	port     int32
}

// anyIP means all addresses of the node.
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

// FitsOS compares the pod's label kubernetes.io/os and its spec.os with os, the
// node's operating system in Go's spelling ("linux", "windows"). It returns nil
// if each of them is either not set or equal to os.
func FitsOS(pod *corev1.Pod, os string) *AdmissionFailure {
	if label, ok := pod.Labels[corev1.LabelOSStable]; ok && label != os {
		return &AdmissionFailure{
			Reason:  PodOSSelectorNodeLabelDoesNotMatch,
			Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
		}
	}
	if pod.Spec.OS != nil && string(pod.Spec.OS.Name) != os {
		return &AdmissionFailure{Reason: PodOSNotSupported, Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return nil
}

// FitsGroupsPolicy checks whether the node's runtime supports the pod's
// supplemental groups policy (KEP-3619). It returns nil if the policy is
// supported.
func FitsGroupsPolicy(pod *corev1.Pod, node *corev1.Node) *AdmissionFailure {
	const strict = corev1.SupplementalGroupsPolicyStrict
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.SupplementalGroupsPolicy == nil || *sc.SupplementalGroupsPolicy != strict {
		return nil
	}
	if f := node.Status.Features; f != nil && f.SupplementalGroupsPolicy != nil && *f.SupplementalGroupsPolicy {
		return nil
	}
	return &AdmissionFailure{
		Reason:  SupplementalGroupsPolicyNotSupported,
		Message: fmt.Sprintf("SupplementalGroupsPolicy=%s is not supported in this node", strict),
	}
}

func predicate(name, why string) *AdmissionFailure {
	return &AdmissionFailure{Reason: name, Message: fmt.Sprintf("Predicate %s failed: %s", name, why)}
}
