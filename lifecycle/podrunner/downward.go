package podrunner

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	switch path := ref.FieldPath; path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
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
		return mapEntry(path, pod)
	}
}

// mapEntry returns the value of metadata.labels['KEY'] or
// metadata.annotations['KEY'].
func mapEntry(path string, pod *corev1.Pod) (string, error) {
	field, key, subscripted := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	switch {
	case !subscripted || !strings.HasSuffix(path, "']"):
		return "", fmt.Errorf("unsupported fieldPath: %v", path)
	case field == "metadata.labels":
		return pod.Labels[key], nil
	case field == "metadata.annotations":
		return pod.Annotations[key], nil
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
}

// ResourceValue returns the value of a downward-API reference to requests or
// limits of the container that ref names, or of c if ref names no container. A
// missing limit of CPU, memory or ephemeral storage defaults to the pod-level
// limit or, if that is missing too, to the node's allocatable amount. A missing
// limit of huge pages is zero. Values are in units of the divisor, rounded up.
// ResourceValue is pure.
func ResourceValue(ref *corev1.ResourceFieldSelector, pod *corev1.Pod, c *corev1.Container, allocatable corev1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		if c = podspec.Container(&pod.Spec, ref.ContainerName); c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	if kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	resourceName := corev1.ResourceName(name)
	quantity := c.Resources.Requests[resourceName]
	if kind == "limits" {
		quantity = limitOf(resourceName, pod, c, allocatable)
	}
	switch {
	case resourceName == corev1.ResourceCPU:
		return divided(quantity, ref.Divisor, true)
	case resourceName == corev1.ResourceMemory, resourceName == corev1.ResourceEphemeralStorage,
		strings.HasPrefix(name, corev1.ResourceHugePagesPrefix):
		return divided(quantity, ref.Divisor, false)
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
}

func limitOf(name corev1.ResourceName, pod *corev1.Pod, c *corev1.Container, allocatable corev1.ResourceList) resource.Quantity {
	if limit, ok := c.Resources.Limits[name]; ok && !limit.IsZero() {
		return limit
	}
	if r := pod.Spec.Resources; r != nil && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
		if limit, ok := r.Limits[name]; ok && !limit.IsZero() {
			return limit
		}
	}
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return allocatable[name]
	default:
		return resource.Quantity{}
	}
}

func first(s []string) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}
