package status_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func readiness(s corev1.PodStatus) string {
	out := string(status.Condition(s.Conditions, corev1.PodReady).Status)
	if c := status.Condition(s.Conditions, corev1.ContainersReady); c == nil || string(c.Status) != out {
		out += ", but ContainersReady is not"
	}
	return out
}

func TestSetContainerReadiness(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a", "b")
	require.False(t, w.SetContainerReadiness(pod.UID, "containerd://a1", true), "the pod has no status")
	s := status.Generate(status.Input{Pod: pod, Runtime: runningIn("a", "b"), RuntimeName: "containerd"})
	w.SetPodStatus(pod, s)
	require.False(t, w.SetContainerReadiness(pod.UID, "containerd://a1", true), "an equal result must not be a change")
	require.False(t, w.SetContainerReadiness(pod.UID, "containerd://a0", false), "a result of the previous container must be ignored")
	require.False(t, w.SetContainerReadiness(pod.UID, "", false))

	w.clock.Step(time.Minute)
	for i, id := range []string{"containerd://a1", "b1"} {
		require.True(t, w.SetContainerReadiness(pod.UID, id, false))
		got, _ := w.GetPodStatus(pod.UID)
		require.Equal(t, "False", readiness(got))
		require.False(t, got.ContainerStatuses[i].Ready)
	}
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "containers with unready status: [a b]", status.Condition(got.Conditions, corev1.PodReady).Message)
	require.Equal(t, at(60).Unix(), readySince(got).Unix())
	require.True(t, w.SetContainerReadiness(pod.UID, "a1", true))
	got, _ = w.GetPodStatus(pod.UID)
	require.Equal(t, "False", readiness(got), "one ready container is not enough")
	require.True(t, w.SetContainerReadiness(pod.UID, "b1", true))
	got, _ = w.GetPodStatus(pod.UID)
	require.Equal(t, "True", readiness(got))
	require.Len(t, w.changes, 5)
	require.Equal(t, "True", readiness(w.changes[0].New), "stored changes must not be modified")
}

// If a result equals the previous result, the conditions are not computed again.
func TestSetContainerReadiness_SameResultChangesNothing(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: "True", Reason: "ByOthers"}
	w.SetPodStatus(pod, corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{ready}, ContainerStatuses: []corev1.ContainerStatus{
		{Name: "a", ContainerID: "x", Ready: false, Started: new(false)},
	}})
	require.False(t, w.SetContainerReadiness(pod.UID, "x", false))
	require.False(t, w.SetContainerStartup(pod.UID, "x", false))
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "ByOthers", got.Conditions[0].Reason)
	require.Len(t, got.Conditions, 1)
}

// A probe result is applied to the newest pod, of which no status may have been set yet.
func TestSetContainerReadiness_UsesTheNewestPod(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	newest := pod.DeepCopy()
	pod.Generation, newest.Generation = 1, 2
	m, err := status.New(status.Config{Pod: func(types.UID) (*corev1.Pod, bool) { return newest, true }})
	require.NoError(t, err)
	m.SetPodStatus(pod, corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "x"}}})
	require.True(t, m.SetContainerReadiness(pod.UID, "x", true))
	got, _ := m.GetPodStatus(pod.UID)
	require.Equal(t, int64(2), status.Condition(got.Conditions, corev1.PodReady).ObservedGeneration)
	require.Equal(t, int64(1), got.ObservedGeneration, "this pod had no status before")
}

func TestSetContainerReadiness_AddsTheConditions(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{Name: "a", ContainerID: "x"}}})
	require.True(t, w.SetContainerReadiness(pod.UID, "x", true))
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "True", readiness(got))
}

func TestSetContainerReadiness_SidecarWithAReadinessGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := parseScene(t, "Always", "s:run run").pod
	pod.UID = "uid"
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/y"}}
	s := parseScene(t, "Always", "s:run run").s
	s.Phase = "Running"
	s.Conditions = []corev1.PodCondition{{Type: "x/y", Status: "True"}}
	s.InitContainerStatuses[0].ContainerID, s.ContainerStatuses[0].ContainerID = "side", "main"
	w.SetPodStatus(pod, s)
	require.True(t, w.SetContainerReadiness(pod.UID, "main", true))
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "False", readiness(got))
	require.True(t, w.SetContainerReadiness(pod.UID, "side", true))
	got, _ = w.GetPodStatus(pod.UID)
	require.Equal(t, "True", readiness(got), "kubernetes#86485")
}

