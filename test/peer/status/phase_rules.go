package status

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	phaseRule  = judge.Rule[*phaseWorld]
	phaseScene = judge.Scene[*phaseWorld]
)

func phaseRules() []phaseRule {
	return slices.Concat(textRules(), endRules(), []phaseRule{{
		Name: "all illegal transitions in one error", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "The error of a rejected status names every container with an illegal transition; the kubelet names only the first.",
		Explains: func(s phaseScene) bool {
			first, _, more := strings.Cut(s.Ours, "\n")
			return s.Fact == "refused" && more && first == s.Kubelet
		},
	}, {
		Name: "init containers matched by name", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "Init containers are matched to the spec by name; the kubelet matches them by index, and rejects a status in which an init container is missing.",
		Explains: func(s phaseScene) bool {
			pod := matched(s.World.Pod)
			if len(pod.Spec.InitContainers) == len(s.World.Pod.Spec.InitContainers) {
				return false
			}
			f := judge.Facts{}
			if err := checkContainerStateTransition(&pod.Status, &s.World.Status, &pod.Spec); err != nil {
				f["refused"] = err.Error()
			}
			first, _, _ := strings.Cut(s.Ours, "\n")
			return s.Fact == "refused" && strings.HasPrefix(s.Kubelet, "found mismatch") && first == f["refused"]
		},
	}, {
		Name: "readiness gates with sidecars", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "For a pod with readiness gates, Ready always depends on the sidecars too; the kubelet ignores sidecars when it decides whether a pod needs a sync, so it syncs a pod with a sidecar at every change.",
		Explains: func(s phaseScene) bool {
			pod := s.World.Pod
			all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
			want := kubeletstatus.GeneratePodReadyCondition(pod, &pod.Status, pod.Status.Conditions, all, pod.Status.Phase)
			shown := condition(&pod.Status, corev1.PodReady)
			return s.Fact == "reconcile readiness" && shown != nil && len(pod.Spec.InitContainers) > 0 &&
				s.Ours == strconv.FormatBool(shown.Status != want.Status || shown.Message != want.Message)
		},
	}})
}

func condition(s *corev1.PodStatus, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// matched returns a pod without the init containers that its status lacks. It adds the same
// number of ephemeral containers, because the number of containers determines the maximum
// length of messages.
func matched(pod *corev1.Pod) *corev1.Pod {
	all := len(pod.Spec.InitContainers)
	pod = pod.DeepCopy()
	pod.Spec.InitContainers = slices.DeleteFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return !slices.ContainsFunc(pod.Status.InitContainerStatuses, func(st corev1.ContainerStatus) bool { return st.Name == c.Name })
	})
	for range all - len(pod.Spec.InitContainers) {
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{})
	}
	return pod
}

// textRules are about messages.
func textRules() []phaseRule {
	return []phaseRule{{
		Name: "messages cut within a rune", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "Termination messages are cut between runes; the kubelet cuts them at any byte, so that the status in the API server differs from the status that was sent.",
		Explains: func(s phaseScene) bool {
			return strings.HasSuffix(s.Fact, " message") && cutWithinRune(s.Kubelet, s.Ours)
		},
	}, {
		Name: "messages with invalid UTF-8", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "Messages are valid UTF-8: a sequence of invalid bytes becomes one replacement character; in the kubelet the JSON encoder replaces each byte.",
		Explains: func(s phaseScene) bool {
			return strings.HasSuffix(s.Fact, "message") && s.Kubelet != s.Ours && strings.Contains(s.Kubelet, `\ufffd`) && collapsed(s.Kubelet) == s.Ours
		},
	}}
}

func collapsed(text string) string {
	for strings.Contains(text, `\ufffd\ufffd`) {
		text = strings.ReplaceAll(text, `\ufffd\ufffd`, `\ufffd`)
	}
	return strings.ReplaceAll(text, `\ufffd`, "\ufffd")
}

func encodeText(text string) string { return strings.Trim(encode(text), `"`) }

// endRules are about the last status of a pod.
func endRules() []phaseRule {
	return []phaseRule{{
		Name: "init containers matched by name: termination", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "Init containers are matched to the spec by name; the kubelet matches them by index, and rejects a status in which an init container is missing.",
		Explains: func(s phaseScene) bool {
			pod := matched(s.World.Pod)
			if !strings.HasPrefix(s.Fact, "ended ") || len(pod.Spec.InitContainers) == len(s.World.Pod.Spec.InitContainers) {
				return false
			}
			f := judge.Facts{}
			endOfKubelet(f, pod)
			again := s
			again.KubeletFacts = []judge.Facts{f}
			again.Kubelet = f[s.Fact]
			return again.Kubelet == s.Ours ||
				slices.ContainsFunc(slices.Concat(textRules(), endRules()[1:]), func(r phaseRule) bool { return r.Explains(again) })
		},
	}, {
		Name: "Ready condition of an ended pod", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "When a pod that has ended is reported, it becomes not Ready at once; the kubelet corrects Ready only in the status that it sends to the API server.",
		Explains: func(s phaseScene) bool {
			want, ok := unready(s.KubeletFacts[s.Step], "ended ", s.World.Pod.Generation, "00:00:00")[s.Fact]
			return ok && s.Ours == want
		},
	}}
}

// unready returns the expected Ready and ContainersReady if the kubelet has one of them as
// True in a terminated pod: both are False from now on.
func unready(kubelet judge.Facts, prefix string, generation int64, now string) judge.Facts {
	reason := map[string]string{"Failed": "PodFailed", "Succeeded": "PodCompleted"}[kubelet[prefix+"phase"]]
	ready, containersReady := prefix+"condition Ready", prefix+"condition ContainersReady"
	if reason == "" || !strings.HasPrefix(kubelet[ready], "True|") && !strings.HasPrefix(kubelet[containersReady], "True|") {
		return nil
	}
	f := judge.Facts{}
	for _, name := range []string{ready, containersReady} {
		f[name], f[name+" probed"] = "False|"+reason+"|", ""
		f[name+" generation"], f[name+" since"] = strconv.FormatInt(generation, 10), now
		if strings.HasPrefix(kubelet[name], "False|") {
			f[name+" since"] = kubelet[name+" since"]
		}
	}
	return f
}
