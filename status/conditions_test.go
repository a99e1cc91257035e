package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// conditionCase is a condition of the pod that the words describe (see scene).
type conditionCase struct {
	name, words string
	phase       corev1.PodPhase
	want        corev1.ConditionStatus
	reason      string
	message     string
}

// conditionScene is a scene in which every container that runs and has started is ready,
// and every init container that has succeeded is ready.
func conditionScene(t *testing.T, tc conditionCase) scene {
	t.Helper()
	sc := parseScene(t, corev1.RestartPolicyNever, tc.words)
	sc.pod.Generation = 3
	sc.s.Phase = tc.phase
	for _, list := range [][]corev1.ContainerStatus{sc.s.InitContainerStatuses, sc.s.ContainerStatuses} {
		for i := range list {
			st := &list[i]
			st.Ready = st.Started != nil && *st.Started
		}
	}
	for i := range sc.s.InitContainerStatuses {
		st := &sc.s.InitContainerStatuses[i]
		if sc.pod.Spec.InitContainers[i].RestartPolicy == nil {
			st.Ready = st.State.Terminated != nil && st.State.Terminated.ExitCode == 0
		}
	}
	return sc
}

func check(t *testing.T, tc conditionCase, kind corev1.PodConditionType, got corev1.PodCondition) {
	t.Helper()
	require.Equal(t, corev1.PodCondition{
		Type: kind, Status: tc.want, Reason: tc.reason, Message: tc.message, ObservedGeneration: 3,
	}, got, tc.name)
}

func TestContainersReady(t *testing.T) {
	t.Parallel()
	const notReady, running = status.ReasonContainersNotReady, corev1.PodRunning
	for _, tc := range []conditionCase{
		{"no statuses", "none", running, "False", status.ReasonUnknownContainerStatuses, ""},
		{"no statuses of a failed pod", "none", corev1.PodFailed, "False", status.ReasonUnknownContainerStatuses, ""},
		{"all ready", "run run", running, "True", "", ""},
		{"one unready", "run init", running, "False", notReady, "containers with unready status: [c1]"},
		{"two unready", "wait init", running, "False", notReady, "containers with unready status: [c0 c1]"},
		{"one unknown", "run none", running, "False", notReady, "containers with unknown status: [c1]"},
		{"unknown and unready", "none init none", running, "False", notReady, "containers with unknown status: [c0 c2], containers with unready status: [c1]"},
		{"sidecar ready", "s:run run", running, "True", "", ""},
		{"sidecar unready comes first", "init s:init", running, "False", notReady, "containers with unready status: [c1 c0]"},
		{"sidecar unknown", "s:none run", running, "False", notReady, "containers with unknown status: [c0]"},
		{"a plain init container does not matter", "i:exit1 run", running, "True", "", ""},
		{"succeeded", "exit0", corev1.PodSucceeded, "False", status.ReasonPodCompleted, ""},
		{"succeeded, one unknown", "exit0 none", corev1.PodSucceeded, "False", notReady, "containers with unknown status: [c1], containers with unready status: [c0]"},
		{"failed", "exit1", corev1.PodFailed, "False", status.ReasonPodFailed, ""},
		{"failed while containers still run", "run", corev1.PodFailed, "False", status.ReasonPodFailed, ""},
	} {
		sc := conditionScene(t, tc)
		check(t, tc, corev1.ContainersReady, status.ContainersReady(sc.pod, &sc.s))
		if tc.want == corev1.ConditionFalse { // Ready is then False for the same reason
			check(t, tc, corev1.PodReady, status.Ready(sc.pod, &sc.s))
		}
	}
	none := status.ContainersReady(&corev1.Pod{}, &corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{}})
	require.Equal(t, corev1.ConditionTrue, none.Status, "a pod without containers must be ready")
}

