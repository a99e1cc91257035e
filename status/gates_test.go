package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/status"
)

// TestReadinessGate_ChangesWhileThePodIsNotReady checks that a change of another writer's
// condition is not a change of the status, but is used by the next probe result.
func TestReadinessGate_ChangesWhileThePodIsNotReady(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, after []corev1.PodCondition
		want          string
	}{
		"opens":    {gate("False"), gate("True"), "True"},
		"shuts":    {gate("True"), gate("False"), "False, but ContainersReady is not"},
		"appears":  {nil, gate("True"), "True"},
		"vanishes": {gate("True"), nil, "False, but ContainersReady is not"},
	} {
		w := newWorld(t)
		in := status.Input{Runtime: runningIn("a"), Now: at(0), Probes: func(string, string) (startup, ready status.ProbeResult) {
			return status.NoProbe, status.ProbeFailed
		}}
		var versions []uint64
		for _, conditions := range [][]corev1.PodCondition{tc.before, tc.after} {
			in.Pod = newPod("Always", "a")
			in.Pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/y"}}
			in.Pod.Status.Conditions = conditions
			in.Previous, _ = w.GetPodStatus(in.Pod.UID)
			stored, changed := w.SetPodStatus(in.Pod, status.Generate(in))
			versions = append(versions, w.changes[len(w.changes)-1].Version)
			require.Equal(t, len(versions) == 1, changed, name)
			require.Equal(t, len(conditions) == 1, status.Condition(stored.Conditions, "x/y") != nil, name)
		}
		require.Equal(t, []uint64{1, 1}, versions, "%s: a condition of another writer must not be a change", name)
		require.True(t, w.SetContainerReadiness(in.Pod.UID, "a1", true), name)
		got, _ := w.GetPodStatus(in.Pod.UID)
		require.Equal(t, tc.want, readiness(got), name)
		require.Equal(t, len(tc.before) == 1, status.Condition(w.changes[0].New.Conditions, "x/y") != nil, "returned items have not changed")
	}
}

func gate(s corev1.ConditionStatus) []corev1.PodCondition {
	return []corev1.PodCondition{{Type: "x/y", Status: s}}
}

// TestSetContainerReadiness_LateResultOfADeadContainer checks the case that the last
// successful probe result arrives after the container has terminated (kubernetes#128820).
func TestSetContainerReadiness_LateResultOfADeadContainer(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{
		Name: "a", ContainerID: "x", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}}})
	require.False(t, w.SetContainerReadiness(pod.UID, "x", true))
	got, _ := w.GetPodStatus(pod.UID)
	require.False(t, got.ContainerStatuses[0].Ready)
}

func TestRemovePodStatus_AlsoRemovesAResize(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.True(t, w.SetPodResizePending("wanted", corev1.PodReasonDeferred, "", 1))
	require.True(t, w.SetPodResizePending("orphan", corev1.PodReasonDeferred, "", 1))
	require.Zero(t, w.RemoveOrphanedStatuses(func(uid types.UID) bool { return uid == "wanted" }))
	require.Empty(t, w.removed, "without a status, nothing must be removed")
	pending, _ := w.CountResizes()
	require.Equal(t, map[string]int{corev1.PodReasonDeferred: 1}, pending)
}

// TestTerminatePod_IncompleteSpec checks that the status of a container which is not in the
// spec does not prevent the termination of a pod.
func TestTerminatePod_IncompleteSpec(t *testing.T) {
	t.Parallel()
	w, sc := newWorld(t), parseScene(t, "Never", "i:exit0 run")
	sc.pod.UID = "uid"
	sc.s.Phase = "Running"
	w.SetPodStatus(sc.pod, sc.s)
	sc.pod = sc.pod.DeepCopy()
	sc.pod.Spec.InitContainers = nil
	require.Equal(t, corev1.PodFailed, w.TerminatePod(sc.pod).Phase)
	require.True(t, w.changes[len(w.changes)-1].Finished)
	require.Empty(t, w.refused)
}

// TestNormalize_InvalidUTF8 checks that messages are valid UTF-8: JSON converts them, so the
// status in the API server would otherwise never equal the status that was sent.
func TestNormalize_InvalidUTF8(t *testing.T) {
	t.Parallel()
	raw := corev1.PodStatus{
		Phase: "Running", Message: "p\xff", StartTime: &metav1.Time{Time: at(0)},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "False", Message: "c\xff"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "w\xff"},
		}}},
	}
	pod := newPod("Always", "a")
	a := newAPI()
	seen := a.put(pod)
	n := newNode(t, a)
	_, changed := n.SetPodStatus(seen, raw)
	require.True(t, changed)
	_, changed = n.SetPodStatus(seen, raw)
	require.False(t, changed)
	require.NoError(t, n.Sync(t.Context()))
	n.sink.RecordObject(seen.UID, a.pod(pod.Name))
	n.Trigger(seen.UID)
	require.NoError(t, n.Sync(t.Context()))
	require.Equal(t, []string{"patch " + pod.Name}, a.asked())

	cooked := *raw.DeepCopy()
	status.Normalize(pod, &cooked)
	require.True(t, status.Equal(pod, &raw, &cooked))
	require.Equal(t, "w\ufffd", cooked.ContainerStatuses[0].State.Waiting.Message)
	require.Equal(t, "w\xff", raw.ContainerStatuses[0].State.Waiting.Message)
}

func TestGenerate_NodeAddressesAreKeptWhileUnknown(t *testing.T) {
	t.Parallel()
	in := status.Input{Pod: newPod("Always", "a"), Runtime: runningIn("a"), NodeIPs: []string{"192.168.0.1", "fd00::1"}}
	in.Previous = status.Generate(in)
	in.NodeIPs = nil
	s := status.Generate(in)
	require.Equal(t, "192.168.0.1", s.HostIP)
	require.Equal(t, in.Previous.HostIPs, s.HostIPs)
	s.HostIPs[0].IP = "x"
	require.Equal(t, "192.168.0.1", in.Previous.HostIPs[0].IP, "the result must not share memory with the input")
	in.NodeIPs = []string{"192.168.0.2"}
	require.Equal(t, []corev1.HostIP{{IP: "192.168.0.2"}}, status.Generate(in).HostIPs)
}

// TestManager_TerminalPhaseOfTheAPIServerIsFinal checks that the pod does not run again,
// regardless of which writer has set the phase.
func TestManager_TerminalPhaseOfTheAPIServerIsFinal(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, simple("Running", "True"))
	pod = pod.DeepCopy()
	pod.Status = corev1.PodStatus{Phase: "Failed", Reason: "NodeLost", Message: "m"}
	stored, changed := w.SetPodStatus(pod, simple("Running", "True"))
	require.True(t, changed)
	require.Equal(t, corev1.PodFailed, stored.Phase)
	require.Equal(t, "NodeLost", stored.Reason)
	require.Equal(t, "PodFailed", status.Condition(stored.Conditions, corev1.PodReady).Reason)

	pod = pod.DeepCopy()
	pod.Status.Phase = "Succeeded"
	stored, changed = w.SetPodStatus(pod, simple("Running", "True"))
	require.False(t, changed)
	require.Equal(t, corev1.PodFailed, stored.Phase, "a terminal phase must not change")
}
