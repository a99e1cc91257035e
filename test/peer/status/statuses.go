package status

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// drawStatus returns a random status of a pod. If odd is set, it may have things that a
// kubelet would not write: missing, additional and empty container statuses, no phase.
func drawStatus(d *judge.Draw, pod *corev1.Pod, odd bool) (s corev1.PodStatus) {
	s.Phase = judge.Pick(d, corev1.PodPending, corev1.PodRunning, corev1.PodFailed, corev1.PodSucceeded)
	if odd && d.Chance(10) {
		s.Phase = judge.Pick(d, "", corev1.PodUnknown)
	}
	if d.Chance(20) {
		s.Reason, s.Message = "Evicted", judge.Pick(d, "The node was low on resource", "", "\xff broken")
	}
	if !odd && s.Message != "" {
		s.Message = "The node was low on resource"
	}
	for _, c := range pod.Spec.InitContainers {
		s.InitContainerStatuses = drawContainerStatus(d, s.InitContainerStatuses, &c, odd)
		if n := len(s.InitContainerStatuses); !odd && !podutil.IsRestartableInitContainer(&c) {
			end := s.InitContainerStatuses[n-1].State.Terminated
			s.InitContainerStatuses[n-1].Ready = end != nil && end.ExitCode == 0
		}
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = drawContainerStatus(d, s.ContainerStatuses, &c, odd)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		s.EphemeralContainerStatuses = drawContainerStatus(d, s.EphemeralContainerStatuses, new(corev1.Container(c.EphemeralContainerCommon)), odd)
		if n := len(s.EphemeralContainerStatuses); n > 0 {
			s.EphemeralContainerStatuses[n-1].Started, s.EphemeralContainerStatuses[n-1].Ready = nil, false
		}
	}
	if d.Chance(70) {
		s.StartTime = new(at(int64(d.Int(50))))
	}
	s.ObservedGeneration = int64(d.Int(4))
	s.QOSClass = judge.Pick(d, "", corev1.PodQOSBurstable, corev1.PodQOSGuaranteed)
	if d.Chance(50) {
		s.PodIPs = judge.Pick(d, []corev1.PodIP{{IP: "10.1.0.1"}}, []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd01::1"}}, []corev1.PodIP{{IP: "fd01::1"}, {IP: "10.1.0.1"}})
		s.PodIP = s.PodIPs[0].IP
	}
	if d.Chance(50) {
		s.HostIPs = judge.Pick(d, []corev1.HostIP{{IP: "10.0.0.1"}}, []corev1.HostIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}})
		s.HostIP = s.HostIPs[0].IP
	}
	if d.Chance(15) {
		s.Resources, s.AllocatedResources = new(drawResources(d)), drawList(d, "100m", "200m")
	}
	s.Conditions = drawConditions(d, pod, odd)
	if odd && d.Chance(15) {
		s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "claim", ResourceClaimName: new(judge.Pick(d, "claim-1", "claim-2"))}}
	}
	if odd && d.Chance(5) {
		s.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: judge.Pick(d, "x-1", "x-2")}
	}
	return s
}

func drawConditions(d *judge.Draw, pod *corev1.Pod, odd bool) (all []corev1.PodCondition) {
	for _, t := range []corev1.PodConditionType{
		corev1.PodReady, corev1.ContainersReady, corev1.PodInitialized, corev1.PodScheduled, corev1.PodReadyToStartContainers,
		corev1.DisruptionTarget, corev1.AllContainersRestarting, gate(0), gate(1),
	} {
		if t == corev1.AllContainersRestarting && !odd && !podutil.AllContainersCouldRestart(&pod.Spec) {
			continue
		}
		rare := t == corev1.DisruptionTarget || t == corev1.AllContainersRestarting
		if rare && !d.Chance(10) || !rare && odd && !d.Chance(75) {
			continue
		}
		c := corev1.PodCondition{
			Type: t, Status: judge.Pick(d, corev1.ConditionTrue, corev1.ConditionFalse), ObservedGeneration: int64(d.Int(3)),
			LastTransitionTime: at(int64(d.Int(50))),
		}
		if odd && d.Chance(20) {
			c.LastTransitionTime.Time = c.LastTransitionTime.Add(300e6)
			c.LastProbeTime.Time = c.LastTransitionTime.Add(100e6)
		}
		if c.Status == corev1.ConditionFalse && d.Chance(50) {
			c.Reason, c.Message = judge.Pick(d, "ContainersNotReady", "PodFailed"), judge.Pick(d, "", "containers with unready status: [a]")
		}
		all = append(all, c)
	}
	if odd && d.Chance(10) {
		judge.Shuffle(d, all)
	}
	return all
}

