package status_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func at(seconds int64) time.Time { return time.Unix(1_700_000_000+seconds, 250_000_000) }

func newPod(policy corev1.RestartPolicy, names ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid", Name: "pod", Namespace: "ns", Generation: 2},
		Spec:       corev1.PodSpec{RestartPolicy: policy},
	}
	for _, name := range names {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: "img:1",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		})
	}
	return pod
}

// runningIn returns the runtime state of a pod whose containers, with the given names, all
// run in one sandbox.
func runningIn(names ...string) *podcache.Status {
	s := &podcache.Status{
		UID: "uid", Name: "pod", Namespace: "ns", IPs: []string{"10.0.0.7"},
		Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox(runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.NamespaceMode_POD, "10.0.0.7")},
	}
	for _, name := range names {
		s.Containers = append(s.Containers, container(name, "1", runtimeapi.ContainerState_CONTAINER_RUNNING, 0))
	}
	return s
}

func conditionStatuses(s corev1.PodStatus) map[corev1.PodConditionType]corev1.ConditionStatus {
	out := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range s.Conditions {
		out[c.Type] = c.Status
	}
	return out
}

func TestGenerate_PodLifecycle(t *testing.T) {
	t.Parallel()
	pod := newPod(corev1.RestartPolicyNever, "a", "b")
	in := status.Input{Pod: pod, RuntimeName: "containerd", NodeIPs: []string{"192.168.0.1"}, Now: at(0)}

	s := status.Generate(in) // the runtime state is unknown
	require.Equal(t, corev1.PodPending, s.Phase)
	require.Equal(t, "ContainerCreating", s.ContainerStatuses[0].State.Waiting.Reason)
	require.Equal(t, corev1.PodQOSBurstable, s.QOSClass)
	require.Equal(t, "192.168.0.1", s.HostIP)
	require.Equal(t, int64(2), s.ObservedGeneration)
	require.Equal(t, at(0).Truncate(time.Second).Unix(), s.StartTime.Unix())

	in.Previous, in.Runtime, in.Now = s, runningIn("a", "b"), at(5)
	s = status.Generate(in)
	require.Equal(t, corev1.PodRunning, s.Phase)
	require.Equal(t, []corev1.PodIP{{IP: "10.0.0.7"}}, s.PodIPs)
	require.Equal(t, map[corev1.PodConditionType]corev1.ConditionStatus{
		"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "True", "ContainersReady": "True", "PodScheduled": "True",
	}, conditionStatuses(s))
	require.Equal(t, at(5).Unix(), status.Condition(s.Conditions, corev1.PodReady).LastTransitionTime.Unix())
	require.Equal(t, at(0).Unix(), status.Condition(s.Conditions, corev1.PodScheduled).LastTransitionTime.Unix())
	require.Equal(t, at(0).Unix(), s.StartTime.Unix())

	in.Previous, in.Now, in.Terminal = s, at(9), true
	in.Runtime = &podcache.Status{UID: "uid", Containers: []*runtimeapi.ContainerStatus{
		container("a", "1", runtimeapi.ContainerState_CONTAINER_EXITED, 0),
		container("b", "1", runtimeapi.ContainerState_CONTAINER_EXITED, 3),
	}}
	s = status.Generate(in)
	require.Equal(t, corev1.PodFailed, s.Phase)
	require.Equal(t, "10.0.0.7", s.PodIP, "the addresses of a terminated pod must be kept")
	require.Equal(t, status.ReasonPodFailed, status.Condition(s.Conditions, corev1.PodReady).Reason)
	require.Equal(t, int32(3), s.ContainerStatuses[1].State.Terminated.ExitCode)

	in.Previous, in.Terminal, in.Runtime = s, false, runningIn("a", "b")
	require.Equal(t, corev1.PodFailed, status.Generate(in).Phase, "a terminated pod must stay terminated")
}

