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

// said returns what ours said last of a pod.
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

// reportManagerRules are about what is reported.
func reportManagerRules() []managerRule {
	return []managerRule{{
		Name: "not ready after the end", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "A pod that has ended is not Ready from the moment that it is reported; the kubelet takes that back only in what it sends to the API server.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			t, since := strings.CutSuffix(fact, " since")
			reason := map[string]string{"Failed": "PodFailed", "Succeeded": "PodCompleted"}[said(s, pod, "phase")]
			switch {
			case reason == "" || t != "condition Ready" && t != "condition ContainersReady":
				return false
			case strings.HasPrefix(s.Fact, "pod-"): // the end is held back
				return s.Ours == said(s, pod, fact)
			case since:
				return slices.ContainsFunc(s.KubeletFacts, func(f judge.Facts) bool { return strings.HasPrefix(f["said "+t], "True|") })
			}
			return strings.HasPrefix(s.Kubelet, "True|") && s.Ours == "False|"+reason+"|"
		},
	}, {
		Name: "deleted pods", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "That a pod is deleted is one change; the kubelet forces one at every report of a deleted or terminated pod, to wake its publisher.",
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
		Name: "the phase of an ended pod", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A pod that has ended keeps its phase, reason and message in the Manager, whoever reports; in the kubelet only in status generation.",
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
	}, {
		Name: "generation of an end", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "The last status of a pod has the generation reported before in the kubelet, and that of the pod in ours.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			generation := s.World.Pods[pod].Generation
			deletes := 0
			for _, step := range s.World.Steps[:s.Step+1] {
				if step.Op == opDelete && step.Pod == pod {
					deletes++
				}
			}
			if s.Fact == "calls patch pod-"+strconv.Itoa(pod) { // of the generation alone, before the deletion
				return before(s, opTerminate, pod) && s.Kubelet == "" && s.Ours == "1" && s.OursFacts[s.Step]["calls delete pod-"+strconv.Itoa(pod)] == "1"
			}
			ours, err := strconv.ParseInt(s.Ours, 10, 64)
			return fact == "generation" && before(s, opTerminate, pod) && err == nil && ours >= generation && ours <= generation+int64(deletes)
		},
	}}
}

// probeManagerRules are about results of probes.
func probeManagerRules() []managerRule {
	return []managerRule{{
		Name: "readiness of a container that has ended", Class: judge.KubeletDefect, Doc: statusDoc, Ends: true,
		Sentence: "A probe result of a container that has ended counts for nothing; the kubelet makes the container ready.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			earlier := s
			earlier.Step--
			_, fact := about(s)
			return step.Op == opReadiness && step.Result && ended(s, step.Container) &&
				(probedAlike(s) || strings.HasPrefix(s.Fact, "said ") && s.Ours == said(earlier, step.Pod, fact))
		},
	}, {
		Name: "readiness as before", Class: judge.DefectOfOurs, Item: "new", Ends: true,
		Sentence: "A readiness result that is the one before changes nothing in the kubelet; in ours the conditions are computed again.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			return step.Op == opReadiness && probedAlike(s)
		},
	}, {
		Name: "startup results", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A startup result decides Initialized at once, and Ready of a container without a readiness probe; in the kubelet both follow with the next sync.",
		Explains: func(s managerScene) bool { return s.World.Steps[s.Step].Op == opStartup && probedAlike(s) },
	}}
}

