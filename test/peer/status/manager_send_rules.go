package status

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// sendManagerRules are about calls of the API server.
func sendManagerRules() []managerRule {
	return []managerRule{{
		Name: "conflicting terminal phase", Class: judge.KubeletDefect, Doc: statusDoc, Ends: true,
		Sentence: "A terminal phase in the API server is not overwritten with another phase; the kubelet sends the other phase again and again, and the API server rejects each attempt.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			end := shown(s, pod)
			was := judge.Facts{"phase": end.phase, "reason": end.reason, "message": end.message}
			if t, since := strings.CutSuffix(fact, " since"); t == "condition Ready" || t == "condition ContainersReady" {
				reason := map[string]string{"Failed": "PodFailed", "Succeeded": "PodCompleted"}[was["phase"]]
				return strings.HasPrefix(s.Fact, "pod-") && reason != "" && (since && (s.Ours == now(s) || s.Ours == lastShown(s)) || s.Ours == "False|"+reason+"|")
			}
			if s.Fact == "calls patch pod-"+strconv.Itoa(pod) {
				return s.Kubelet == "1" && s.Ours == "" && isTerminal(corev1.PodPhase(was["phase"])) && said(s, pod, "phase") != was["phase"]
			}
			want, ok := was[fact]
			return ok && strings.HasPrefix(s.Fact, "pod-") && isTerminal(corev1.PodPhase(was["phase"])) && s.Ours == want
		},
	}, {
		Name: "patch without changes", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A patch is sent only if a value changes; the kubelet also sends one if only the order of conditions differs.",
		Explains: func(s managerScene) bool {
			name, ok := strings.CutPrefix(s.Fact, "calls patch ")
			if !ok || s.Kubelet != "1" || s.Ours != "" {
				return false
			}
			for fact, value := range s.KubeletFacts[s.Step] {
				if strings.HasPrefix(fact, name+" ") && s.OursFacts[s.Step][fact] != value {
					return false
				}
			}
			return true
		},
	}, {
		Name: "deletion after a patch without changes", Class: judge.KubeletDefect, Doc: statusDoc, Ends: true,
		Sentence: "A patch is sent only if a value changes; the kubelet also sends one if only the order of conditions differs.",
		Explains: func(s managerScene) bool {
			pod, _ := about(s)
			call := "calls delete pod-" + strconv.Itoa(pod)
			deletes := s.OursFacts[s.Step][call] == "1" && s.KubeletFacts[s.Step][call] == ""
			return s.World.Steps[s.Step].Fail == "patch" && deletes && (s.Fact == call || s.Ours == "")
		},
	}, {
		Name: "retry of a withheld terminal phase", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A status whose terminal phase was not published yet is sent again soon; the kubelet sends it again with its next tick.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			held := slices.ContainsFunc(s.World.Steps[:s.Step], func(step managerStep) bool { return step.Op == opTick && step.MayRun })
			return s.World.Steps[s.Step].Op == opSync && held && (strings.HasPrefix(s.Fact, "calls patch pod-") && s.Ours == "1" ||
				s.OursFacts[s.Step]["calls delete pod-"+strconv.Itoa(pod)] == "1" && (strings.HasPrefix(s.Fact, "calls ") || s.Ours == "") ||
				strings.HasPrefix(s.Fact, "pod-") && s.Ours == said(s, pod, fact))
		},
	}, {
		Name: "unobserved change by another writer", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A change by another writer is corrected when the agent has received it; the kubelet gets the object before each PATCH.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			end := shown(s, pod)
			want, ok := map[string]string{"phase": end.phase, "reason": end.reason, "message": end.message, "calls": ""}[fact]
			return unseen(s, pod) && !strings.HasPrefix(s.Fact, "said ") && ok && s.Ours == want
		},
	}, {
		Name: "API deletion after a forced update", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "The deletion of a pod is one change; the kubelet forces a change at every report of a deleted or terminated pod, to wake its publisher.",
		Explains: func(s managerScene) bool {
			pod, _ := about(s)
			call := "calls delete pod-" + strconv.Itoa(pod)
			deletes := s.KubeletFacts[s.Step][call] == "1" && s.OursFacts[s.Step][call] == ""
			return s.World.Steps[s.Step].Op == opSync && before(s, opTerminate, pod) && deletes && s.Kubelet == "" || s.Fact == call && deletes
		},
	}, {
		Name: "back-off after a failed deletion", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A failed deletion is retried after a back-off; the kubelet retries it with its next tick.",
		Explains: func(s managerScene) bool {
			failed := slices.ContainsFunc(s.World.Steps[:s.Step], func(step managerStep) bool { return step.Fail == "delete" })
			return failed && s.World.Steps[s.Step].Op == opSync &&
				(strings.HasPrefix(s.Fact, "calls delete pod-") && s.Kubelet == "" && s.Ours == "1" || !strings.HasPrefix(s.Fact, "calls ") && s.Ours == "")
		},
	}, {
		Name: "transition time of DisruptionTarget", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "Publication does not change the reported status; in the kubelet the time of a DisruptionTarget condition becomes the time of the publication.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			name := "pod-" + strconv.Itoa(pod) + " " + fact
			if s.Fact == "said condition DisruptionTarget since" && slices.ContainsFunc(s.KubeletFacts, func(f judge.Facts) bool { return f[name] == s.Kubelet }) {
				return true
			}
			writes := []string{opSync, opTick, opOthers} // the API server's condition, or the time of the call
			for earlier := s; earlier.Step >= 0; earlier.Step-- {
				if slices.Contains(writes, s.World.Steps[earlier.Step].Op) && now(earlier) == s.Kubelet {
					return s.Fact == "said condition DisruptionTarget since"
				}
			}
			return false
		},
	}}
}