func TestGenerate_Phase(t *testing.T) {
	t.Parallel()
	stopped := func(code int32) *podcache.Status {
		return &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", runtimeapi.ContainerState_CONTAINER_EXITED, code)}}
	}
	said := func(phase corev1.PodPhase, reason string) corev1.PodStatus {
		return corev1.PodStatus{Phase: phase, Reason: reason, Message: reason}
	}
	creating := &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "2", created, 0)}}
	for name, tc := range map[string]struct {
		policy         corev1.RestartPolicy
		api, previous  corev1.PodStatus
		runtime        *podcache.Status
		terminal       bool
		phase          corev1.PodPhase
		reasonMessages string
	}{
		"a pod whose container is lost stays Running":             {"Always", said("Running", ""), said("Running", ""), &podcache.Status{}, false, "Running", ""},
		"running reverts to pending":                              {"Always", said("Running", ""), said("Running", ""), creating, false, "Pending", ""},
		"nothing known of a new pod":                              {"Always", said("", ""), said("", ""), &podcache.Status{}, false, "Pending", ""},
		"previous phase is terminal":                              {"Always", said("Running", ""), said("Failed", "Evicted"), runningIn("a"), false, "Failed", "Evicted"},
		"phase in the API server is terminal":                     {"Always", said("Failed", "Evicted"), said("Running", ""), runningIn("a"), false, "Failed", ""},
		"phase in the API server is terminal, no previous status": {"Always", said("Succeeded", "Done"), said("", ""), runningIn("a"), false, "Succeeded", "Done"},
		"the API's end weighs most":                               {"Never", said("Failed", "x"), said("Succeeded", "y"), stopped(0), false, "Failed", ""},
		"reason is kept with its phase":                           {"Never", said("", ""), said("Running", "r"), runningIn("a"), false, "Running", "r"},
		"reason falls back on the API's":                          {"Never", said("Running", "api"), said("Running", ""), runningIn("a"), false, "Running", "api"},
		"reason is dropped with its phase":                        {"Never", said("Running", "api"), said("Running", "r"), stopped(0), false, "Succeeded", ""},
		"terminal":                                                {"Always", said("", ""), said("Running", ""), stopped(0), true, "Succeeded", ""},
		"terminal, runtime unknown":                               {"Always", said("", ""), said("Running", ""), nil, true, "Failed", ""},
	} {
		pod := newPod(tc.policy, "a")
		pod.Status = tc.api
		if tc.previous.Phase == corev1.PodRunning {
			tc.previous.ContainerStatuses = []corev1.ContainerStatus{{
				Name: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}}
		}
		s := status.Generate(status.Input{Pod: pod, Previous: tc.previous, Runtime: tc.runtime, Terminal: tc.terminal})
		require.Equal(t, tc.phase, s.Phase, name)
		require.Equal(t, tc.reasonMessages, s.Reason, name)
		require.Equal(t, tc.reasonMessages, s.Message, name)
		if podspec.IsTerminal(s.Phase) {
			require.Equal(t, corev1.ConditionFalse, status.Condition(s.Conditions, corev1.PodReady).Status, name)
		}
	}
}