// endManagerRules are about the end of a pod.
func endManagerRules() []managerRule {
	return []managerRule{{
		Name: "previous status of an end", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "What a pod had done when it is terminated is judged by what was reported last; the kubelet judges by what the API server shows, which for a static pod is nothing.",
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
			pod.Status = corev1.PodStatus{
				Phase: corev1.PodPhase(f["said phase"]), InitContainerStatuses: parse(f, "said init "), ContainerStatuses: parse(f, "said container "),
			}
			ended, twice := judge.Facts{}, judge.Facts(nil)
			endOfKubelet(ended, pod)
			if again := failedOnce(pod); again != nil { // a defect of ours with a rule of its own in status/phase
				twice = judge.Facts{}
				endOfKubelet(twice, again)
			}
			_, fact := about(s)
			return strings.Contains(fact, "/state") && (s.Ours == ended["ended "+fact] || twice != nil && s.Ours == twice["ended "+fact])
		},
	}, {
		Name: "readiness of a pod that has ended", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "Where one of Ready and ContainersReady is True in a pod that has ended, the kubelet sets both to False, with reason and generation, and adds the one that is missing; ours changes the one that is True.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			phase := corev1.PodPhase(s.OursFacts[s.Step]["pod-"+strconv.Itoa(pod)+" phase"])
			return strings.HasPrefix(s.Fact, "pod-") && isTerminal(phase) && (s.Ours == said(s, pod, fact) || persists(s)) &&
				(strings.HasPrefix(fact, "condition Ready") || strings.HasPrefix(fact, "condition ContainersReady"))
		},
	}, {
		Name: "time of Ready after the end", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "The transition time of Ready stands still once a pod has ended; where a pod is terminated while it is ready, the kubelet moves it in the API server with every tick.",
		Explains: func(s managerScene) bool {
			name, ok := strings.CutPrefix(s.Fact, "calls patch ")
			pod, _ := strconv.Atoi(strings.TrimPrefix(name, "pod-"))
			ready := slices.ContainsFunc(s.KubeletFacts, func(f judge.Facts) bool {
				return isTerminal(corev1.PodPhase(f["said phase"])) && strings.Contains(f["said condition Ready"]+f["said condition ContainersReady"], "True|")
			})
			return ok && s.Kubelet == "1" && s.Ours == "" && before(s, opTerminate, pod) && ready
		},
	}, {
		Name: "end of a static pod", Class: judge.DefectOfOurs, Item: "new",
		Sentence: "A static pod that is reported again after its end is not finished any more in the kubelet; in ours it stays so.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			static := isStatic(s.World.Pods[step.Pod])
			return s.Fact == "notified" && static && before(s, opTerminate, step.Pod) && s.Kubelet+" finished" == s.Ours
		},
	}}
}

// resizeManagerRules are about resizes.
func resizeManagerRules() []managerRule {
	return []managerRule{{
		Name: "times of a resize", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "A resize condition keeps its times when the agent starts again; in the kubelet they begin anew.",
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
		Name: "resize that ends before the first report", Class: judge.DefectOfOurs, Item: "new", Ends: true,
		Sentence: "A resize that the API server shows and that ends after a restart, before the pod is reported, is over in the kubelet; ours shows it again.",
		Explains: func(s managerScene) bool {
			step := &s.World.Steps[s.Step]
			_, fact := about(s)
			if step.Op != opResize || !strings.HasPrefix(step.Resize, "end") {
				return false
			}
			shown := ""
			for _, f := range s.OursFacts {
				if _, known := f["pod-"+strconv.Itoa(step.Pod)+" phase"]; known {
					shown = f["pod-"+strconv.Itoa(step.Pod)+" "+fact]
				}
			}
			return s.Fact == "resize" && s.Kubelet == "true" && s.Ours == "false" ||
				strings.HasPrefix(s.Fact, "said condition PodResize") && s.Kubelet == "" && s.Ours == shown
		},
	}, {
		Name: "resize conditions", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "Resize conditions are the Manager's alone and are shown at once; in the kubelet they are shown with the next report that is not refused.",
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
			return s.Ours == now(s) || s.Ours == generation(s, step.Pod)
		},
	}}
}

