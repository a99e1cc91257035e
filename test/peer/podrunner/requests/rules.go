package requests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	rule  = judge.Rule[*world]
	scene = judge.Scene[*world]
)

const (
	ourDoc    = "lifecycle/podrunner/doc.go"
	imagesDoc = "lifecycle/images/doc.go"
)

// rules returns all rules. The first that explains a difference counts.
func rules() []rule {
	return slices.Concat(refusalRules(), failureRules(), identityRules(), sandboxRules(), dnsRules(), securityRules(), resizeRules(), podResizeRules(), containerRules(), imageRules())
}

// pod is the pod as it was in the step.
func pod(s scene) *corev1.Pod { return s.World.pods[s.Step] }

// about splits a fact into the request, its object and the field: "create",
// "main-1", "log_path". A sandbox has no name.
func about(s scene) (request, name, field string) {
	if rest, ok := strings.CutPrefix(s.Fact, "pull "); ok { // an image name can contain slashes
		name, rest, _ = strings.Cut(rest, " as ")
		_, field, _ = strings.Cut(rest, "/")
		return "pull", name, field
	}
	head, field, _ := strings.Cut(s.Fact, "/")
	request, name, _ = strings.Cut(head, " ")
	return request, name, field
}

// container returns the container that the fact is about, or nil.
func container(s scene) *corev1.Container {
	_, name, _ := about(s)
	name, _, _ = strings.Cut(name, " ")
	return named(pod(s), name)
}

func named(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*corev1.Container)(&c.EphemeralContainerCommon)
		}
	}
	return nil
}

// kubeletFact returns another fact of the kubelet's side in the same step; ourFact does the
// same for our side.
func kubeletFact(s scene, name string) string { return s.KubeletFacts[s.Step][name] }

func ourFact(s scene, name string) string { return s.OursFacts[s.Step][name] }

// beside returns the name of the fact with the last field replaced.
func beside(s scene, field string) string {
	return s.Fact[:strings.LastIndex(s.Fact, "/")+1] + field
}