func TestGenerate_KeepsConditionsOfOtherWritersAndEvents(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "gate"}}
	pod.Status.Conditions = []corev1.PodCondition{
		{Type: "gate", Status: "True", LastTransitionTime: metav1.Time{Time: at(-9)}},
		{Type: corev1.PodReady, Status: "False"},
		{Type: corev1.DisruptionTarget, Status: "False"},
	}
	previous := corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
		{Type: "gate", Status: "False"},
		{Type: corev1.DisruptionTarget, Status: "True", Reason: "TerminationByKubelet", LastTransitionTime: metav1.Time{Time: at(-3)}},
		{Type: corev1.PodResizePending, Status: "True", LastTransitionTime: metav1.Time{Time: at(-2)}},
	}}
	s := status.Generate(status.Input{Pod: pod, Previous: previous, Runtime: runningIn("a"), Now: at(0)})
	require.Equal(t, map[corev1.PodConditionType]corev1.ConditionStatus{
		"gate": "True", "DisruptionTarget": "True", "PodResizePending": "True", "PodReadyToStartContainers": "True",
		"Initialized": "True", "Ready": "True", "ContainersReady": "True", "PodScheduled": "True",
	}, conditionStatuses(s))
	require.Equal(t, at(-9).Unix(), status.Condition(s.Conditions, "gate").LastTransitionTime.Unix())
	require.Equal(t, at(-3).Unix(), status.Condition(s.Conditions, corev1.DisruptionTarget).LastTransitionTime.Unix())
	require.Equal(t, at(-2).Unix(), status.Condition(s.Conditions, corev1.PodResizePending).LastTransitionTime.Unix())
}

func TestGenerate_RestartedAgentKeepsTheStatus(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a", "b")
	in := status.Input{Pod: pod, Runtime: runningIn("a", "b"), RuntimeName: "containerd", Now: at(0)}
	before := status.Generate(in)
	in.Previous, in.Runtime, in.Now = before, nil, at(60)
	after := status.Generate(in)
	require.True(t, status.Equal(pod, &before, &after))
	require.Equal(t, before, after)
}

// A container that could not be inspected may still exist.
func TestGenerate_StaleStatusKeepsMissingContainers(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a", "b")
	in := status.Input{Pod: pod, Runtime: runningIn("a", "b"), RuntimeName: "containerd", Now: at(0)}
	in.Runtime.IPs = []string{"10.0.0.1"}
	before := status.Generate(in)
	partly := *in.Runtime
	partly.Stale, partly.Containers = true, partly.Containers[:1]
	for name, stale := range map[string]*podcache.Status{"nothing known": {Stale: true}, "one of two known": &partly} {
		in.Previous, in.Runtime = before, stale
		require.Equal(t, before, status.Generate(in), name)
	}
	in.Terminal = true
	require.Nil(t, status.Generate(in).ContainerStatuses[1].State.Running, "a terminated pod must have no running containers")
}

// A new attempt of an init container, or a restart of all containers, does not make
// Initialized False again.
func TestGenerate_InitializedStaysTrue(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}}
	in := status.Input{Pod: pod, Runtime: runningIn("i"), Previous: corev1.PodStatus{Phase: corev1.PodPending}}
	require.Equal(t, corev1.ConditionFalse, conditionStatuses(status.Generate(in))[corev1.PodInitialized])
	in.Previous.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
	got := status.Generate(in)
	require.Equal(t, corev1.ConditionTrue, conditionStatuses(got)[corev1.PodInitialized])
	require.Empty(t, status.Condition(got.Conditions, corev1.PodInitialized).Message)
}

func TestGenerate_KeepsADisruptionOfAnotherWriter(t *testing.T) {
	t.Parallel()
	disrupted := func(reason string) []corev1.PodCondition {
		return []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reason}}
	}
	pod := newPod("Always", "a")
	pod.Status.Conditions = disrupted("EvictionByEvictionAPI")
	in := status.Input{Pod: pod, Runtime: runningIn("a"), Previous: corev1.PodStatus{Phase: corev1.PodRunning}}
	require.Equal(t, "EvictionByEvictionAPI", status.Condition(status.Generate(in).Conditions, corev1.DisruptionTarget).Reason)
	in.Previous.Conditions = disrupted("TerminationByKubelet")
	got := status.Generate(in)
	require.Equal(t, "TerminationByKubelet", status.Condition(got.Conditions, corev1.DisruptionTarget).Reason)
	got.Conditions = slices.DeleteFunc(got.Conditions, func(c corev1.PodCondition) bool { return c.Type != corev1.DisruptionTarget })
	require.Len(t, got.Conditions, 1)
}

