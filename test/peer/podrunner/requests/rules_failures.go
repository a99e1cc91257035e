package requests

import (
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// failureRules are about failures on one side only.
func failureRules() []rule {
	return []rule{
		{
			Name: "status of containers without a sandbox", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "If volumes can't be mounted, or if the sandbox can't be created because of the pod's spec, the status of the containers shows the reason. In the kubelet, only an event shows it.",
			Explains: func(s scene) bool {
				request, name, field := about(s)
				if request != "container" || s.Kubelet != "" || !strings.HasPrefix(ourFact(s, "event FailedCreatePodSandBox"), "Warning: ") {
					return false
				}
				waiting := "ContainerCreating"
				if len(pod(s).Spec.InitContainers) > 0 {
					waiting = "PodInitializing"
				}
				if field == "reason" {
					return s.Ours == waiting
				}
				return field == "message" && ourFact(s, "container "+name+"/reason") == waiting &&
					"Warning: "+s.Ours == ourFact(s, "event FailedCreatePodSandBox")
			},
		},
		{
			Name: "all problems of sandbox creation", Class: judge.Deliberate, Doc: ourDoc,
			Sentence: "If a sandbox can't be created because of the pod's spec, the event names every problem; the kubelet's event names the first.",
			Explains: func(s scene) bool {
				return s.Fact == "event FailedCreatePodSandBox" && s.Kubelet != "" && strings.HasPrefix(s.Ours, withoutDot(s, s.Kubelet)+"\n")
			},
		},
		{
			Name: "ephemeral container with an ended target", Class: judge.KubeletDefect, Doc: ourDoc, Ends: true,
			Sentence: "If the target of an ephemeral container has ended, even in a removed sandbox, the kubelet still asks the runtime to share the target's process namespace. Runtimes refuse this. Here the ephemeral container fails until the target runs.",
			Explains: func(s scene) bool {
				return failedAlone(s, func(c *corev1.Container) string {
					for _, e := range pod(s).Spec.EphemeralContainers {
						ended := slices.ContainsFunc(s.World.Steps[:s.Step+1], func(s step) bool { return s.SandboxDies || s.Exits == e.TargetContainerName })
						if e.Name == c.Name && e.TargetContainerName != "" && ended {
							return "unable to find target container " + e.TargetContainerName
						}
					}
					return ""
				}, "CreateContainerConfigError") // checked later by both sides
			},
		},
		{
			Name: "huge pages that the node lacks", Class: judge.Deliberate, Doc: ourDoc, Ends: true,
			Sentence: "If a container requests huge pages of a size that the node does not have, the container fails with an error that names the resource. The kubelet starts the container without huge pages of this size.",
			Explains: func(s scene) bool {
				return failedAlone(s, func(c *corev1.Container) string {
					for _, size := range []string{"1GB", "64KB", "2MB"} { // the sort order of the resource names
						q, own := c.Resources.Limits[hugePages(size)]
						if r := pod(s).Spec.Resources; r != nil && !own {
							q = r.Limits[hugePages(size)]
						}
						if !q.IsZero() && !slices.Contains(s.World.Node.HugePages, size) {
							return string(hugePages(size)) + ": this node has no huge pages of that size"
						}
					}
					return ""
				})
			},
		},
	}
}

// The reason in the status instead of the runtime's first word.
var (
	registry  = regexp.MustCompile(`image pull failed for \S+ because the registry is unavailable(: [^|]*)`)
	signature = regexp.MustCompile(`image pull failed for \S+ because the signature validation failed(: [^|]*)`)
)

// inRuntimesWords converts our events about failed pulls to the kubelet's form.
func inRuntimesWords(events string) string {
	return signature.ReplaceAllString(registry.ReplaceAllString(events, "RegistryUnavailable$1"), "SignatureValidationFailed$1")
}

// failedEvents converts our events about failures to the kubelet's form.
func failedEvents(s scene) string {
	all := strings.Split(inRuntimesWords(s.Ours), " | ")
	all = slices.DeleteFunc(append(all, imageFailures(s)...), func(e string) bool { return e == "" })
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " | ")
}

// failedAlone explains the consequences of a container that only our side rejects, with the
// message that cause returns. The kubelet may create and start the container, may fail to do
// so, or may report one of the reasons in others.
func failedAlone(s scene, cause func(*corev1.Container) string, others ...string) bool {
	reasons := append([]string{"", "CreateContainerError", "RunContainerError"}, others...)
	var failed, ours, theirs []string
	for _, all := range [][]corev1.Container{pod(s).Spec.InitContainers, pod(s).Spec.Containers, debugging(pod(s))} {
		for i := range all {
			name := all[i].Name
			message := cause(&all[i])
			reason := kubeletFact(s, "container "+name+"/reason")
			if message == "" || ourFact(s, "container "+name+"/message") != message || !slices.Contains(reasons, reason) {
				continue
			}
			failed, ours = append(failed, name), append(ours, "Warning: Error: "+message)
			if reason != "" {
				theirs = append(theirs, "Warning: Error: "+kubeletFact(s, "container "+name+"/message"))
			}
		}
	}
	if len(failed) == 0 {
		return false
	}
	request, name, field := about(s)
	switch {
	case slices.Contains(failed, name) && request == "create":
		return s.Ours == ""
	case slices.Contains(failed, name) && request == "container":
		return field == "message" || field == "reason" && s.Ours == "CreateContainerConfigError"
	case s.Fact == "calls":
		return s.Ours == callsWithout(s.Kubelet, failed)
	case s.Fact == "event Failed":
		s.Ours = without(s.Ours, ours)
		return s.Kubelet == failedEvents(s) || without(s.Kubelet, theirs) == without(failedEvents(s), theirs)
	case s.Fact == "event Created", s.Fact == "event Started", s.Fact == "file etc-hosts", s.Fact == "file etc-hosts/mode":
		// Facts about containers that both sides start exist on both sides.
		return s.Ours == ""
	default:
		return slices.ContainsFunc(failed, func(name string) bool { return s.Fact == "file of the last words of "+name && s.Ours == "" })
	}
}

func callsWithout(calls string, names []string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(calls, ", "), func(call string) bool {
		kind, name, _ := strings.Cut(call, " ")
		return (kind == "CreateContainer" || kind == "StartContainer") && slices.Contains(names, name)
	}), ", ")
}
