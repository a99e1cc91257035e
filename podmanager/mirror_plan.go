package podmanager

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// MirrorAction is a change at the API server: delete a mirror pod, create a mirror pod, or
// delete one and then create its replacement.
type MirrorAction struct {
	// Delete is the mirror pod to delete, identified by its UID. It is nil if the action does
	// not delete a mirror pod.
	Delete *corev1.Pod
	// Create is the static pod whose mirror is to be created. It is nil if the action does
	// not create a mirror pod.
	Create *corev1.Pod
	// Reason is the cause of the action, one of the constants below.
	Reason string
}

// The reasons of a [MirrorAction].
const (
	// MirrorMissing means that a static pod has no mirror.
	MirrorMissing = "the static pod has no mirror"
	// MirrorOutdated means that the mirror shows another version of the static pod.
	MirrorOutdated = "the mirror shows another version of the static pod"
	// MirrorDeleted means that a client is deleting the mirror. This does not terminate the
	// static pod.
	MirrorDeleted = "the mirror is being deleted"
	// MirrorOrphaned means that no static pod has the mirror's name.
	MirrorOrphaned = "the mirror has no static pod"
)

// PlanMirrors returns the actions after which, with the exceptions below, each static pod
// has exactly one mirror, the mirror shows the current version of the pod, and no other
// mirrors exist. Pass both lists as [Manager.GetPodsAndMirrorPods] returns them. The lists
// are not modified, and the actions are in the order of the lists.
//
// If several pods have the same name, the mirror belongs to the last of them.
//
// keep may be nil. If keep returns true for a mirror without a static pod, PlanMirrors does
// not plan to delete the mirror, so that users can see a pod that is still terminating.
//
// A static pod without a hash annotation has no version to compare, so its mirror never
// counts as outdated. PlanMirrors plans no new mirror of such a pod, because
// [MirrorClient.Create] would return an error.
//
// Pass all pods, including finished pods. For a pod that is not passed, PlanMirrors plans
// no mirror, and treats an existing mirror as a mirror without a static pod.
func PlanMirrors(pods, mirrors []*corev1.Pod, keep func(mirror *corev1.Pod) bool) (plan []MirrorAction) {
	mirrorOf, podOf := lastOfName(mirrors), lastOfName(pods)
	for _, pod := range pods {
		if !podspec.IsStatic(pod) || podOf[nameOf(pod)] != pod {
			continue // pod is not static, or the mirror belongs to a newer pod with the same name
		}
		create := pod
		if pod.Annotations[podspec.HashAnnotation] == "" {
			create = nil
		}
		switch mirror := mirrorOf[nameOf(pod)]; {
		case mirror == nil && create == nil:
		case mirror == nil:
			plan = append(plan, MirrorAction{Create: pod, Reason: MirrorMissing})
		case mirror.DeletionTimestamp != nil:
			plan = append(plan, MirrorAction{Delete: mirror, Create: create, Reason: MirrorDeleted})
		case !Mirrors(mirror, pod) && create != nil:
			plan = append(plan, MirrorAction{Delete: mirror, Create: pod, Reason: MirrorOutdated})
		}
	}
	for _, mirror := range mirrors {
		pod := podOf[nameOf(mirror)]
		orphan := pod == nil || !podspec.IsStatic(pod)
		if orphan && (keep == nil || !keep(mirror)) {
			plan = append(plan, MirrorAction{Delete: mirror, Reason: MirrorOrphaned})
		}
	}
	return plan
}

// Mirrors reports whether mirror is the mirror of this version of pod: whether it has the
// name and namespace of pod, and the hash that the source has set on pod.
func Mirrors(mirror, pod *corev1.Pod) bool {
	of, ok := mirror.Annotations[podspec.MirrorAnnotation]
	return ok && of != "" && of == pod.Annotations[podspec.HashAnnotation] && nameOf(mirror) == nameOf(pod)
}
