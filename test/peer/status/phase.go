package status

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	kubeletstatus "k8s.io/kubernetes/pkg/kubelet/status"

	"github.com/kubeparts/kubeparts/status"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// phaseWorld is a pod with a random status, which a kubelet would not necessarily write, and
// the next status.
type phaseWorld struct {
	Pod                   *corev1.Pod // has the previous status
	Status                corev1.PodStatus
	Terminal, Initialized bool
}

func drawPhaseWorld(d *judge.Draw) *phaseWorld {
	w := &phaseWorld{Pod: drawPod(d)}
	w.Pod.Status = drawStatus(d, w.Pod, true)
	w.Status = drawStatus(d, w.Pod, true)
	if d.Chance(10) {
		w.Status = *w.Pod.Status.DeepCopy()
		drawEdit(d, &w.Status)
	}
	w.Terminal, w.Initialized = d.Chance(30), d.Chance(50)
	switch d.Int(8) {
	case 1:
		w.Status.ContainerStatuses, w.Status.InitContainerStatuses = nil, nil
	case 2:
		w.Status.ContainerStatuses, w.Status.InitContainerStatuses = []corev1.ContainerStatus{}, nil
	}
	return w
}

// drawEdit changes one thing in a status, or nothing.
func drawEdit(d *judge.Draw, s *corev1.PodStatus) {
	lists := slices.Concat(s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses)
	if len(lists) > 0 && d.Chance(60) {
		list := judge.Pick(d, &s.ContainerStatuses, &s.InitContainerStatuses, &s.EphemeralContainerStatuses)
		if len(*list) > 0 {
			drawContainerEdit(d, &(*list)[d.Int(len(*list))])
		}
		return
	}
	switch d.Int(14) {
	case 1:
		s.Reason += "x"
	case 2:
		s.Message += "x"
	case 3:
		s.ObservedGeneration++
	case 4:
		s.QOSClass = corev1.PodQOSBestEffort
	case 5:
		s.HostIP, s.HostIPs = "10.0.0.9", []corev1.HostIP{{IP: "10.0.0.9"}}
	case 6:
		s.PodIPs = []corev1.PodIP{{IP: "10.1.0.1"}, {IP: "fd01::9"}}
	case 7:
		s.StartTime = judge.Pick(d, new(at(99)), nil)
	case 8:
		s.Resources = &corev1.ResourceRequirements{Limits: drawList(d, "1")}
	case 9:
		s.AllocatedResources = drawList(d, "1")
	case 10:
		s.NominatedNodeName += "n"
	case 11:
		slices.Reverse(s.ContainerStatuses)
	case 12:
		s.ResourceClaimStatuses = append(s.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: "more"})
	case 13:
		drawConditionEdit(d, s)
	}
}

func drawConditionEdit(d *judge.Draw, s *corev1.PodStatus) {
	if len(s.Conditions) == 0 {
		return
	}
	c := &s.Conditions[d.Int(len(s.Conditions))]
	switch d.Int(7) {
	case 1:
		c.Status = corev1.ConditionUnknown
	case 2:
		c.Reason += "x"
	case 3:
		c.Message += "x"
	case 4:
		c.LastTransitionTime, c.LastProbeTime, c.ObservedGeneration = at(98), at(97), 77
	case 5:
		c.Type = "example.com/renamed"
	case 6:
		s.Conditions = s.Conditions[1:]
	}
}

func drawContainerEdit(d *judge.Draw, st *corev1.ContainerStatus) {
	switch d.Int(17) {
	case 1:
		st.Name += "x"
	case 2:
		st.Ready = !st.Ready
	case 3:
		st.Started = judge.Pick(d, nil, new(true), new(false))
	case 4:
		st.RestartCount++
	case 5:
		st.Image += "x"
	case 6:
		st.ImageID += "x"
	case 7:
		st.ContainerID += "x"
	case 8:
		st.State = drawState(d, st.ContainerID, true)
	case 9:
		st.LastTerminationState = drawState(d, st.ContainerID, true)
	case 10:
		st.Resources = judge.Pick(d, nil, &corev1.ResourceRequirements{}, &corev1.ResourceRequirements{Limits: drawList(d, "1")})
	case 11:
		st.AllocatedResources = drawList(d, "1")
	case 12:
		st.User = judge.Pick(d, &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{UID: 5}}, &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{GID: 1}}, &corev1.ContainerUser{}, nil)
	case 13:
		st.VolumeMounts = append(st.VolumeMounts, corev1.VolumeMountStatus{Name: "more"})
	case 14:
		st.AllocatedResourcesStatus = append(st.AllocatedResourcesStatus, corev1.ResourceStatus{Name: "more"})
	case 15:
		st.StopSignal = judge.Pick(d, nil, new(corev1.SIGINT))
	case 16:
		drawStateEdit(d, &st.State)
	}
}

func drawStateEdit(d *judge.Draw, s *corev1.ContainerState) {
	switch {
	case s.Running != nil:
		s.Running.StartedAt.Time = s.Running.StartedAt.Add(judge.Pick(d, 250*time.Millisecond, time.Second))
	case s.Waiting != nil:
		s.Waiting = &corev1.ContainerStateWaiting{Reason: s.Waiting.Reason + judge.Pick(d, "", "x"), Message: s.Waiting.Message + judge.Pick(d, "", "x")}
	case s.Terminated != nil:
		end := *s.Terminated
		switch d.Int(8) {
		case 1:
			end.ExitCode++
		case 2:
			end.Signal++
		case 3:
			end.Reason += "x"
		case 4:
			end.ContainerID += "x"
		case 5:
			end.StartedAt = at(96)
		case 6:
			end.FinishedAt = at(95)
		case 7:
			end.Message += "x"
		}
		s.Terminated = &end
	}
}

