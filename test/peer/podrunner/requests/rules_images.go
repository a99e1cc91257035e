package requests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// imageRules are about pulls.
func imageRules() []rule {
	return []rule{
		{
			Name: "unmounted image volumes", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "In each sync, the kubelet checks and pulls the images of all volumes of a pod, even if nothing starts. This package does this only for images that a starting container mounts.",
			Explains: func(s scene) bool {
				request, name, _ := about(s)
				if request != "pull" {
					return false
				}
				if s.Ours != "" && s.Kubelet != "" {
					ours, err := strconv.Atoi(s.Ours)
					return strings.HasSuffix(s.Fact, "/count") && err == nil && s.Kubelet == strconv.Itoa(ours+len(unmounted(s, name)))
				}
				before := slices.ContainsFunc(s.KubeletFacts[:s.Step], func(f judge.Facts) bool {
					privileged, isPrivileged := strings.CutSuffix(s.Fact, "/sandbox/linux/security_context/privileged") // because an ephemeral container was added since
					return s.Ours != "" && (f[s.Fact] == s.Ours || isPrivileged && f[privileged+"/count"] != "")
				})
				for _, v := range pod(s).Spec.Volumes {
					if v.Image != nil && (v.Image.Reference == name || v.Image.Reference+":latest" == name) && (before || s.Kubelet != "" && !mountedNow(s, v.Name)) {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "mixed pull policies during sandbox creation", Class: judge.Deliberate, Doc: ourDoc, Ends: true,
			Sentence: "This package pulls the images of one pod concurrently, while it creates the pod's sandbox. The kubelet pulls each image when it starts the container.",
			Explains: func(s scene) bool {
				// The order of containers decides whether an image is present in the next
				// turn.
				request, name, _ := about(s)
				return request == "pull" && s.Kubelet == "" && s.World.Steps[s.Step].Faults["RunPodSandbox"] != "" && len(policies(s, name)) > 1
			},
		},
		{
			Name: "image pulls during sandbox creation", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "This package pulls the images of one pod concurrently, while it creates the pod's sandbox. The kubelet pulls each image when it starts the container.",
			Explains: func(s scene) bool {
				request, _, field := about(s)
				if request != "pull" && !imageEvents[s.Fact] {
					return false
				}
				for i := range s.Step + 1 {
					if s.World.Steps[i].Faults["RunPodSandbox"] == "" {
						continue
					}
					theirs, _ := strconv.Atoi(s.Kubelet)
					if i < s.Step && field == "count" && s.Ours == strconv.Itoa(theirs-1) && s.OursFacts[i][s.Fact] != "" {
						return true // one of the policies was IfNotPresent
					}
					if i == s.Step && s.Kubelet == "" || i < s.Step && request == "pull" && s.Ours == "" && s.OursFacts[i][s.Fact] == s.Kubelet {
						return true
					}
				}
				return false
			},
		},
		{
			Name: "missing pull secrets", Class: judge.Deliberate, Doc: imagesDoc,
			Sentence: "The kubelet reads a pod's pull secrets in every sync, and records an event about missing secrets each time; this package reads them when an image needs a pull or a check.",
			Explains: func(s scene) bool {
				return s.Fact == "event FailedToRetrieveImagePullSecret" && s.Ours == "" && s.Kubelet == missingSecrets(s) && !pulls(s)
			},
		},
	}
}

func pulls(s scene) bool {
	for fact := range s.OursFacts[s.Step] {
		if strings.HasPrefix(fact, "pull ") {
			return true
		}
	}
	return false
}

func missingSecrets(s scene) string {
	var missing []string
	for _, ref := range pod(s).Spec.ImagePullSecrets {
		if _, err := (objects{world: s.World}).GetSecret(pod(s).Namespace, ref.Name); err != nil && ref.Name != "" {
			missing = append(missing, ref.Name)
		}
	}
	return fmt.Sprintf("Warning: Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
}

// unmounted returns the volumes whose image is always pulled, and which are not mounted by any
// container that starts now.
func unmounted(s scene, image string) (all []string) {
	for _, v := range pod(s).Spec.Volumes {
		if v.Image != nil && (v.Image.Reference == image || v.Image.Reference+":latest" == image) && v.Image.PullPolicy == corev1.PullAlways && !mountedNow(s, v.Name) {
			all = append(all, v.Name)
		}
	}
	return all
}

// mountedNow reports whether our side started, or tried to start, a container in the step that
// mounts the volume.
func mountedNow(s scene, volume string) bool { return mountingNow(s, volume) > 0 }

// mountingNow returns the number of such containers.
func mountingNow(s scene, volume string) (n int) {
	for _, all := range [][]corev1.Container{pod(s).Spec.InitContainers, pod(s).Spec.Containers, debugging(pod(s))} {
		for _, c := range all {
			begun := strings.Contains(ourFact(s, "calls"), "CreateContainer "+c.Name) || ourFact(s, "container "+c.Name+"/reason") == "CreateContainerConfigError"
			if begun && slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) {
				n++
			}
		}
	}
	return n
}

// policies returns the pull policies of the pod's containers for an image.
func policies(s scene, image string) (all []string) {
	for _, list := range [][]corev1.Container{pod(s).Spec.InitContainers, pod(s).Spec.Containers, debugging(pod(s))} {
		for _, c := range list {
			if c.Image == image || c.Image+":latest" == image {
				all = append(all, string(c.ImagePullPolicy))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func debugging(p *corev1.Pod) (all []corev1.Container) {
	for i := range p.Spec.EphemeralContainers {
		all = append(all, corev1.Container(p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// imageFailures returns the events about containers without an image.
func imageFailures(s scene) (all []string) {
	for fact, reason := range s.KubeletFacts[s.Step] {
		switch reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed":
			if strings.HasSuffix(fact, "/reason") {
				all = append(all, "Warning: Error: "+reason)
			}
		}
	}
	return all
}

// without returns a list of events without some of them.
func without(list string, some []string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(list, " | "), func(e string) bool { return slices.Contains(some, e) }), " | ")
}

// imageEvents are the facts about events that the pulls of images cause.
var imageEvents = map[string]bool{
	"event Pulling": true, "event Pulled": true, "event Failed": true, "event BackOff": true, "event InspectFailed": true,
	"event ErrImageNeverPull": true,
}