// sendManagerRules are about calls of the API server.
func sendManagerRules() []managerRule {
	return []managerRule{{
		Name: "another end", Class: judge.KubeletDefect, Doc: statusDoc, Ends: true,
		Sentence: "An end that the API server has is not sent over by another phase; the kubelet sends it, and the API server refuses it again and again.",
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
		Name: "patch that changes nothing", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A patch is sent only if it changes something; the kubelet also sends the order of conditions alone.",
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
		Name: "an end that was held back", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A status of which the end was held back is sent again soon; the kubelet sends it again with its next tick.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			held := slices.ContainsFunc(s.World.Steps[:s.Step], func(step managerStep) bool { return step.Op == opTick && step.MayRun })
			return s.World.Steps[s.Step].Op == opSync && held && (strings.HasPrefix(s.Fact, "calls patch pod-") && s.Ours == "1" ||
				s.OursFacts[s.Step]["calls delete pod-"+strconv.Itoa(pod)] == "1" && (strings.HasPrefix(s.Fact, "calls ") || s.Ours == "") ||
				strings.HasPrefix(s.Fact, "pod-") && s.Ours == said(s, pod, fact))
		},
	}, {
		Name: "a change that was not seen", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A change by others that the agent has not seen is put right when it is seen; the kubelet gets the object before each PATCH.",
		Explains: func(s managerScene) bool {
			pod, fact := about(s)
			end := shown(s, pod)
			want, ok := map[string]string{"phase": end.phase, "reason": end.reason, "message": end.message, "calls": ""}[fact]
			return unseen(s, pod) && !strings.HasPrefix(s.Fact, "said ") && ok && s.Ours == want
		},
	}, {
		Name: "a forced change", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "That a pod is deleted is one change; the kubelet forces one at every report of a deleted or terminated pod, to wake its publisher.",
		Explains: func(s managerScene) bool {
			pod, _ := about(s)
			call := "calls delete pod-" + strconv.Itoa(pod)
			deletes := s.KubeletFacts[s.Step][call] == "1" && s.OursFacts[s.Step][call] == ""
			return s.World.Steps[s.Step].Op == opSync && before(s, opTerminate, pod) && deletes && s.Kubelet == "" || s.Fact == call && deletes
		},
	}, {
		Name: "a deletion that failed", Class: judge.Deliberate, Doc: statusDoc, Ends: true,
		Sentence: "A deletion that failed is tried again after a back-off; the kubelet tries it again with its next tick.",
		Explains: func(s managerScene) bool {
			failed := slices.ContainsFunc(s.World.Steps[:s.Step], func(step managerStep) bool { return step.Fail == "delete" })
			return failed && s.World.Steps[s.Step].Op == opSync &&
				(strings.HasPrefix(s.Fact, "calls delete pod-") && s.Kubelet == "" && s.Ours == "1" || !strings.HasPrefix(s.Fact, "calls ") && s.Ours == "")
		},
	}, {
		Name: "time of a DisruptionTarget", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "What is reported of a pod does not change by sending it; in the kubelet the time of a DisruptionTarget condition becomes that of the call.",
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

// ended reports whether ours shows a container as terminated.
func ended(s managerScene, name string) bool {
	f := s.OursFacts[s.Step]
	return decodeState(f["said container "+name+"/state"]+f["said init "+name+"/state"]) != nil
}

// An end is a phase with what belongs to it.
type end struct{ phase, reason, message string }

// shown returns the phase that the API server shows of a pod before the scene's step.
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

// endBefore returns how the pod of a step had ended before it: by what was reported,
// or else by what the API server showed.
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

// generation returns the generation of a pod in the scene's step.
func generation(s managerScene, pod int) string {
	n := s.World.Pods[pod].Generation
	for _, step := range s.World.Steps[:s.Step+1] {
		if step.Op == opDelete && step.Pod == pod {
			n++
		}
	}
	return strconv.FormatInt(n, 10)
}

// lastShown returns what the fact about the API server was before the scene's step.
func lastShown(s managerScene) string {
	for i := s.Step - 1; i >= 0; i-- {
		if value, ok := s.OursFacts[i][s.Fact]; ok {
			return value
		}
	}
	return ""
}

// unseen reports whether the agent has not seen the last change of a pod yet.
func unseen(s managerScene, pod int) bool {
	for i := s.Step - 1; i >= 0; i-- {
		step := s.World.Steps[i]
		if step.Op != opRestart && step.Op != opOrphans {
			return step.Op == opOthers && step.Pod == pod && step.Lag
		}
	}
	return false
}

// persists reports whether the same difference was explained before.
func persists(s managerScene) bool {
	for i := range s.Step {
		if ours, ok := s.OursFacts[i][s.Fact]; ok && ours == s.Ours && s.KubeletFacts[i][s.Fact] == s.Kubelet {
			return true
		}
	}
	return false
}

// probedAlike reports whether our value is what follows at once from a probe result.
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

// started returns what follows at once from a probe result.
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
		f[name+" generation"] = s.OursFacts[s.Step]["said generation"]
	}
	return f
}
