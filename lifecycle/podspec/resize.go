package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsOnResize says whether c is to be restarted when its resource of that
// name changes, instead of changing it in place (KEP-1287).
func RestartsOnResize(c *corev1.Container, name corev1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// QOSClassOfSpec is what [QOSClass] would be if the pod's status did not say it.
// The two differ when the resources in the spec were changed to those of another
// class, which no pod may take.
func QOSClassOfSpec(pod *corev1.Pod) corev1.PodQOSClass {
	return QOSClass(&corev1.Pod{Spec: pod.Spec})
}