func TestSetContainerStartup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := parseScene(t, "Always", "s:init wait").pod
	pod.UID = "uid"
	require.False(t, w.SetContainerStartup(pod.UID, "side", true))
	s := parseScene(t, "Always", "s:init wait").s
	s.InitContainerStatuses[0].ContainerID, s.InitContainerStatuses[0].Started = "side", nil
	s.Conditions = []corev1.PodCondition{status.Initialized(pod, &s)}
	w.SetPodStatus(pod, s)
	require.True(t, w.SetContainerStartup(pod.UID, "side", false), "nil must differ from false")
	require.False(t, w.SetContainerStartup(pod.UID, "side", false))
	require.True(t, w.SetContainerStartup(pod.UID, "side", true))
	got, _ := w.GetPodStatus(pod.UID)
	require.True(t, *got.InitContainerStatuses[0].Started)
	require.Equal(t, corev1.ConditionTrue, status.Condition(got.Conditions, corev1.PodInitialized).Status)
	require.Nil(t, status.Condition(got.Conditions, corev1.PodReady), "without a status, the condition must be missing")
}

func TestSetContainerStartup_EqualsGenerate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		readiness *corev1.Probe
		result    status.ProbeResult
	}{
		{"no readiness probe", nil, status.NoProbe},
		{"a readiness probe that has not run", &corev1.Probe{}, status.ProbeUnknown},
	} {
		w, pod := newWorld(t), newPod("Always", "a")
		pod.Spec.Containers[0].StartupProbe, pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}, tt.readiness
		generated := func(startup status.ProbeResult) corev1.PodStatus {
			return status.Generate(status.Input{
				Pod: pod, Runtime: runningIn("a"), RuntimeName: "containerd",
				Probes: func(string, string) (_, readiness status.ProbeResult) { return startup, tt.result },
			})
		}
		w.SetPodStatus(pod, generated(status.ProbeUnknown))
		for _, startup := range []status.ProbeResult{status.ProbePassed, status.ProbeFailed} {
			require.True(t, w.SetContainerStartup(pod.UID, "a1", startup == status.ProbePassed), tt.name)
			before, _ := w.GetPodStatus(pod.UID)
			_, changed := w.SetPodStatus(pod, generated(startup))
			after, _ := w.GetPodStatus(pod.UID)
			require.False(t, changed, "%s:\n%v\n%v", tt.name, before, after)
		}
	}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, uid := range []types.UID{"2", "1"} {
		w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, simple("Running", "True"))
	}
	var told []string
	tell := func(c status.Change) {
		told = append(told, string(c.Pod.UID)+" "+string(c.Old.Phase)+">"+string(c.New.Phase))
	}
	cancel := w.Subscribe(status.Observer{
		StatusChanged: tell,
		UpdateRefused: func(pod *corev1.Pod, _ error) { told = append(told, string(pod.UID)+" refused") },
		StatusRemoved: func(uid types.UID) { told = append(told, string(uid)+" removed") },
	})
	w.Subscribe(status.Observer{}) // an observer without functions
	require.Equal(t, []string{"1 >Running", "2 >Running"}, told, "the current statuses must be delivered")
	told = nil
	w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}}, simple("Failed", "False"))
	w.RemoveOrphanedStatuses(func(uid types.UID) bool { return uid == "2" })
	ended := parseScene(t, "Never", "exit0")
	w.SetPodStatus(ended.pod, ended.s)
	w.SetPodStatus(ended.pod, parseScene(t, "Never", "run").s)
	require.Equal(t, []string{"1 Running>Failed", "1 removed", " >", " refused"}, told)
	cancel()
	cancel()
	told = nil
	w.SetPodStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}}, simple("Failed", "False"))
	require.Empty(t, told)
}

func TestObserver_ReportsEachTerminationOnce(t *testing.T) {
	t.Parallel()
	var told []status.ContainerTermination
	m, err := status.New(status.Config{Observer: status.Observer{
		ContainerTerminated: func(e status.ContainerTermination) { told = append(told, e) },
	}})
	require.NoError(t, err)
	scene := parseScene(t, "Always", "i:exit0 s:exit3 run exit1")
	pod := scene.pod
	pod.Status = *scene.s.DeepCopy()
	pod.Status.InitContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	pod.Status.ContainerStatuses = nil
	scene.s.EphemeralContainerStatuses = []corev1.ContainerStatus{containerStatus(t, "debug", "exit2")}
	scene.s.ContainerStatuses[1].State.Terminated.Reason = "Error"
	for range 2 {
		m.SetPodStatus(pod, scene.s)
		scene.s.Message = "another change"
	}
	require.Equal(t, []status.ContainerTermination{
		{Pod: pod, Name: "c1", Type: status.ContainerTypeInit, ExitCode: 3},
		{Pod: pod, Name: "c3", Type: status.ContainerTypeRegular, ExitCode: 1, Reason: "Error"},
		{Pod: pod, Name: "debug", Type: status.ContainerTypeEphemeral, ExitCode: 2},
	}, told, "c0 must not be reported again, because the API server had its termination")
	told = nil
	m.SetPodStatus(pod, parseScene(t, "Always", "i:exit0 s:run run run").s)
	m.SetPodStatus(pod, parseScene(t, "Always", "i:exit0 s:run run exit1").s)
	require.Len(t, told, 1, "the termination after a restart must be reported separately")
}