func (w *phaseWorld) String() string { return encode(w) }

// phasePeer compares the functions for a single status: phase, conditions, forbidden
// transitions, and the status of a terminated pod.
func phasePeer() judge.Peer[*phaseWorld] {
	return judge.Peer[*phaseWorld]{
		Name: "status/phase", World: drawPhaseWorld, Kubelet: phaseOfKubelet, Ours: phaseOfOurs, Rules: phaseRules(), Scenarios: 600,
	}
}

func phaseOfKubelet(t *testing.T, w *phaseWorld) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	s := &w.Status
	all := append(append([]corev1.ContainerStatus{}, s.InitContainerStatuses...), s.ContainerStatuses...)
	if s.InitContainerStatuses == nil && s.ContainerStatuses == nil {
		all = nil
	}
	f["phase"] = string(getPhase(klog.Background(), w.Pod, all, w.Terminal, w.Initialized))
	for _, c := range []corev1.PodCondition{
		kubeletstatus.GenerateContainersReadyCondition(w.Pod, &w.Pod.Status, all, s.Phase),
		kubeletstatus.GeneratePodReadyCondition(w.Pod, &w.Pod.Status, s.Conditions, all, s.Phase),
		kubeletstatus.GeneratePodInitializedCondition(w.Pod, &corev1.PodStatus{}, all, s.Phase),
	} {
		conditionFact(f, &c)
	}
	f["reconcile readiness"] = strconv.FormatBool(kubeletstatus.NeedToReconcilePodReadiness(w.Pod))
	if err := checkContainerStateTransition(&w.Pod.Status, s, &w.Pod.Spec); err != nil {
		f["refused"] = err.Error()
	}
	f["equal"] = strconv.FormatBool(isPodStatusByKubeletEqual(normalizeStatus(w.Pod, w.Pod.Status.DeepCopy()), normalizeStatus(w.Pod, s.DeepCopy())))
	same := s.DeepCopy()
	same.Conditions = append(same.Conditions, corev1.PodCondition{Type: "example.com/other", Status: corev1.ConditionTrue})
	f["equal but for others"] = strconv.FormatBool(isPodStatusByKubeletEqual(normalizeStatus(w.Pod, s.DeepCopy()), normalizeStatus(w.Pod, same)))
	normal := normalizeStatus(w.Pod, s.DeepCopy())
	statusFacts(f, "normal ", normal)
	f["normal times"] = containerTimes(normal)
	synctest.Test(t, func(t *testing.T) { endOfKubelet(f, w.Pod) })
	return []judge.Facts{f}
}

// containerTimes returns the times of containers' states to the nanosecond.
func containerTimes(s *corev1.PodStatus) string {
	var all []string
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses) {
		for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
			if state.Running != nil {
				all = append(all, state.Running.StartedAt.UTC().String())
			}
			if end := state.Terminated; end != nil {
				all = append(all, end.StartedAt.UTC().String(), end.FinishedAt.UTC().String())
			}
		}
	}
	return strings.Join(all, " ")
}

// endOfKubelet adds the kubelet's last status of a pod.
func endOfKubelet(f judge.Facts, pod *corev1.Pod) {
	known := &pods{pod}
	m := kubeletstatus.NewManager(nil, known, known, known)
	m.TerminatePod(klog.Background(), pod.DeepCopy())
	ended, _ := m.GetPodStatus(pod.UID)
	ended = *ended.DeepCopy()
	now := func(t *metav1.Time) {
		if t != nil && t.Year() > 2001 { // called by a rule, outside of a bubble
			*t = at(0)
		}
	}
	now(ended.StartTime)
	for i := range ended.Conditions {
		now(&ended.Conditions[i].LastTransitionTime)
	}
	statusFacts(f, "ended ", &ended)
}

func conditionFact(f judge.Facts, c *corev1.PodCondition) {
	f["condition "+string(c.Type)] = strings.Join([]string{string(c.Status), c.Reason, c.Message, strconv.FormatInt(c.ObservedGeneration, 10)}, "|")
}

func phaseOfOurs(t *testing.T, w *phaseWorld) []judge.Facts {
	t.Helper()
	f := judge.Facts{}
	s := &w.Status
	f["phase"] = string(status.Phase(w.Pod, s, status.PhaseFacts{Terminal: w.Terminal, Initialized: w.Initialized}))
	for _, c := range []corev1.PodCondition{status.ContainersReady(w.Pod, s), status.Ready(w.Pod, s), status.Initialized(w.Pod, s)} {
		conditionFact(f, &c)
	}
	f["reconcile readiness"] = strconv.FormatBool(status.NeedToReconcilePodReadiness(w.Pod))
	if err := status.CheckTransition(w.Pod, &w.Pod.Status, s); err != nil {
		f["refused"] = err.Error()
	}
	f["equal"] = strconv.FormatBool(status.Equal(w.Pod, &w.Pod.Status, s))
	same := s.DeepCopy()
	same.Conditions = append(same.Conditions, corev1.PodCondition{Type: "example.com/other", Status: corev1.ConditionTrue})
	f["equal but for others"] = strconv.FormatBool(status.Equal(w.Pod, s, same))
	normal := s.DeepCopy()
	status.Normalize(w.Pod, normal)
	statusFacts(f, "normal ", normal)
	f["normal times"] = containerTimes(normal)
	synctest.Test(t, func(t *testing.T) {
		m, err := status.New(status.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ended := m.TerminatePod(w.Pod.DeepCopy())
		statusFacts(f, "ended ", &ended)
	})
	return []judge.Facts{f}
}
