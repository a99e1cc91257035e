package podmanager

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// MirrorAction is what has to be done about one mirror pod: delete one, create
// one, or both, in this order.
type MirrorAction struct {
	// Delete is the mirror to delete, this one and no other of its name; nil if none.
	Delete *corev1.Pod
	// Create is the static pod to create a mirror of; nil if none.
	Create *corev1.Pod
	// Reason says why, in a few words for a log.
	Reason string
}

// The reasons of a [MirrorAction].
const (
	// MirrorMissing says that a static pod has no mirror.
	MirrorMissing = "the static pod has no mirror"
	// MirrorOutdated says that the mirror is of another version of the static pod.
	MirrorOutdated = "the mirror is not of this version of the static pod"
	// MirrorDeleted says that somebody deletes the mirror, which ends no static pod.
	MirrorDeleted = "the mirror is being deleted"
	// MirrorOrphaned says that there is no static pod that the mirror belongs to.
	MirrorOrphaned = "the mirror has no static pod"
)

// PlanMirrors returns what has to be done so that each static pod among pods has
// exactly one mirror, which says what the pod says, and so that no other mirrors are
// left. Both lists are as [Manager.GetPodsAndMirrorPods] returns them. Nothing is
// modified, and the result follows their order.
//
// A mirror without a static pod is left alone if keep, which may be nil, returns true
// for it: while the pod that it shows is still terminating, users should see that.
//
// A static pod without a hash has no versions to compare: its mirror, if there is
// one, stays.
//
// It is to be called for all pods, those that have finished included: a mirror that
// is deleted comes back for as long as its pod is wanted.
func PlanMirrors(pods, mirrors []*corev1.Pod, keep func(mirror *corev1.Pod) bool) (plan []MirrorAction) {
	mirrorOf, podOf := lastOfName(mirrors), lastOfName(pods)
	for _, pod := range pods {
		if !podspec.IsStatic(pod) || podOf[nameOf(pod)] != pod {
			continue // a predecessor has given its name, and its mirror, away
		}
		switch mirror := mirrorOf[nameOf(pod)]; {
		case mirror == nil:
			plan = append(plan, MirrorAction{Create: pod, Reason: MirrorMissing})
		case mirror.DeletionTimestamp != nil:
			plan = append(plan, MirrorAction{Delete: mirror, Create: pod, Reason: MirrorDeleted})
		case !Mirrors(mirror, pod) && pod.Annotations[podspec.HashAnnotation] != "":
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

// Mirrors says whether mirror is the mirror of pod in the version at hand: it has
// its name and namespace, and the hash that pod's source gave it.
func Mirrors(mirror, pod *corev1.Pod) bool {
	of, ok := mirror.Annotations[podspec.MirrorAnnotation]
	return ok && of != "" && of == pod.Annotations[podspec.HashAnnotation] && nameOf(mirror) == nameOf(pod)
}
