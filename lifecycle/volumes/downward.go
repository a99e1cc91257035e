package volumes

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// fieldValue returns the value of a field of the pod for a downwardAPI volume.
func fieldValue(pod *corev1.Pod, field string) (string, error) {
	switch field {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	}
	name, ok := strings.CutSuffix(field, "']")
	if key, is := strings.CutPrefix(name, "metadata.labels['"); ok && is {
		return pod.Labels[key], nil
	}
	if key, is := strings.CutPrefix(name, "metadata.annotations['"); ok && is {
		return pod.Annotations[key], nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", field)
}

// lines formats a map as the downward API does: sorted, with quoted values.
func lines(m map[string]string) string {
	all := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%v=%q", key, m[key]))
	}
	return strings.Join(all, "\n")
}

// resourceValue returns a request or limit of one of the pod's containers in
// units of the divisor, rounded up. If a limit is missing, resourceValue uses
// the node's allocatable amount.
func resourceValue(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == ref.ContainerName })
	if i < 0 {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	kind, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	switch resourceName {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
	default:
		if !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
			return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
		}
	}
	var quantity resource.Quantity
	switch kind {
	case "requests":
		quantity = all[i].Resources.Requests[resourceName]
	case "limits":
		limit, ok := all[i].Resources.Limits[resourceName]
		if !ok || limit.IsZero() {
			limit, ok = allocatable[resourceName]
		}
		if !ok && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
			return "", fmt.Errorf("container %s has no %s, and the node's allocatable %s is unknown", ref.ContainerName, ref.Resource, name)
		}
		quantity = limit
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	return divide(quantity, ref.Divisor, resourceName == corev1.ResourceCPU), nil
}

// divide returns quantity divided by divisor, rounded up. If the divisor is not
// positive, it is 1. If milli is true, both values are first converted to
// thousandths.
func divide(quantity, divisor resource.Quantity, milli bool) string {
	if divisor.Sign() <= 0 {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	a, b := quantity.Value(), divisor.Value()
	if milli {
		a, b = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt(int64(math.Ceil(float64(a)/float64(max(b, 1)))), 10)
}
