package podspec

import corev1 "k8s.io/api/core/v1"

// RestartsOnResize reports whether the resize policy of c requires a restart
// when the named resource changes (KEP-1287). If it does not require a restart,
// the resource changes in place.
func RestartsOnResize(c *corev1.Container, name corev1.ResourceName) bool {
	for _, p := range c.ResizePolicy {
		if p.ResourceName == name {
			return p.RestartPolicy == corev1.RestartContainer
		}
	}
	return false
}

// QOSClassOfSpec returns the class that [QOSClass] computes from the spec, even
// if the status has a class. If the two classes differ, a resize has changed
// the requests or limits so that another class follows from the spec.
// Kubernetes does not allow such a resize.
func QOSClassOfSpec(pod *corev1.Pod) corev1.PodQOSClass {
	return QOSClass(&corev1.Pod{Spec: pod.Spec})
}