// Two terminations without container IDs are not the same termination.
func TestGenerate_LostContainerGetsNoMessageOfAnother(t *testing.T) {
	t.Parallel()
	in := status.Input{
		Pod:     newPod("Always", "a"),
		Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", unknown, 0)}},
		Previous: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "a", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "of before"}},
		}}},
		TerminationMessage: func(*runtimeapi.ContainerStatus) string { return "" },
	}
	require.Equal(t, "The container could not be located when the pod was terminated", status.Generate(in).ContainerStatuses[0].State.Terminated.Message)
}

func TestGenerate_NewSandboxIsNotInitialized(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	seen := runningIn("s")
	seen.Containers = append(seen.Containers, container("a", "1", runtimeapi.ContainerState_CONTAINER_EXITED, 1))
	probes := func(string, string) (_, _ status.ProbeResult) { return status.ProbeUnknown, status.NoProbe }
	for box, want := range map[string]corev1.PodPhase{"another": corev1.PodPending, seen.Sandboxes[0].Id: corev1.PodRunning} {
		seen.SandboxOf = map[string]string{seen.Containers[1].Id: box}
		require.Equal(t, want, status.Generate(status.Input{Pod: pod, Runtime: seen, Probes: probes}).Phase)
	}
}

func TestGenerate_Addresses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		host          bool
		phase         corev1.PodPhase // the previous phase; default Running
		runtime, node []string
		previous      []corev1.PodIP
		want          []corev1.PodIP
	}{
		"none":                                   {},
		"one":                                    {runtime: []string{"10.0.0.1"}, want: []corev1.PodIP{{IP: "10.0.0.1"}}},
		"one address of each family":             {runtime: []string{"10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2"}, want: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}},
		"the node's family first":                {runtime: []string{"10.0.0.1", "fd00::1"}, node: []string{"fd00::9"}, want: []corev1.PodIP{{IP: "fd00::1"}, {IP: "10.0.0.1"}}},
		"canonical":                              {runtime: []string{"FD00:0:0::1", "::ffff:10.0.0.1"}, want: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}},
		"nonsense is left out":                   {runtime: []string{"", "x", "10.0.0.1"}, node: []string{"y"}, want: []corev1.PodIP{{IP: "10.0.0.1"}}},
		"a lost sandbox has no address":          {previous: []corev1.PodIP{{IP: "10.0.0.1"}}},
		"a pod that has ended keeps its address": {phase: corev1.PodFailed, previous: []corev1.PodIP{{IP: "10.0.0.1"}}, want: []corev1.PodIP{{IP: "10.0.0.1"}}},
		"host network":                           {host: true, node: []string{"fd00::9", "192.168.0.1"}, want: []corev1.PodIP{{IP: "fd00::9"}, {IP: "192.168.0.1"}}},
		"host network, node's address changed":   {host: true, node: []string{"192.168.0.2"}, previous: []corev1.PodIP{{IP: "192.168.0.1"}}, want: []corev1.PodIP{{IP: "192.168.0.2"}}},
		"host network, node's address unknown":   {host: true, previous: []corev1.PodIP{{IP: "192.168.0.1"}}, want: []corev1.PodIP{{IP: "192.168.0.1"}}},
		"host network, address of the runtime":   {host: true, runtime: []string{"192.168.0.7"}, node: []string{"fd00::9", "192.168.0.1"}, want: []corev1.PodIP{{IP: "192.168.0.7"}}},
		"host network, the node's other family":  {host: true, runtime: []string{"192.168.0.7"}, node: []string{"192.168.0.1", "fd00::9"}, want: []corev1.PodIP{{IP: "192.168.0.7"}, {IP: "fd00::9"}}},
	} {
		pod := newPod("Always", "a")
		pod.Spec.HostNetwork = tc.host
		s := status.Generate(status.Input{
			Pod: pod, Runtime: &podcache.Status{IPs: tc.runtime}, NodeIPs: tc.node,
			Previous: corev1.PodStatus{Phase: cmp.Or(tc.phase, corev1.PodRunning), PodIPs: tc.previous},
		})
		require.Equal(t, tc.want, s.PodIPs, name)
		if len(tc.want) > 0 {
			require.Equal(t, tc.want[0].IP, s.PodIP, name)
		}
	}
}

