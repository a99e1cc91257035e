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
	managerRule  = judge.Rule[*managerWorld]
	managerScene = judge.Scene[*managerWorld]
)

// about returns the pod that a fact is about, and the fact without it.
func about(s managerScene) (pod int, fact string) {
	if _, name, ok := strings.Cut(s.Fact, "calls"); ok {
		_, name, _ = strings.Cut(name, "pod-")
		pod, _ = strconv.Atoi(name)
		return pod, "calls"
	}
	if rest, ok := strings.CutPrefix(s.Fact, "pod-"); ok {
		name, fact, _ := strings.Cut(rest, " ")
		pod, _ = strconv.Atoi(name)
		return pod, fact
	}
	return s.World.Steps[s.Step].Pod, strings.TrimPrefix(s.Fact, "said ")
}

// before reports whether something happened to a pod before or in the scene's step.
func before(s managerScene, op string, pod int) bool {
	return slices.ContainsFunc(s.World.Steps[:s.Step+1], func(step managerStep) bool { return step.Op == op && step.Pod == pod })
}

// said returns our last value of a fact about a pod.
func said(s managerScene, pod int, fact string) string {
	for i, step := range slices.Backward(s.World.Steps[:s.Step+1]) {
		if _, known := s.OursFacts[i]["said phase"]; known && step.Pod == pod {
			return s.OursFacts[i]["said "+fact]
		}
	}
	return ""
}

// now returns the time of the scene's step.
func now(s managerScene) string {
	t := at(0)
	for _, step := range s.World.Steps[:s.Step+1] {
		t.Time = t.Add(step.Pause)
	}
	return moment(&t)
}

func managerRules() []managerRule {
	return slices.Concat(reportManagerRules(), probeManagerRules(), endManagerRules(), resizeManagerRules(), sendManagerRules())
}

// reportManagerRules are about reported statuses.
func reportManagerRules() []managerRule {
	return []managerRule{{
		Name: "Ready condition of an ended pod", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "When a pod that has ended is reported, it becomes not Ready at once; the kubelet corrects Ready only in the status that it sends to the API server.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			t, since := strings.CutSuffix(fact, " since")
			reason := map[string]string{"Failed": "PodFailed", "Succeeded": "PodCompleted"}[said(s, pod, "phase")]
			if !strings.HasPrefix(t, "condition Ready") && !strings.HasPrefix(t, "condition ContainersReady") {
				return false
			}
			want := unready(s.KubeletFacts[s.Step], "said ", generation(s, pod), now(s))
			switch {
			case strings.HasPrefix(s.Fact, "said ") && want != nil && (s.Ours == want[s.Fact] || persists(s)):
				return true
			case since && (s.Kubelet == now(s) || persists(s)) && falseBefore(s, pod, t):
				return true
			case reason == "":
				return false
			case strings.HasPrefix(s.Fact, "pod-"): // the terminal phase is held back
				return s.Ours == said(s, pod, fact)
			case since:
				return slices.ContainsFunc(s.KubeletFacts, func(f judge.Facts) bool { return strings.HasPrefix(f["said "+t], "True|") })
			}
			return false
		},
	}, {
		Name: "forced updates of deleted pods", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "The deletion of a pod is one change; the kubelet forces a change at every report of a deleted or terminated pod, to wake its publisher.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			reports := step.Op == opSet || step.Op == opResize || step.Op == opTerminate
			switch s.Fact {
			case "changed":
				return reports && before(s, opDelete, step.Pod) && s.Kubelet == "true" && s.Ours == "false"
			case "notified":
				return reports && (before(s, opDelete, step.Pod) || before(s, opTerminate, step.Pod)) && strings.HasPrefix(s.Kubelet, "pod-"+strconv.Itoa(step.Pod)) && s.Ours == ""
			}
			return false
		},
	}, {
		Name: "terminal phase kept despite later reports", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A pod that has ended keeps its phase, reason and message in the Manager, whatever is reported; in the kubelet only status generation keeps them.",
		Explains: func(s managerScene) bool {
			step, ours := &s.World.Steps[s.Step], s.OursFacts[s.Step]
			if step.Op != opSet && step.Op != opResize && step.Op != opTerminate || !isTerminal(corev1.PodPhase(ours["said phase"])) || ours["said phase"] == string(step.Status.Phase) {
				return false
			}
			end := endBefore(s)
			switch s.Fact {
			case "said phase":
				return s.Ours == end.phase
			case "said reason":
				return s.Ours == end.reason || s.Ours == shown(s, step.Pod).reason
			case "said message":
				return s.Ours == end.message || s.Ours == shown(s, step.Pod).message
			case "said condition Ready", "said condition ContainersReady":
				return s.Ours == "False|"+map[string]string{"Failed": "PodFailed", "Succeeded": "PodCompleted"}[end.phase]+"|"
			case "said condition Ready since", "said condition ContainersReady since":
				return s.Ours == now(s)
			case "changed", "notified":
				return s.KubeletFacts[s.Step]["said phase"] != ours["said phase"]
			}
			return strings.HasPrefix(s.Fact, "said condition PodResize") && s.Ours == ""
		},
	}}
}

