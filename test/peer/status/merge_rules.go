package status

import (
	"strconv"
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
		Name: "another end", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "An end that the API server has is not sent over by another phase; the kubelet sends it, and the API server refuses it again and again.",
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
			return false
		},
	}, {
		Name: "readiness of a pod that has ended", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "Where one of Ready and ContainersReady is True in a pod that has ended, the kubelet sets both to False, with reason and generation, and adds the one that is missing; ours changes the one that is True.",
		Explains: func(s mergeScene) bool {
			ours := s.OursFacts[s.Step]
			if !isTerminal(corev1.PodPhase(ours["phase"])) {
				return false
			}
			for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
				if strings.HasPrefix(s.Fact, "condition "+string(t)) {
					return s.Ours == unready(s.World, t, corev1.PodPhase(ours["phase"]))[s.Fact]
				}
			}
			return false
		},
	}}
}

// unready returns the facts about a condition of a pod that has ended: it is not
// True, and else as the node reported it.
func unready(w *mergeWorld, t corev1.PodConditionType, phase corev1.PodPhase) judge.Facts {
	f := judge.Facts{}
	c, was := condition(&w.Status, t), condition(&w.Pod.Status, t)
	if c == nil {
		return f
	}
	name := "condition " + string(t)
	f[name] = strings.Join([]string{string(c.Status), c.Reason, c.Message}, "|")
	f[name+" since"] = moment(&c.LastTransitionTime)
	f[name+" probed"] = moment(&c.LastProbeTime)
	f[name+" generation"] = strconv.FormatInt(c.ObservedGeneration, 10)
	if c.Status != corev1.ConditionTrue {
		return f
	}
	reason := map[corev1.PodPhase]string{corev1.PodFailed: "PodFailed", corev1.PodSucceeded: "PodCompleted"}[phase]
	f[name], f[name+" since"] = "False|"+reason+"|", "00:01:00"
	if was != nil && was.Status == corev1.ConditionFalse {
		f[name+" since"] = moment(&was.LastTransitionTime)
	}
	return f
}
