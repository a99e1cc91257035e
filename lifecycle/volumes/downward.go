package volumes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// fieldValue returns the value of a field of the pod for a downwardAPI volume.
func fieldValue(pod *corev1.Pod, field string) (string, error) {
	switch field {
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	default:
		return podspec.MetadataField(pod, field)
	}
}

// lines formats a map as the downward API does: sorted, with quoted values.
func lines(m map[string]string) string {
	all := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf("%v=%q", key, m[key]))
	}
	return strings.Join(all, "\n")
}

// resourceValue returns a request or limit of one of the pod's containers for a downwardAPI
// volume. If a limit is missing, resourceValue uses the node's allocatable amount. If the
// allocatable amount is unknown, resourceValue returns an error, because a file with a wrong amount
// would stay wrong. A missing limit of hugepages is 0.
func resourceValue(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	c := podspec.Container(&pod.Spec, ref.ContainerName)
	if c == nil {
		return "", fmt.Errorf("container %s not found", ref.ContainerName)
	}
	value, err := podspec.ResourceField(ref, c, allocatable)
	if err != nil {
		return "", err
	}
	if name, ok := strings.CutPrefix(ref.Resource, "limits."); ok && !strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		limit := c.Resources.Limits[corev1.ResourceName(name)]
		if _, known := allocatable[corev1.ResourceName(name)]; limit.IsZero() && !known {
			return "", fmt.Errorf("container %s has no %s, and the node's allocatable %s is unknown", ref.ContainerName, ref.Resource, name)
		}
	}
	return value, nil
}
