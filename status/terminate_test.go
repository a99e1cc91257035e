package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status"
)

// allWords returns the short form of every container, init containers first.
func allWords(s corev1.PodStatus) (out []string) {
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, st := range list {
			out = append(out, word(st))
		}
	}
	return out
}

func TestTerminatePod_TerminatesUnobservedContainers(t *testing.T) {
	t.Parallel()
	const lost, waits = "exit137:ContainerStatusUnknown", "waiting:ContainerCreating"
	for name, tc := range map[string]struct {
		words string
		want  []string
	}{
		"nothing known":                                    {"none", nil},
		"running and waiting":                              {"run wait", []string{lost, lost}},
		"ended stays":                                      {"exit0 exit3", []string{"exit0:", "exit3:"}},
		"back-off keeps its last end":                      {"back1", []string{lost + " after exit1:"}},
		"first init never seen to run":                     {"i:wait i:wait wait", []string{lost, waits, waits}},
		"first init runs":                                  {"i:run i:wait wait", []string{lost, waits, waits}},
		"second init runs":                                 {"i:exit0 i:run wait", []string{"exit0:", lost, waits}},
		"a gap before an init that ran":                    {"i:wait i:back1 i:wait wait", []string{lost, lost + " after exit1:", waits, waits}},
		"last init failed":                                 {"i:exit0 i:exit1 wait", []string{"exit0:", "exit1:", waits}},
		"last init failed before":                          {"i:exit0 i:back1 wait", []string{"exit0:", lost + " after exit1:", waits}},
		"last init succeeded":                              {"i:exit0 i:exit0 wait", []string{"exit0:", "exit0:", lost}},
		"last init succeeded before":                       {"i:back0 wait", []string{lost + " after exit0:", lost}},
		"sidecar started":                                  {"s:run wait", []string{lost, lost}},
		"sidecar not started":                              {"s:init wait", []string{lost, waits}},
		"running regular container implies initialized":    {"i:wait run wait", []string{lost, lost, lost}},
		"terminated regular container implies initialized": {"i:wait exit0 wait", []string{lost, "exit0:", lost}},
		"regular container with a last termination":        {"i:wait back1", []string{lost, lost + " after exit1:"}},
		"init statuses are missing altogether":             {"i:none wait", []string{waits}},
		"regular container without a state":                {"i:wait empty", []string{lost, lost}},
	} {
		for _, known := range []bool{false, true} { // to the API server only, or to the manager
			w := newWorld(t)
			sc := parseScene(t, "Always", tc.words)
			sc.pod.UID, sc.s.Phase = "uid", corev1.PodRunning
			if known {
				w.SetPodStatus(sc.pod, sc.s)
			} else {
				sc.pod.Status = sc.s
			}
			got := w.TerminatePod(sc.pod)
			require.Equal(t, tc.want, allWords(got), name)
			require.Equal(t, corev1.PodFailed, got.Phase, name)
			for _, st := range got.ContainerStatuses {
				if end := st.State.Terminated; end != nil && end.ExitCode == 137 {
					require.Equal(t, "The container could not be located when the pod was terminated", end.Message)
				}
			}
		}
	}
}

func TestTerminatePod_InitContainerFailedAndThenSucceeded(t *testing.T) {
	t.Parallel()
	w, sc := newWorld(t), parseScene(t, "Always", "i:exit0 wait")
	sc.pod.UID, sc.s.Phase = "uid", corev1.PodRunning
	sc.s.InitContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
	w.SetPodStatus(sc.pod, sc.s)
	require.NotNil(t, w.TerminatePod(sc.pod).ContainerStatuses[0].State.Terminated)
}

func TestTerminatePod_InitStatusesOfAnotherSpec(t *testing.T) {
	t.Parallel()
	w, sc := newWorld(t), parseScene(t, "Always", "i:exit0 wait")
	sc.pod.UID = "uid"
	sc.s.InitContainerStatuses[0].Name = "other"
	w.SetPodStatus(sc.pod, sc.s)
	require.NotNil(t, w.TerminatePod(sc.pod).ContainerStatuses[0].State.Waiting)
}

func TestTerminatePod_Phase(t *testing.T) {
	t.Parallel()
	for phase, want := range map[corev1.PodPhase]corev1.PodPhase{
		"Pending": "Failed", "Running": "Failed", "Unknown": "Failed", "bogus": "Failed", "": "Failed",
		"Succeeded": "Succeeded", "Failed": "Failed",
	} {
		w, sc := newWorld(t), parseScene(t, "Always", "run")
		sc.pod.UID, sc.s.Phase, sc.s.Message = "uid", phase, "why"
		w.SetPodStatus(sc.pod, sc.s)
		got := w.TerminatePod(sc.pod)
		require.Equal(t, want, got.Phase, phase)
		require.Equal(t, "why", got.Message)
	}
	w, sc := newWorld(t), parseScene(t, "Always", "run static")
	sc.pod.UID, sc.s.Phase = "uid", corev1.PodRunning
	w.SetPodStatus(sc.pod, sc.s)
	require.Equal(t, corev1.PodRunning, w.TerminatePod(sc.pod).Phase, "the phase of a static pod must be kept")
}

func TestTerminatePod_IsAPermanentChange(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Never", "a")
	end := corev1.PodStatus{Phase: "Succeeded", ContainerStatuses: []corev1.ContainerStatus{{
		Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}},
	}}}
	w.SetPodStatus(pod, end)
	w.TerminatePod(pod)
	require.Len(t, w.changes, 2, "the change must be delivered, because the pod has finished although its status is equal")
	require.True(t, w.changes[1].Finished)
	w.TerminatePod(pod)
	require.Len(t, w.changes, 2)
	end.Message = "late"
	w.SetPodStatus(pod, end)
	require.True(t, w.changes[2].Finished, "the pod must stay finished")
}

// The observed generation of the final status is that of the last reported one.
func TestTerminatePod_ObservedGeneration(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	pod.Generation = 1
	w.SetPodStatus(pod, corev1.PodStatus{Phase: "Running"})
	pod = pod.DeepCopy()
	pod.Generation = 2
	require.Equal(t, int64(1), w.TerminatePod(pod).ObservedGeneration)
	got, _ := w.SetPodStatus(pod, corev1.PodStatus{Phase: "Failed"})
	require.Equal(t, int64(2), got.ObservedGeneration)
}

func TestTerminatePod_NotReady(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a", "b", "c")
	w.SetPodStatus(pod, *full())
	got := w.TerminatePod(pod)
	require.Equal(t, corev1.ConditionFalse, status.Condition(got.Conditions, corev1.ContainersReady).Status)
}