// probeManagerRules are about results of probes.
func probeManagerRules() []managerRule {
	return []managerRule{{
		Name: "probe result of a terminated container", Class: judge.KubeletDefect, Doc: statusDoc, Ends: true,
		Sentence: "A probe result of a terminated container is ignored; the kubelet makes the container ready.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			earlier := s
			earlier.Step--
			_, fact := about(s)
			return step.Op == opReadiness && step.Result && ended(s, step.Container) &&
				(probedAlike(s) || strings.HasPrefix(s.Fact, "said ") && s.Ours == said(earlier, step.Pod, fact))
		},
	}, {
		Name: "conditions after a startup result", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A startup result updates Initialized at once, and also Ready of a container without a readiness probe; in the kubelet both follow with the next sync.",
		Explains: func(s managerScene) bool { return s.World.Steps[s.Step].Op == opStartup && probedAlike(s) },
	}}
}

// endManagerRules are about the termination of a pod.
func endManagerRules() []managerRule {
	return []managerRule{{
		Name: "previous status at pod termination", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "When a pod is terminated, its containers are updated from the last reported status; the kubelet uses the status in the API server, which is empty for a static pod.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			if step.Op != opTerminate {
				return false
			}
			pod := s.World.Pods[step.Pod].DeepCopy()
			earlier := s
			earlier.Step--
			f := judge.Facts{}
			for i := range earlier.Step + 1 {
				if _, known := s.OursFacts[i]["said phase"]; known && s.World.Steps[i].Pod == step.Pod {
					f = s.OursFacts[i]
				}
			}
			if len(f) > 0 {
				pod.Status = corev1.PodStatus{
					Phase: corev1.PodPhase(f["said phase"]), InitContainerStatuses: parse(f, "said init "), ContainerStatuses: parse(f, "said container "),
				}
			}
			ended := judge.Facts{}
			endOfKubelet(ended, pod)
			_, fact := about(s)
			return strings.Contains(fact, "/state") && s.Ours == ended["ended "+fact]
		},
	}, {
		Name: "Ready transition time of ended pods", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "The transition time of Ready does not change after a pod has ended; if a pod is terminated while it is ready, the kubelet changes this time in the API server with every tick.",
		Explains: func(s managerScene) bool {
			name, ok := strings.CutPrefix(s.Fact, "calls patch ")
			pod, _ := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
			ready := slices.ContainsFunc(s.KubeletFacts, func(f judge.Facts) bool {
				return isTerminal(corev1.PodPhase(f["said phase"])) && strings.Contains(f["said condition Ready"]+f["said condition ContainersReady"], "True|")
			})
			return ok && s.Kubelet == "1" && s.Ours == "" && before(s, opTerminate, pod) && ready
		},
	}, {
		Name: "terminated static pod reported again", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A static pod that was terminated stays terminated when it is reported again; in the kubelet it does not (kubernetes#116484).",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			static := isStatic(s.World.Pods[step.Pod])
			return s.Fact == "notified" && static && before(s, opTerminate, step.Pod) && s.Kubelet+" finished" == s.Ours
		},
	}}
}

