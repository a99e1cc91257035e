package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type (
	mergeRule  = judge.Rule[*mergeWorld]
	mergeScene = judge.Scene[*mergeWorld]
)

func mergeRules() []mergeRule {
	return []mergeRule{{
		Name: "conflicting terminal phase", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A terminal phase in the API server is not overwritten with another phase; the kubelet sends the other phase again and again, and the API server rejects each attempt.",
		Explains: func(s mergeScene) bool {
			api := &s.World.Pod.Status
			if !isTerminal(api.Phase) || s.World.Status.Phase == api.Phase {
				return false
			}
			switch s.Fact {
			case "phase":
				return s.Ours == string(api.Phase)
			case "reason":
				return s.Ours == api.Reason
			case "message":
				return s.Ours == encodeText(api.Message)
			}
			t, since := strings.CutSuffix(s.Fact, " since")
			if !strings.HasPrefix(t, "condition Ready") && !strings.HasPrefix(t, "condition ContainersReady") {
				return false
			}
			merged := mergedWithEnd(s.World)
			return s.Ours == merged[s.Fact] || since && merged[s.Fact] == "00:01:00" && falseSince(s) == s.Ours
		},
	}, {
		Name: "Ready transition time of ended pods", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "The transition time of Ready does not change after a pod has ended; if a pod is terminated while it is ready, the kubelet changes this time in the API server with every tick.",
		Explains: func(s mergeScene) bool {
			return s.Kubelet == "00:01:00" && isTerminal(corev1.PodPhase(s.OursFacts[s.Step]["phase"])) && falseSince(s) == s.Ours
		},
	}}
}

// mergedWithEnd returns what the kubelet sends if the node reports the terminal phase that
// the API server has.
func mergedWithEnd(w *mergeWorld) judge.Facts {
	said := w.Status.DeepCopy()
	said.Phase = w.Pod.Status.Phase
	merged := mergePodStatus(w.Pod, *w.Pod.Status.DeepCopy(), *said, w.MayRun)
	for i := range merged.Conditions {
		if t := &merged.Conditions[i].LastTransitionTime; t.Year() > 2001 { // the current time, outside of a bubble
			*t = at(60)
		}
	}
	f := judge.Facts{}
	statusFacts(f, "", &merged)
	return f
}

// falseSince returns since when a condition of a fact, Ready or ContainersReady, is False in
// the API server.
func falseSince(s mergeScene) string {
	t, ok := strings.CutSuffix(strings.TrimPrefix(s.Fact, "condition "), " since")
	was := condition(&s.World.Pod.Status, corev1.PodConditionType(t))
	if !ok || t != "Ready" && t != "ContainersReady" || was == nil || was.Status != corev1.ConditionFalse {
		return "not"
	}
	return moment(&was.LastTransitionTime)
}
