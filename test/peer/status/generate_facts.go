package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A place is the subject of a fact: a container's field, or the pod's if name is "".
type place struct {
	subject
	list, name, field string
	in                *input
}

func look(s generateScene) (p place) {
	turn := &s.World.Turns[s.Step]
	if turn.given == nil {
		turn.given = newInput(s)
	}
	p.in, p.field = turn.given, s.Fact
	path, field, found := strings.Cut(s.Fact, "/")
	if !found || strings.HasPrefix(s.Fact, "condition ") {
		return p
	}
	p.field = field
	p.list, p.name, _ = strings.Cut(path, " ")
	for _, c := range p.in.subjects() {
		if c.spec.Name == p.name {
			p.subject = c
		}
	}
	return p
}

// factRules are the rules about facts on which no other facts depend.
func factRules() []generateRule {
	return slices.Concat(podFactRules(), stateFactRules(), messageFactRules(), mountFactRules())
}

// podFactRules are about the pod as a whole.
func podFactRules() []generateRule {
	return []generateRule{{
		Name: "pod-level resources in the status", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "The status shows only the pod-level resources that the spec sets; the kubelet shows the sum of the containers' resources and the values of the pod's cgroup.",
		Explains: func(s generateScene) bool {
			spec := s.World.Pod.Spec.Resources
			switch s.Fact {
			case "resources":
				return s.Ours == encode(spec)
			case "allocated resources":
				return spec == nil && s.Ours == "" || spec != nil && s.Ours == encode(spec.Requests)
			}
			return false
		},
	}, {
		Name: "QoS class with requests above limits", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A pod is Guaranteed only if the requests of each container equal its limits; the kubelet compares the sums, so that a request above its limit may be compensated by another request below its limit.",
		Explains: func(s generateScene) bool {
			all := slices.Concat(s.World.Pod.Spec.InitContainers, s.World.Pod.Spec.Containers)
			above := slices.ContainsFunc(all, func(c corev1.Container) bool {
				r := c.Resources
				return r.Requests.Cpu().Cmp(*r.Limits.Cpu()) > 0 || r.Requests.Memory().Cmp(*r.Limits.Memory()) > 0
			})
			return s.Fact == "qos" && above && s.Kubelet == string(corev1.PodQOSGuaranteed) && s.Ours == string(corev1.PodQOSBurstable)
		},
	}, {
		Name: "node addresses unknown", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "While the node's addresses are unknown, the last reported addresses are kept; the kubelet removes them from the status.",
		Explains: func(s generateScene) bool {
			before := s.World.Turns[s.Step].Before
			said := map[string]string{"host IPs": fmt.Sprint(before.HostIP, before.HostIPs)}
			if s.World.Pod.Spec.HostNetwork {
				said["pod IPs"] = fmt.Sprint(before.PodIP, before.PodIPs)
			}
			return len(s.World.NodeIPs) == 0 && s.Kubelet == "[]" && s.Ours == said[s.Fact]
		},
	}, {
		Name: "observedGeneration of AllContainersRestarting", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "The condition AllContainersRestarting has the pod's generation like all other conditions; the kubelet does not set the generation of this condition.",
		Explains: func(s generateScene) bool {
			return s.Fact == "condition AllContainersRestarting generation" && s.Kubelet == "0" && s.Ours == fmt.Sprint(s.World.Turns[s.Step].Pod.Generation)
		},
	}, {
		Name: "all illegal transitions in one error", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "The error of a rejected status names every container with an illegal transition; the kubelet names only the first.",
		Explains: func(s generateScene) bool {
			first, _, more := strings.Cut(s.Ours, "\n")
			return s.Fact == "refused" && more && first == s.Kubelet
		},
	}, {
		Name: "reason of the API server's phase", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "If the terminal phase in the API server differs from the phase on the node, reason and message in the API server are kept; the kubelet loses them, or shows reason and message of the other phase.",
		Explains: func(s generateScene) bool {
			turn, kubelet := &s.World.Turns[s.Step], s.KubeletFacts[s.Step]
			was := map[string]string{"reason": turn.Before.Reason, "message": turn.Before.Message}
			told, ok := was[s.Fact]
			if !ok || !isTerminal(turn.Pod.Status.Phase) {
				return false
			}
			told = cmp.Or(told, map[string]string{"reason": turn.Pod.Status.Reason, "message": turn.Pod.Status.Message}[s.Fact])
			if turn.Before.Phase != turn.Pod.Status.Phase {
				return s.Kubelet == told && s.Ours == ""
			}
			computed := func(initialized bool) corev1.PodPhase {
				containers := append(parse(kubelet, "container "), parse(kubelet, "init ")...)
				return getPhase(klog.Background(), turn.Pod, containers, s.World.Steps[s.Step].Terminal, initialized)
			}
			other := func(phase corev1.PodPhase) bool { return isTerminal(phase) && phase != turn.Before.Phase }
			return s.Kubelet == "" && (other(computed(false)) || other(computed(true))) && s.Ours == told
		},
	}}
}