func TestReady_ReadinessGates(t *testing.T) {
	t.Parallel()
	const shut = status.ReasonReadinessGatesNotReady
	for name, tc := range map[string]struct {
		gates      []corev1.PodConditionType
		conditions []corev1.PodCondition
		want       corev1.ConditionStatus
		reason     string
		message    string
	}{
		"none":    {nil, nil, "True", "", ""},
		"open":    {[]corev1.PodConditionType{"a"}, []corev1.PodCondition{{Type: "a", Status: "True"}}, "True", "", ""},
		"missing": {[]corev1.PodConditionType{"a"}, nil, "False", shut, `corresponding condition of pod readiness gate "a" does not exist.`},
		"shut": {
			[]corev1.PodConditionType{"a"},
			[]corev1.PodCondition{{Type: "a", Status: "False"}},
			"False", shut,
			`the status of pod readiness gate "a" is not "True", but False`,
		},
		"both": {
			[]corev1.PodConditionType{"a", "b"},
			[]corev1.PodCondition{{Type: "b", Status: "Unknown"}},
			"False", shut,
			`corresponding condition of pod readiness gate "a" does not exist., the status of pod readiness gate "b" is not "True", but Unknown`,
		},
	} {
		// The sidecar would be unknown if only regular containers were checked.
		sc := conditionScene(t, conditionCase{words: "s:run run", phase: corev1.PodRunning})
		for _, gate := range tc.gates {
			sc.pod.Spec.ReadinessGates = append(sc.pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
		}
		sc.s.Conditions = tc.conditions
		check(t, conditionCase{name: name, want: tc.want, reason: tc.reason, message: tc.message},
			corev1.PodReady, status.Ready(sc.pod, &sc.s))
	}
}

func TestInitialized(t *testing.T) {
	t.Parallel()
	const notDone, pending = status.ReasonContainersNotInitialized, corev1.PodPending
	for _, tc := range []conditionCase{
		{"no init containers", "wait", pending, "True", "", ""},
		{"no init containers, nothing known", "none", pending, "True", "", ""},
		{"nothing known", "i:none none", pending, "False", status.ReasonUnknownContainerStatuses, ""},
		{"one unknown", "i:exit0 i:none wait", pending, "False", notDone, "containers with unknown status: [c1]"},
		{"one running", "i:exit0 i:run wait", pending, "False", notDone, "containers with incomplete status: [c1]"},
		{"unknown and incomplete", "i:run i:none wait", pending, "False", notDone, "containers with unknown status: [c1], containers with incomplete status: [c0]"},
		{"all done", "i:exit0 i:exit0 wait", pending, "True", "", ""},
		{"failed", "i:exit1 wait", corev1.PodFailed, "False", notDone, "containers with incomplete status: [c0]"},
		{"sidecar started", "s:run wait", pending, "True", "", ""},
		{"sidecar not started", "s:init wait", pending, "False", notDone, "containers with incomplete status: [c0]"},
		{"sidecar starts again beside a regular container", "s:init run", corev1.PodRunning, "True", "", ""},
		{"sidecar starts again after a regular container", "s:wait exit1", corev1.PodRunning, "True", "", ""},
		{"succeeded", "i:exit0 exit0", corev1.PodSucceeded, "True", status.ReasonPodCompleted, ""},
		{"succeeded, sidecar stopped", "s:exit1 exit0", corev1.PodSucceeded, "True", status.ReasonPodCompleted, ""},
		{"succeeded, one unknown", "i:none wait", corev1.PodSucceeded, "False", notDone, "containers with unknown status: [c0]"},
	} {
		sc := conditionScene(t, tc)
		check(t, tc, corev1.PodInitialized, status.Initialized(sc.pod, &sc.s))
	}
}

func sandbox(ready runtimeapi.PodSandboxState, mode runtimeapi.NamespaceMode, ip string) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: "s", State: ready, Network: &runtimeapi.PodSandboxNetworkStatus{Ip: ip},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: mode}}},
	}
}

func TestReadyToStartContainers(t *testing.T) {
	t.Parallel()
	const (
		up, down  = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		own, node = runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE
	)
	for name, tc := range map[string]struct {
		host      bool
		sandboxes []*runtimeapi.PodSandboxStatus
		want      corev1.ConditionStatus
	}{
		"no sandbox":                               {want: "False"},
		"a nil sandbox":                            {sandboxes: []*runtimeapi.PodSandboxStatus{nil}, want: "False"},
		"not ready":                                {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(down, own, "10.0.0.1")}, want: "False"},
		"ready without an address":                 {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, own, "")}, want: "False"},
		"ready":                                    {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, own, "10.0.0.1")}, want: "True"},
		"no network information":                   {sandboxes: []*runtimeapi.PodSandboxStatus{{State: up}}, want: "True"},
		"an older sandbox is not ready":            {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, own, "10.0.0.1"), sandbox(down, own, ""), nil}, want: "True"},
		"an older sandbox is ready too":            {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, own, "10.0.0.1"), sandbox(up, own, "10.0.0.2")}, want: "False"},
		"only an older sandbox is ready":           {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(down, own, ""), sandbox(up, own, "10.0.0.2")}, want: "False"},
		"on the node's network":                    {host: true, sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, node, "")}, want: "True"},
		"on its own network instead of the node's": {host: true, sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, own, "10.0.0.1")}, want: "False"},
		"on the node's network instead of its own": {sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(up, node, "10.0.0.1")}, want: "False"},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: tc.host}}
		got := status.ReadyToStartContainers(pod, &podcache.Status{Sandboxes: tc.sandboxes})
		require.Equal(t, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: tc.want}, got, name)
	}
	require.Equal(t, corev1.ConditionFalse, status.ReadyToStartContainers(&corev1.Pod{}, nil).Status)
}

func TestNeedToReconcilePodReadiness(t *testing.T) {
	t.Parallel()
	sc := conditionScene(t, conditionCase{words: "s:run run", phase: corev1.PodRunning})
	pod := sc.pod
	pod.Status = sc.s
	require.False(t, status.NeedToReconcilePodReadiness(pod), "without readiness gates, no sync is necessary")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/y"}}
	require.False(t, status.NeedToReconcilePodReadiness(pod), "without the condition, no sync is necessary")
	pod.Status.Conditions = []corev1.PodCondition{{Type: "x/y", Status: "True"}, {Type: corev1.PodReady, Status: "True"}}
	require.False(t, status.NeedToReconcilePodReadiness(pod), "a sidecar must not cause endless syncs")
	pod.Status.Conditions[0].Status = "False"
	require.True(t, status.NeedToReconcilePodReadiness(pod), "the readiness gate has become ready, so a sync is necessary")
	pod.Status.Conditions[1] = status.Ready(pod, &pod.Status)
	require.False(t, status.NeedToReconcilePodReadiness(pod))
	pod.Status.Conditions[0].Status = "Unknown"
	require.True(t, status.NeedToReconcilePodReadiness(pod), "the message differs, so a sync is necessary")
}
