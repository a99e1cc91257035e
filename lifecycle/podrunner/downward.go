package podrunner

import (
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/podips"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FieldValue returns the value of a downward-API reference to a field of the
// pod, for an environment variable. podIPs are the sandbox's addresses; the
// first of each family is used, as in the pod's status. A pod in the host
// network has the node's addresses. FieldValue is pure.
func FieldValue(ref *corev1.ObjectFieldSelector, pod *corev1.Pod, podIPs []string, node Node) (string, error) {
	if v := ref.APIVersion; v != "" && v != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", v)
	}
	if pod.Spec.HostNetwork {
		podIPs = node.IPs
	}
	podIPs = podips.Families(podIPs, node.IPs)
	switch ref.FieldPath {
	case "spec.nodeName", "spec.host":
		return node.Name, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		return first(node.IPs), nil
	case "status.hostIPs":
		return strings.Join(node.IPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	default:
		return podspec.MetadataField(pod, ref.FieldPath)
	}
}

// ResourceValue returns the value of a downward-API reference to requests or
// limits of the container that ref names, or of c if ref names no container. A
// missing limit of CPU, memory or ephemeral storage defaults to the pod-level
// limit. If the pod-level limit is missing too, it defaults to the node's
// allocatable amount. A missing limit of huge pages is zero. Values are in
// units of the divisor, rounded up. ResourceValue is pure.
func ResourceValue(ref *corev1.ResourceFieldSelector, pod *corev1.Pod, c *corev1.Container, allocatable corev1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		if c = podspec.Container(&pod.Spec, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	return podspec.ResourceField(ref, c, defaultLimits(pod, allocatable))
}

// defaultLimits returns the limits of a container that has no limits of its own. These are the
// pod-level limits. A resource without a pod-level limit has the node's allocatable amount as its
// limit.
func defaultLimits(pod *corev1.Pod, allocatable corev1.ResourceList) corev1.ResourceList {
	if pod.Spec.Resources == nil {
		return allocatable
	}
	defaults := maps.Clone(allocatable)
	if defaults == nil {
		defaults = corev1.ResourceList{}
	}
	for name, limit := range pod.Spec.Resources.Limits {
		if !limit.IsZero() {
			defaults[name] = limit
		}
	}
	return defaults
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
