package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// containerChanges are about the states of the runtime's containers.
func containerChanges() []change {
	return []change{{
		name: "interrupted container start", class: judge.Deliberate,
		sentence: "A container whose start was interrupted because the agent stopped is shown as created and waiting; the kubelet shows it as failed with exit code 128.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				applies := podcache.StartInterrupted(s.newest)
				if applies {
					s.newest.State = runtimeapi.ContainerState_CONTAINER_CREATED
				}
				if podcache.StartInterrupted(s.second) { // the container has not ended, so there is no last termination state
					in.removeOlder(s.newest)
					return true
				}
				return applies
			})
		},
	}, {
		name: "unknown container reported twice", class: judge.KubeletDefect,
		sentence: "A container in an unknown state that was reported as terminated stays terminated; the kubelet shows it as waiting from the second report on, as if it had never run.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if !s.is(unknownState) || !s.same() || s.old.State.Terminated == nil {
					return false
				}
				if in.restartsAll() { // the kubelet treats a missing container as removed
					end := s.old.State.Terminated
					s.newest.State, s.newest.ExitCode, s.newest.Reason = exitedState, end.ExitCode, end.Reason
					return true
				}
				in.removeOlder(s.newest)
				in.remove(s.newest)
				return true
			})
		},
	}, {
		name: "restart count of a reappeared container", class: judge.KubeletDefect,
		sentence: "A container that was reported as lost and is still running is not counted as restarted; the kubelet counts a restart.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if !s.is(runningState) || !s.same() || s.old.State.Terminated == nil {
					return false
				}
				s.old.State.Terminated = nil
				return true
			})
		},
	}, {
		name: "lastState without a termination", class: judge.KubeletDefect,
		sentence: "The field LastTerminationState shows only terminations; the kubelet also shows a predecessor there that is running, was only created or is in an unknown state.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if s.second == nil || s.second.State == exitedState || s.second.State == unknownState && s.old != nil && s.old.State.Running != nil {
					return false
				}
				in.removeOlder(s.newest)
				return true
			})
		},
	}}
}

// probeChanges are about probes and reasons for waiting.
func probeChanges() []change { return slices.Concat(waitingChanges(), startedChanges()) }

// waitingChanges are about reasons for waiting.
func waitingChanges() []change {
	return []change{{
		name: "waiting reason in an ended pod", class: judge.Deliberate,
		sentence: "In a pod that has ended, no container is shown as waiting for a restart; the kubelet shows the last reason for the wait.",
		apply: func(in *input) bool {
			applies := in.step.Terminal && len(in.step.Waiting) > 0
			if applies {
				in.step.Waiting = nil
			}
			return applies
		},
	}, {
		name: "waiting state of finished containers", class: judge.Deliberate,
		sentence: "A container that must not run again is never shown as waiting; the kubelet shows it as waiting in these cases: the runtime has removed it or does not know its state, or it is an ephemeral container.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if _, waits := in.step.Waiting[s.spec.Name]; !waits || !s.final(in.turn.Pod) {
					return false
				}
				delete(in.step.Waiting, s.spec.Name)
				return true
			})
		},
	}}
}