// falseBefore reports whether our transition time of a condition is that of the API server's
// False, while the kubelet has published True. This happens for a pod whose terminal phase
// was held back before the agent restarted.
func falseBefore(s managerScene, pod int, condition string) bool {
	name := "pod-" + strconv.Itoa(pod) + " " + condition
	for i := range s.Step {
		if strings.HasPrefix(s.OursFacts[i][name], "False|") && strings.HasPrefix(s.KubeletFacts[i][name], "True|") && s.OursFacts[i][name+" since"] == s.Ours {
			return true
		}
	}
	return false
}

// ended reports whether ours shows a container as terminated.
func ended(s managerScene, name string) bool {
	f := s.OursFacts[s.Step]
	return decodeState(f["said container "+name+"/state"]+f["said init "+name+"/state"]) != nil
}

// persists reports whether an earlier step explained the same difference.
func persists(s managerScene) bool {
	for i := range s.Step {
		if ours, ok := s.OursFacts[i][s.Fact]; ok && ours == s.Ours && s.KubeletFacts[i][s.Fact] == s.Kubelet {
			return true
		}
	}
	return false
}

// probedAlike reports whether our value is the immediate consequence of a probe result.
func probedAlike(s managerScene) bool {
	if s.Fact == "notified" {
		return (s.Ours == "" || s.Kubelet == "") && saidDiffers(s)
	}
	want, ok := started(s)[s.Fact]
	return ok && s.Ours == want
}

func saidDiffers(s managerScene) bool {
	for name, value := range s.OursFacts[s.Step] {
		if strings.HasPrefix(name, "said ") && s.KubeletFacts[s.Step][name] != value {
			return true
		}
	}
	return false
}

// started returns the immediate consequences of a probe result.
func started(s managerScene) judge.Facts {
	step := &s.World.Steps[s.Step]
	f := judge.Facts{}
	pod, kubelet := s.World.Pods[step.Pod], s.KubeletFacts[s.Step]
	phase := corev1.PodPhase(kubelet["said phase"])
	statuses := &corev1.PodStatus{Phase: phase, InitContainerStatuses: parse(kubelet, "said init "), ContainerStatuses: parse(kubelet, "said container ")}
	all := slices.Concat(statuses.InitContainerStatuses, statuses.ContainerStatuses)
	for i := range all {
		st := &all[i]
		for _, c := range allContainers(&pod.Spec) {
			switch {
			case st.Name != step.Container || c.Name != st.Name:
			case step.Op == opReadiness, !step.Result || c.ReadinessProbe == nil:
				st.Ready = step.Result && st.State.Terminated == nil
			}
		}
		f["said container "+st.Name+"/ready"] = strconv.FormatBool(st.Ready)
		f["said init "+st.Name+"/ready"] = strconv.FormatBool(st.Ready)
	}
	var gates []corev1.PodCondition
	for i := range 2 {
		if value, ok := kubelet["said condition "+string(gate(i))]; ok {
			status, _, _ := strings.Cut(value, "|")
			gates = append(gates, corev1.PodCondition{Type: gate(i), Status: corev1.ConditionStatus(status)})
		}
	}
	conditions := []corev1.PodCondition{
		kubeletstatus.GeneratePodReadyCondition(pod, statuses, gates, all, phase),
		kubeletstatus.GenerateContainersReadyCondition(pod, statuses, all, phase),
	}
	if step.Op == opStartup {
		conditions = append(conditions, kubeletstatus.GeneratePodInitializedCondition(pod, &corev1.PodStatus{}, all, phase))
	}
	for _, c := range conditions {
		name := "said condition " + string(c.Type)
		f[name] = strings.Join([]string{string(c.Status), c.Reason, c.Message}, "|")
		f[name+" since"] = kubelet[name+" since"]
		if was, _, _ := strings.Cut(kubelet[name], "|"); was != string(c.Status) {
			f[name+" since"] = now(s)
		}
		f[name+" generation"] = strconv.FormatInt(generation(s, step.Pod), 10)
	}
	return f
}