// inputs returns new inputs, ordinary and unusual.
func inputs() map[string]status.Input {
	pod := newPod("OnFailure", "b", "a")
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: "x", Status: "True", LastProbeTime: metav1.Time{Time: at(1)}}}
	previous := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &metav1.Time{Time: at(1)}, PodIPs: []corev1.PodIP{{IP: "10.0.0.9"}},
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: at(2)}, Message: "\xff"}}},
			{Name: "b", VolumeMounts: []corev1.VolumeMountStatus{{Name: "v"}}, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: at(2)}},
			}},
		},
	}
	odd := &podcache.Status{
		Sandboxes: []*runtimeapi.PodSandboxStatus{{State: runtimeapi.PodSandboxState_SANDBOX_READY}, nil},
		Containers: []*runtimeapi.ContainerStatus{
			nil,
			{},
			{Labels: map[string]string{crilabels.ContainerName: "a"}, State: 99},
			{Labels: map[string]string{crilabels.ContainerName: "b"}, User: &runtimeapi.ContainerUser{}, State: runtimeapi.ContainerState_CONTAINER_EXITED},
		},
	}
	return map[string]status.Input{
		"lost": {Pod: pod.DeepCopy(), Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{
			container("a", "2", unknown, 0), container("a", "1", unknown, 0),
		}}, Previous: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "a", ContainerID: "a2", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}},
		"empty pod":       {Pod: &corev1.Pod{}},
		"runtime unknown": {Pod: pod.DeepCopy(), Previous: *previous.DeepCopy(), Now: at(3)},
		"terminal":        {Pod: pod.DeepCopy(), Previous: *previous.DeepCopy(), Terminal: true},
		"running":         {Pod: pod.DeepCopy(), Previous: *previous.DeepCopy(), Runtime: runningIn("a", "b", "s", "e", "i"), Now: at(3)},
		"odd messages":    {Pod: pod.DeepCopy(), Previous: *previous.DeepCopy(), Runtime: odd, Waiting: map[string]corev1.ContainerStateWaiting{"b": {Reason: "r"}}},
		"odd and unsaid":  {Pod: pod.DeepCopy(), Runtime: odd},
	}
}

func TestGenerate_InputIsNeitherModifiedNorShared(t *testing.T) {
	t.Parallel()
	untouched := inputs()
	for name, in := range inputs() {
		s := status.Generate(in)
		want := s.DeepCopy()
		require.Equal(t, untouched[name], in, name)
		// Changes of the input do not change the status now.
		for i := range in.Pod.Spec.Containers {
			in.Pod.Spec.Containers[i].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("9")
		}
		for i := range in.Previous.ContainerStatuses {
			st := &in.Previous.ContainerStatuses[i]
			for _, end := range []*corev1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
				if end != nil {
					end.ExitCode = 77
				}
			}
			if len(st.VolumeMounts) > 0 {
				st.VolumeMounts[0].Name = "w"
			}
		}
		if in.Previous.StartTime != nil {
			in.Previous.StartTime.Time = at(1000)
		}
		require.Equal(t, want, &s, name)
	}
}

func TestGenerate_Idempotent(t *testing.T) {
	t.Parallel()
	for name, in := range inputs() {
		first := status.Generate(in)
		in.Previous = first
		if !in.Now.IsZero() {
			in.Now = in.Now.Add(time.Hour)
		}
		second := status.Generate(in)
		require.Equal(t, first.Phase, second.Phase, name)
		if name != "odd messages" { // in this input, the back-off changes the container's age by design
			require.True(t, status.Equal(in.Pod, &first, &second), name)
		}
	}
}