// startedChanges are about probe results.
func startedChanges() []change {
	return []change{{
		name: "started field of a replaced container", class: judge.KubeletDefect,
		sentence: "The previous value of Started is used only for the same container; the kubelet also uses the value of the container's predecessor.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if !s.is(runningState) || s.old == nil || s.same() || s.old.Started == nil || !*s.old.Started {
					return false
				}
				s.old.Started = nil
				return true
			})
		},
	}, {
		name: "started state before the first probe", class: judge.Deliberate,
		sentence: "Until a restarted agent has probed a container, the container's status stays as reported before; the kubelet reports the container as started until the first probe.",
		apply: func(in *input) (applies bool) {
			applies, in.step.Workers, in.step.Probes = !in.step.Workers, true, map[string]probeFacts{}
			return applies
		},
	}, {
		name: "readiness before the first result", class: judge.Deliberate,
		sentence: "Until its readiness probe has a result, a container keeps its reported readiness; the kubelet uses the readiness of the whole pod.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				facts := in.step.Probes[s.spec.Name]
				if !s.is(runningState) || s.spec.ReadinessProbe == nil || facts.Readiness != "" {
					return false
				}
				facts.Readiness = "failed"
				if s.same() && s.old.Ready {
					facts.Readiness = "passed"
				}
				in.step.Probes[s.spec.Name] = facts
				return true
			})
		},
	}, {
		name: "phase from an outdated started field", class: judge.KubeletDefect,
		sentence: "The phase depends on the current Started of a sidecar; in the kubelet it depends on the value of Started in the previous sync.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if !s.is(runningState) || s.kind != "init" || !podutil.IsRestartableInitContainer(&s.spec) {
					return false
				}
				if s.old == nil {
					list := &in.turn.Before.InitContainerStatuses
					*list = append(*list, corev1.ContainerStatus{Name: s.spec.Name, ContainerID: s.id(), State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
					s.old = &(*list)[len(*list)-1]
				}
				s.old.Started = new(in.ours["init "+s.spec.Name+"/started"] == "true")
				return true
			})
		},
	}, {
		name: "ready field of a terminated container", class: judge.KubeletDefect,
		sentence: "A terminated container is not ready; in the kubelet it stays ready if it was ready when the pod was terminated and its exit was not observed.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if s.newest != nil || s.old == nil || s.old.State.Terminated == nil || !s.old.Ready {
					return false
				}
				s.old.Ready = false
				return true
			})
		},
	}, {
		name: "own termination repeated as lastState", class: judge.KubeletDefect,
		sentence: "After a back-off, the termination of a container is shown only as the state; the kubelet also shows this termination as the last termination.",
		apply: func(in *input) bool {
			return in.each(func(s subject) bool {
				if s.newest == nil || s.old == nil || s.old.LastTerminationState.Terminated == nil || s.old.LastTerminationState.Terminated.ContainerID != s.id() {
					return false
				}
				s.old.LastTerminationState.Terminated = nil
				return true
			})
		},
	}}
}

// restartAllChanges are about restarts of all containers.
func restartAllChanges() []change {
	return []change{{
		name: "new containers during RestartAllContainers", class: judge.KubeletDefect,
		sentence: "A restart of all containers is complete when no old container is left; in the kubelet the restart continues while any container exists, so a restarted kubelet removes the containers that it has already started.",
		apply: func(in *input) bool {
			if !in.restartsAll() {
				return false
			}
			anyOld, anyNew := false, false
			for _, s := range in.subjects() {
				if s.kind != "ephemeral" && s.newest != nil {
					anyOld, anyNew = anyOld || s.same(), anyNew || !s.same()
				}
			}
			if anyOld || !anyNew {
				return false
			}
			status.Condition(in.turn.Before.Conditions, corev1.AllContainersRestarting).Status = corev1.ConditionFalse
			return true
		},
	}}
}

// restartsAll reports whether all containers of the pod were being restarted.
func (in *input) restartsAll() bool {
	c := status.Condition(in.turn.Before.Conditions, corev1.AllContainersRestarting)
	return c != nil && c.Status == corev1.ConditionTrue
}

// addressChanges are about addresses.
func addressChanges() []change {
	return []change{{
		name: "pod IPs of an ended pod", class: judge.Deliberate,
		sentence: "A pod that has ended keeps its addresses when the agent is restarted; the kubelet shows no addresses if the runtime reports none.",
		apply: func(in *input) bool {
			if len(in.step.IPs) > 0 || in.turn.Pod.Spec.HostNetwork || !in.step.Terminal && !isTerminal(in.turn.Before.Phase) {
				return false
			}
			for _, ip := range in.turn.Before.PodIPs {
				in.step.IPs = append(in.step.IPs, ip.IP)
			}
			return len(in.step.IPs) > 0
		},
	}}
}