// stateFactRules are about states of containers.
func stateFactRules() []generateRule {
	return []generateRule{{
		Name: "waiting sidecar with exit code 0", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "A sidecar that exited with code 0 and waits for its back-off is shown as waiting; the kubelet shows it as terminated.",
		Explains: func(s generateScene) bool {
			p := look(s)
			if p.list != "init" || !podutil.IsRestartableInitContainer(&p.spec) || !p.is(exitedState) || p.newest.ExitCode != 0 {
				return false
			}
			waiting, message := stateFacts(corev1.ContainerState{Waiting: new(p.in.step.Waiting[p.name])})
			kubelet := s.KubeletFacts[s.Step]
			want, ok := map[string]string{
				"state": waiting, "state message": message,
				"last": kubelet["init "+p.name+"/state"], "last message": kubelet["init "+p.name+"/state message"],
			}[p.field]
			return ok && (s.Ours == want || cutWithinRune(want, s.Ours))
		},
	}, {
		Name: "unknown container reported twice: RestartAllContainers", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A container in an unknown state that was reported as terminated stays terminated; the kubelet shows it as waiting from the second report on, as if it had never run.",
		Explains: func(s generateScene) bool {
			p := look(s)
			if !p.is(unknownState) || !p.same() || p.old.State.Terminated == nil || !podutil.AllContainersCouldRestart(&p.in.turn.Pod.Spec) {
				return false
			}
			var kubelet corev1.ContainerState
			decode(s.KubeletFacts[s.Step][p.list+" "+p.name+"/state"], &kubelet)
			state, message := stateFacts(p.old.State)
			want, ok := map[string]string{"state": state, "state message": message, "last": state, "last message": message}[p.field]
			return ok && s.Ours == want && kubelet.Waiting != nil
		},
	}, {
		Name: "lastState that also waits or runs", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "The field LastTerminationState shows only terminations; the kubelet also shows a predecessor there that is running, was only created or is in an unknown state.",
		Explains: func(s generateScene) bool {
			var kubelet corev1.ContainerState
			decode(s.Kubelet, &kubelet)
			end, _ := stateFacts(corev1.ContainerState{Terminated: kubelet.Terminated})
			return look(s).field == "last" && kubelet.Terminated != nil && s.Ours == end
		},
	}}
}

// messageFactRules are about messages.
func messageFactRules() []generateRule {
	return []generateRule{{
		Name: "messages cut within a rune", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "Termination messages are cut between runes; the kubelet cuts them at any byte, so that the status in the API server differs from the status that was sent.",
		Explains: func(s generateScene) bool { return cutWithinRune(s.Kubelet, s.Ours) },
	}}
}

// mountFactRules are about resources and mounts.
func mountFactRules() []generateRule {
	return []generateRule{{
		Name: "recursive read-only mounts", Class: judge.Deliberate, Doc: statusDoc,
		Sentence: "A read-only mount is shown as recursively read-only if the runtime reports this for the mount; the kubelet derives this from what the runtime supports.",
		Explains: func(s generateScene) bool {
			p := look(s)
			return p.field == "mounts" && s.Kubelet != "" && s.Ours == encode(mounts(p.spec, p.newest))
		},
	}, {
		Name: "volumeMounts in the first status", Class: judge.KubeletDefect, Doc: statusDoc,
		Sentence: "A container's status has its volume mounts from the first report on; the kubelet copies them from the previous status, so they stay missing if the previous status had no volume mounts.",
		Explains: func(s generateScene) bool {
			p := look(s)
			return p.field == "mounts" && s.Kubelet == "" && (p.old == nil || p.old.VolumeMounts == nil) && s.Ours == encode(mounts(p.spec, p.newest))
		},
	}}
}

// cutWithinRune reports whether two messages in JSON form differ only because one was
// truncated within a rune.
func cutWithinRune(kubelet, ours string) bool {
	whole := strings.TrimRight(strings.ReplaceAll(kubelet, `\ufffd`, "\ufffd"), "\ufffd")
	return strings.HasSuffix(kubelet, `\ufffd`) && whole == strings.TrimRight(ours, "\ufffd")
}

// decodeState returns the terminated state in a state's text, or nil.
func decodeState(text string) *corev1.ContainerStateTerminated {
	var state corev1.ContainerState
	decode(text, &state)
	return state.Terminated
}

// mounts returns the mounts of a container from the runtime's report.
func mounts(c corev1.Container, seen *runtimeapi.ContainerStatus) (all []corev1.VolumeMountStatus) {
	for _, m := range c.VolumeMounts {
		st := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			st.RecursiveReadOnly = new(corev1.RecursiveReadOnlyDisabled)
		}
		for _, mount := range seen.GetMounts() {
			if mount.ContainerPath == m.MountPath && mount.RecursiveReadOnly {
				st.RecursiveReadOnly = new(corev1.RecursiveReadOnlyEnabled)
			}
		}
		all = append(all, st)
	}
	return all
}
