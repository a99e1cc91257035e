package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsOnResize reports whether c must be restarted when its resource of
// that name changes, instead of a change in place (KEP-1287).
func RestartsOnResize(c *corev1.Container, name corev1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// QOSClassOfSpec returns the class that [QOSClass] computes from the spec,
// ignoring the status. The two differ if the resources in the spec were changed
// to those of another class, which is not allowed.
func QOSClassOfSpec(pod *corev1.Pod) corev1.PodQOSClass {
	return QOSClass(&corev1.Pod{Spec: pod.Spec})
}
