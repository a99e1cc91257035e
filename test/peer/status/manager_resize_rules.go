package status

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// resizeManagerRules are about resizes.
func resizeManagerRules() []managerRule {
	return []managerRule{{
		Name: "resize condition times after restarts", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "A resize condition keeps its times when the agent is restarted; in the kubelet they are reset.",
		Explains: func(s managerScene) bool {
			_, fact := about(s)
			if !strings.HasPrefix(fact, "condition PodResize") || !strings.HasSuffix(fact, " since") && !strings.HasSuffix(fact, " probed") {
				return false
			}
			for earlier := s; earlier.Step >= 0; earlier.Step-- {
				if s.World.Steps[earlier.Step].Op == opRestart && now(earlier) == s.Kubelet {
					return s.Ours < s.Kubelet
				}
			}
			return false
		},
	}, {
		Name: "resize conditions set at once", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "Resize conditions are set only by the Manager and take effect at once; in the kubelet they take effect with the next status that is not rejected.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			if step.Op != opResize || s.OursFacts[s.Step]["changed"] != "false" {
				return false
			}
			t, reason, message := "PodResizePending", corev1.PodReasonDeferred, "waits"
			if step.Reason == corev1.PodReasonInfeasible {
				reason = step.Reason
			}
			if step.Resize == "begin" || step.Resize == "end" {
				t, reason, message = "PodResizeInProgress", step.Reason, map[bool]string{true: "begins"}[step.Reason != ""]
			}
			switch {
			case s.Fact == "notified":
				return s.Ours == "pod-"+strconv.Itoa(step.Pod)
			case !strings.HasPrefix(s.Fact, "said condition "+t):
				return false
			case step.Resize == "end" || step.Resize == "end pending":
				return s.Ours == ""
			case s.Fact == "said condition "+t:
				return s.Ours == "True|"+reason+"|"+message
			}
			return s.Ours == now(s) || s.Ours == strconv.FormatInt(generation(s, step.Pod), 10)
		},
	}}
}

// generation returns the generation of a pod in the scene's step.
func generation(s managerScene, pod int) int64 {
	n := s.World.Pods[pod].Generation
	for _, step := range s.World.Steps[:s.Step+1] {
		if step.Op == opDelete && step.Pod == pod {
			n++
		}
	}
	return n
}