// An end is a terminal phase with its reason and message.
type end struct{ phase, reason, message string }

// shown returns the phase in the API server of a pod before the scene's step.
func shown(s managerScene, pod int) end {
	status := &s.World.Pods[pod].Status
	api := end{string(status.Phase), status.Reason, encodeText(status.Message)}
	for i, step := range s.World.Steps[:s.Step] {
		f, name := s.OursFacts[i], "pod-"+strconv.Itoa(pod)
		if f[name+" phase"] != "" {
			api = end{f[name+" phase"], f[name+" reason"], f[name+" message"]}
		}
		if step.Pod == pod && step.Op == opOthers && step.Phase != "" && !isTerminal(corev1.PodPhase(api.phase)) {
			api.phase, api.reason = string(step.Phase), "NodeLost"
		}
	}
	return api
}

// endBefore returns the terminal phase of the pod before the step: from the reported status,
// or else from the API server.
func endBefore(s managerScene) end {
	told := end{}
	for i, step := range s.World.Steps[:s.Step] {
		f := s.OursFacts[i]
		if step.Op == opRestart {
			told = end{}
		}
		if phase := f["said phase"]; step.Pod == s.World.Steps[s.Step].Pod && isTerminal(corev1.PodPhase(phase)) {
			told = end{phase, f["said reason"], f["said message"]}
		}
	}
	if told.phase == "" {
		return shown(s, s.World.Steps[s.Step].Pod)
	}
	return told
}

// lastShown returns the value of the fact about the API server before the scene's step.
func lastShown(s managerScene) string {
	for i := s.Step - 1; i >= 0; i-- {
		if value, ok := s.OursFacts[i][s.Fact]; ok {
			return value
		}
	}
	return ""
}

// unseen reports whether the agent has not yet received the last change of a pod.
func unseen(s managerScene, pod int) bool {
	for i := s.Step - 1; i >= 0; i-- {
		step := s.World.Steps[i]
		if step.Op != opRestart && step.Op != opOrphans {
			return step.Op == opOthers && step.Pod == pod && step.Lag
		}
	}
	return false
}