// drawContainerStatus adds a random status of a container to a list.
func drawContainerStatus(d *judge.Draw, list []corev1.ContainerStatus, c *corev1.Container, odd bool) []corev1.ContainerStatus {
	if odd && d.Chance(8) {
		return list
	}
	id := "containerd://old-" + c.Name
	st := corev1.ContainerStatus{Name: c.Name, Image: c.Image, RestartCount: int32(d.Int(3)), Ready: d.Chance(50)}
	st.Started = judge.Pick(d, new(true), nil, new(false))
	st.State = drawState(d, id, odd)
	if !odd {
		st.Ready = st.Ready && st.State.Running != nil
		st.Started = new(st.State.Running != nil && (st.Ready || d.Chance(50)))
	}
	if st.State.Waiting == nil || d.Chance(20) {
		st.ContainerID, st.ImageID = id, "repo@sha256:1"
	}
	if d.Chance(30) {
		st.LastTerminationState.Terminated = drawEnd(d, "containerd://older-"+c.Name, odd)
	}
	if d.Chance(20) {
		st.Resources, st.AllocatedResources = new(drawResources(d)), drawList(d, "100m", "200m")
	}
	if odd && d.Chance(10) {
		st.User = &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: int64(d.Int(2)), SupplementalGroups: []int64{1}}}
	}
	if odd && d.Chance(5) {
		st.StopSignal = new(judge.Pick(d, corev1.SIGTERM, corev1.SIGKILL))
	}
	if odd && d.Chance(10) {
		st.VolumeMounts = []corev1.VolumeMountStatus{{Name: "v", MountPath: judge.Pick(d, "/a", "/b")}}
	}
	if odd && d.Chance(10) {
		st.AllocatedResourcesStatus = []corev1.ResourceStatus{{Name: corev1.ResourceName(judge.Pick(d, "gpu", "nic"))}}
	}
	return append(list, st)
}

func drawState(d *judge.Draw, id string, odd bool) (s corev1.ContainerState) {
	if odd && d.Chance(5) {
		return s
	}
	switch d.Int(3) {
	case 0:
		s.Running = &corev1.ContainerStateRunning{StartedAt: at(int64(d.Int(50)))}
		if odd && d.Chance(20) {
			s.Running.StartedAt.Time = s.Running.StartedAt.Add(700e6)
		}
	case 1:
		s.Waiting = &corev1.ContainerStateWaiting{Reason: judge.Pick(d, "PodInitializing", "ContainerCreating", "CrashLoopBackOff", "RestartingAllContainers")}
		if odd && d.Chance(10) {
			s.Waiting.Message = "half a rune \xe2\x82"
		}
	case 2:
		s.Terminated = drawEnd(d, id, odd)
	}
	return s
}

func drawEnd(d *judge.Draw, id string, odd bool) *corev1.ContainerStateTerminated {
	end := &corev1.ContainerStateTerminated{
		ExitCode: judge.Pick[int32](d, 0, 1, 42, 137), Reason: judge.Pick(d, "Completed", "Error", "RestartingAllContainers", "ContainerStatusUnknown", "OOMKilled"),
		ContainerID: id, StartedAt: at(int64(d.Int(50))), FinishedAt: at(int64(50 + d.Int(50))),
	}
	if odd {
		end.Message = judge.Pick(d, "", "ended", strings.Repeat("x", 4000), strings.Repeat("x", 4095)+"é", strings.Repeat("é", 2500), "x"+strings.Repeat("世", 1400), "\xff\xfe")
		if d.Chance(20) {
			end.StartedAt.Time, end.FinishedAt.Time = end.StartedAt.Add(1), end.FinishedAt.Add(999e6)
		}
	}
	return end
}
