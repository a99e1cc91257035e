package podspec

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MetadataField returns the value of a downward-API reference to a field of the pod's metadata:
// metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'] or
// metadata.annotations['KEY']. The value of a missing key is empty. These are the fields that
// environment variables and volumes have in common. MetadataField returns an error with the
// kubelet's text for any other path.
func MetadataField(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
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

// ResourceField returns the value of a downward-API reference to a request or a limit of c, in
// units of the divisor, rounded up. A divisor of zero means 1. A missing limit of CPU, memory or
// ephemeral storage is replaced by the amount in defaults. A missing request is zero. A missing
// limit without a default is zero too. ResourceField ignores the container name in ref. It returns
// an error for a resource other than CPU, memory, ephemeral storage and huge pages, and for a
// negative divisor.
func ResourceField(ref *corev1.ResourceFieldSelector, c *corev1.Container, defaults corev1.ResourceList) (string, error) {
	kind, text, _ := strings.Cut(ref.Resource, ".")
	name := corev1.ResourceName(text)
	hasDefault := name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
	if kind != "limits" && kind != "requests" || !hasDefault && !strings.HasPrefix(text, corev1.ResourceHugePagesPrefix) {
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	quantity := c.Resources.Requests[name]
	if kind == "limits" {
		if quantity = c.Resources.Limits[name]; quantity.IsZero() && hasDefault {
			quantity = defaults[name]
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	value, by := quantity.Value(), divisor.Value()
	if name == corev1.ResourceCPU {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	if by <= 0 {
		return "", fmt.Errorf("divisor %s is not positive", divisor.String())
	}
	units := value / by
	if value%by > 0 {
		units++
	}
	return strconv.FormatInt(units, 10), nil
}