func TestManager_TranslatesMirrorUIDs(t *testing.T) {
	t.Parallel()
	m, err := status.New(status.Config{TranslateUID: func(uid types.UID) types.UID {
		if uid == "mirror" {
			return "uid"
		}
		return uid
	}})
	require.NoError(t, err)
	pod := newPod("Always", "a")
	m.SetPodStatus(pod, status.Generate(status.Input{Pod: pod, Runtime: runningIn("a")}))
	s, ok := m.GetPodStatus("mirror")
	require.True(t, ok)
	require.Equal(t, "True", readiness(s))
	require.True(t, m.SetContainerReadiness("mirror", "a1", false))
}

func TestManager_DeletionIsOneChange(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, simple("Running", "True"))
	deleted := pod.DeepCopy()
	deleted.DeletionTimestamp = &metav1.Time{Time: at(1)}
	_, changed := w.SetPodStatus(deleted, simple("Running", "True"))
	require.True(t, changed)
	_, changed = w.SetPodStatus(deleted.DeepCopy(), simple("Running", "True"))
	require.False(t, changed)
}

func TestSetPodResizePending(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	require.False(t, w.ClearPodResizePending(pod.UID))
	require.True(t, w.SetPodResizePending(pod.UID, "Whatever", "no room", 1), "a pending resize may be set before a status")
	w.SetPodStatus(pod, simple("Running", "True"))
	shown := func() *corev1.PodCondition {
		s, _ := w.GetPodStatus(pod.UID)
		return status.Condition(s.Conditions, corev1.PodResizePending)
	}
	require.Equal(t, "Deferred", shown().Reason)
	w.clock.Step(time.Minute)
	require.False(t, w.SetPodResizePending(pod.UID, "Deferred", "still no room", 1))
	pending, inProgress := w.ResizeConditions(pod.UID)
	require.Nil(t, inProgress)
	require.Equal(t, &corev1.PodCondition{
		Type: "PodResizePending", Status: "True", Reason: "Deferred", Message: "still no room", ObservedGeneration: 1,
		LastProbeTime:      metav1.Time{Time: at(60).Truncate(time.Second)},
		LastTransitionTime: metav1.Time{Time: at(0).Truncate(time.Second)},
	}, pending)
	require.Equal(t, pending, shown())
	require.True(t, w.SetPodResizePending(pod.UID, "Deferred", "still no room", 2), "a change of the generation must be a change")
	require.True(t, w.SetPodResizePending(pod.UID, corev1.PodReasonInfeasible, "never", 2), "a change of the reason must be a change")
	require.Equal(t, at(60).Unix(), shown().LastTransitionTime.Unix())
	counts, running := w.CountResizes()
	require.Equal(t, map[string]int{"Infeasible": 1}, counts)
	require.Zero(t, running)

	w.SetPodStatus(pod, simple("Running", "False"))
	require.NotNil(t, shown(), "a status without the condition must not remove it")
	stale, _ := w.GetPodStatus(pod.UID)
	require.True(t, w.ClearPodResizePending(pod.UID))
	require.Nil(t, shown())
	stale.Message = "said a little later"
	w.SetPodStatus(pod, stale)
	require.Nil(t, shown(), "a status with an old condition must not restore it")
}

func TestSetPodResizeInProgress(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	w.SetPodStatus(pod, simple("Running", "True"))
	require.True(t, w.SetPodResizeInProgress(pod.UID, "", "", 1))
	require.False(t, w.SetPodResizeInProgress(pod.UID, "", "", 2), "the generation must be kept")
	require.True(t, w.SetPodResizeInProgress(pod.UID, corev1.PodReasonError, "cgroup", 2))
	require.False(t, w.SetPodResizeInProgress(pod.UID, "", "", 2), "the error must be kept")
	_, got := w.ResizeConditions(pod.UID)
	require.Equal(t, []any{"Error", "cgroup", int64(1)}, []any{got.Reason, got.Message, got.ObservedGeneration})
	_, running := w.CountResizes()
	require.Equal(t, 1, running)
	require.True(t, w.ClearPodResizeInProgress(pod.UID))
	require.False(t, w.ClearPodResizeInProgress(pod.UID))
	require.True(t, w.SetPodResizeInProgress(pod.UID, "", "", 2))

	w.SetPodStatus(pod, simple("Failed", "False"))
	_, got = w.ResizeConditions(pod.UID)
	require.Nil(t, got, "a terminated pod must have no resize condition")
	require.False(t, w.SetPodResizeInProgress(pod.UID, "", "", 2))
	require.False(t, w.SetPodResizePending(pod.UID, "", "", 2))
	require.Equal(t, 1, w.RemoveOrphanedStatuses(func(types.UID) bool { return false }))
}

func TestResize_SurvivesARestart(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodResizePending, Status: "True", Reason: "Deferred", ObservedGeneration: 2},
		{Type: corev1.PodResizeInProgress, Status: "True"},
	}
	w.SetPodStatus(pod, simple("Running", "True"))
	pending, inProgress := w.ResizeConditions(pod.UID)
	require.NotNil(t, pending)
	require.NotNil(t, inProgress)
	require.False(t, w.SetPodResizePending(pod.UID, "Deferred", "", 2), "the resize must not be announced again")
	s, _ := w.GetPodStatus(pod.UID)
	require.Len(t, s.Conditions, 3)
}

// A resize that ends before the first status after a restart is not restored.
func TestResize_MayEndBeforeTheFirstStatus(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodResizePending, Status: "True", Reason: "Deferred", ObservedGeneration: 2},
		{Type: corev1.PodResizeInProgress, Status: "True"},
	}
	m, err := status.New(status.Config{Pod: func(types.UID) (*corev1.Pod, bool) { return pod, true }})
	require.NoError(t, err)
	pending, inProgress := m.ResizeConditions(pod.UID)
	require.NotNil(t, pending)
	require.NotNil(t, inProgress)
	require.False(t, m.SetPodResizePending(pod.UID, "Deferred", "", 2), "the resize must not be announced again")
	require.True(t, m.ClearPodResizeInProgress(pod.UID))
	require.True(t, m.ClearPodResizePending(pod.UID))
	require.False(t, m.ClearPodResizePending(pod.UID))
	s, _ := m.SetPodStatus(pod, simple("Running", "True"))
	require.Len(t, s.Conditions, 1)
	require.True(t, m.SetPodResizePending(pod.UID, "Deferred", "", 2))
}

// The containers of an evicted pod may have exited with code 0. The pod has failed
// nevertheless, also after a restart of the agent.
func TestManager_EvictionSurvivesARestart(t *testing.T) {
	t.Parallel()
	pod := newPod("Never", "a")
	evicted := corev1.PodStatus{Phase: "Failed", Reason: "Evicted", Message: "The node was low on resource: memory."}
	m, err := status.New(status.Config{Saved: func(types.UID) (corev1.PodStatus, bool) { return evicted, true }})
	require.NoError(t, err)
	in := status.Input{Pod: pod, Previous: evicted, Terminal: true}
	in.Runtime = &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", exited, 0)}}
	s, _ := m.SetPodStatus(pod, status.Generate(in))
	require.Equal(t, []string{"Failed", "Evicted", evicted.Message}, []string{string(s.Phase), s.Reason, s.Message})
}

func TestTerminatePod_StaticPodKeepsItsPhase(t *testing.T) {
	t.Parallel()
	w, pod := newWorld(t), newPod("Always", "a")
	pod.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
	w.SetPodStatus(pod, simple("Running", "True"))
	require.Equal(t, corev1.PodRunning, w.TerminatePod(pod).Phase, "kubernetes#116484")
	require.True(t, w.changes[1].Finished)
}

func TestManager_CopiesResourceClaimStatuses(t *testing.T) {
	t.Parallel()
	w, pod, s := newWorld(t), newPod("Always", "a"), simple("Running", "True")
	s.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: new("claim")}}
	w.SetPodStatus(pod, s)
	*s.ResourceClaimStatuses[0].ResourceClaimName = "spoilt"
	got, _ := w.GetPodStatus(pod.UID)
	require.Equal(t, "claim", *got.ResourceClaimStatuses[0].ResourceClaimName)
}
