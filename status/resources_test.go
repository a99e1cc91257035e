package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func quantities(cpu, memory string) corev1.ResourceList {
	if cpu == "" && memory == "" {
		return nil
	}
	out := corev1.ResourceList{}
	if cpu != "" {
		out[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		out[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return out
}

func amount(list corev1.ResourceList, name corev1.ResourceName) string {
	q := list[name]
	return q.String()
}

func TestGenerate_ResourcesEnforcedByTheRuntime(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name                               string
		state                              runtimeapi.ContainerState
		requestCPU, limitCPU, limitMemory  string // in the spec
		enforced                           *runtimeapi.LinuxContainerResources
		before                             corev1.ResourceList // previously reported limits
		wantRequest, wantLimit, wantMemory string
	}{
		{"the runtime reports nothing", running, "100m", "200m", "64Mi", nil, nil, "100m", "200m", "64Mi"},
		{"the runtime reports what the spec requires", running, "100m", "200m", "64Mi", &runtimeapi.LinuxContainerResources{CpuShares: 102, CpuQuota: 20000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20}, nil, "100m", "200m", "64Mi"},
		{"a resize is under way", running, "1", "2", "128Mi", &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 100000, CpuPeriod: 100000, MemoryLimitInBytes: 64 << 20}, nil, "500m", "1", "64Mi"},
		{"an exited container shows the spec", exited, "1", "2", "128Mi", &runtimeapi.LinuxContainerResources{CpuShares: 512, MemoryLimitInBytes: 64 << 20}, nil, "1", "2", "128Mi"},
		{"values at the runtime's minimum", running, "1m", "5m", "64Mi", &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: 1000, CpuPeriod: 100000}, nil, "1m", "5m", "64Mi"},
		{"little now, more before", running, "100m", "200m", "", &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuQuota: 1000, CpuPeriod: 100000}, nil, "2m", "10m", "0"},
		{"the previous limits stay if the runtime reports none", running, "1", "2", "128Mi", &runtimeapi.LinuxContainerResources{}, quantities("700m", "32Mi"), "1", "700m", "32Mi"},
		{"shares too few to count", running, "100m", "200m", "", &runtimeapi.LinuxContainerResources{CpuShares: 1}, nil, "100m", "200m", "0"},
		{"resources that the spec does not have are not shown", running, "", "", "", &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 1, CpuPeriod: 1, MemoryLimitInBytes: 1}, quantities("1", "1"), "0", "0", "0"},
	} {
		pod := newPod("Always", "a")
		pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities(tc.requestCPU, ""), Limits: quantities(tc.limitCPU, tc.limitMemory)}
		c := container("a", "1", tc.state, 0)
		c.Resources = &runtimeapi.ContainerResources{Linux: tc.enforced}
		in := status.Input{Pod: pod, Runtime: &podcache.Status{Containers: []*runtimeapi.ContainerStatus{c}}}
		in.Previous = corev1.PodStatus{Phase: "Running", ContainerStatuses: []corev1.ContainerStatus{{
			Name: "a", ContainerID: "a1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, Resources: &corev1.ResourceRequirements{Limits: tc.before},
		}}}
		before := pod.DeepCopy()
		_, got, _ := status.ContainerStatuses(in)
		require.Equal(t, tc.wantRequest, amount(got[0].Resources.Requests, corev1.ResourceCPU), tc.name)
		require.Equal(t, tc.wantLimit, amount(got[0].Resources.Limits, corev1.ResourceCPU), tc.name)
		require.Equal(t, tc.wantMemory, amount(got[0].Resources.Limits, corev1.ResourceMemory), tc.name)
		require.Equal(t, before, pod, tc.name)
	}
}

// Values that the runtime does not report are taken from the last enforced resources.
func TestGenerate_ResourcesEnforcedByTheNode(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: quantities("1", "64Mi"), Limits: quantities("2", "128Mi")}
	last := corev1.ResourceRequirements{Requests: quantities("500m", "32Mi"), Limits: quantities("1", "64Mi")}
	in := status.Input{Pod: pod, Runtime: runningIn("a"), Enforced: map[string]corev1.ResourceRequirements{"a": last}}
	shown := func() (all []string) {
		_, got, _ := status.ContainerStatuses(in)
		in.Previous = corev1.PodStatus{Phase: "Running", ContainerStatuses: got}
		for _, list := range []corev1.ResourceList{got[0].Resources.Requests, got[0].Resources.Limits} {
			all = append(all, amount(list, corev1.ResourceCPU), amount(list, corev1.ResourceMemory))
		}
		return all
	}
	require.Equal(t, []string{"500m", "32Mi", "1", "64Mi"}, shown())
	in.Runtime.Containers[0].Resources = &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20}}
	require.Equal(t, []string{"500m", "32Mi", "1", "128Mi"}, shown(), "the runtime's values, and the previous ones for the others")
	in.Enforced = nil
	require.Equal(t, []string{"500m", "32Mi", "1", "128Mi"}, shown(), "memory requests must also be kept")
	in.Runtime.Containers[0].State = exited
	require.Equal(t, []string{"1", "64Mi", "2", "128Mi"}, shown(), "the enforced values")
}

func TestGenerate_AllocatedResources(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a", "b")
	pod.Spec.Resources = &corev1.ResourceRequirements{Requests: quantities("3", ""), Limits: quantities("4", "")}
	s := status.Generate(status.Input{Pod: pod, Runtime: runningIn("a", "b"), Allocated: map[string]corev1.ResourceRequirements{
		"a": {Requests: quantities("50m", "")},
	}})
	require.Equal(t, "50m", amount(s.ContainerStatuses[0].AllocatedResources, corev1.ResourceCPU))
	require.Equal(t, "100m", amount(s.ContainerStatuses[1].AllocatedResources, corev1.ResourceCPU))
	require.Equal(t, "3", amount(s.AllocatedResources, corev1.ResourceCPU), "the allocated pod-level resources")
	require.Equal(t, "4", amount(s.Resources.Limits, corev1.ResourceCPU))
}

func TestVolumeMounts(t *testing.T) {
	t.Parallel()
	pod := newPod("Always", "a", "b")
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{
			{Name: "data", MountPath: "/data"}, {Name: "conf", MountPath: "/conf", ReadOnly: true}, {Name: "deep", MountPath: "/deep", ReadOnly: true},
		}
	}
	seen := runningIn("a")
	seen.Containers[0].Mounts = []*runtimeapi.Mount{nil, {ContainerPath: "/conf", Readonly: true}, {ContainerPath: "/deep", RecursiveReadOnly: true}}
	in := status.Input{Pod: pod, Runtime: seen}
	disabled, enabled := new(corev1.RecursiveReadOnlyDisabled), new(corev1.RecursiveReadOnlyEnabled)
	want := []corev1.VolumeMountStatus{
		{Name: "data", MountPath: "/data"},
		{Name: "conf", MountPath: "/conf", ReadOnly: true, RecursiveReadOnly: disabled},
		{Name: "deep", MountPath: "/deep", ReadOnly: true, RecursiveReadOnly: enabled},
	}
	in.Previous = status.Generate(in)
	require.Equal(t, want, in.Previous.ContainerStatuses[0].VolumeMounts)
	require.Equal(t, disabled, in.Previous.ContainerStatuses[1].VolumeMounts[2].RecursiveReadOnly, "the container does not exist yet")
	in.Runtime = nil
	require.Equal(t, want, status.Generate(in).ContainerStatuses[0].VolumeMounts, "the mounts must be kept from the previous status")
}

func TestAllContainersRestarting(t *testing.T) {
	t.Parallel()
	const all = corev1.AllContainersRestarting
	pod := parseScene(t, "Never", "run@Never+all42 run").pod
	see := func(list ...*runtimeapi.ContainerStatus) *podcache.Status { return &podcache.Status{Containers: list} }
	trigger, other := container("c0", "1", exited, 42), container("c1", "1", running, 0)
	in := status.Input{Pod: pod}
	step := func(name string, seen *podcache.Status, want, reason string) corev1.PodStatus {
		in.Runtime = seen
		in.Previous = status.Generate(in)
		c := status.Condition(in.Previous.Conditions, all)
		require.NotNil(t, c, name)
		require.Equal(t, []string{want, reason}, []string{string(c.Status), c.Reason}, name)
		return in.Previous
	}
	const started = status.ReasonRestartAllContainersStarted
	step("pending", see(), "False", "")
	step("running", see(container("c0", "1", running, 0), other), "False", "")
	s := step("triggered", see(trigger, other), "True", started)
	require.Equal(t, "container exited with restart policy rule", status.Condition(s.Conditions, all).Message)
	s = step("the trigger is removed first", see(other), "True", started)
	require.Equal(t, "waiting:RestartingAllContainers after exit137:RestartingAllContainers #1", word(s.ContainerStatuses[0]))
	require.Equal(t, corev1.PodRunning, s.Phase)
	in.Runtime = nil
	s = status.Generate(in)
	require.Equal(t, corev1.ConditionTrue, status.Condition(s.Conditions, all).Status, "the condition must be kept while the runtime state is unknown")
	s = step("all are removed", see(), "False", "")
	require.Equal(t, "waiting:ContainerCreating after exit137:RestartingAllContainers #1", word(s.ContainerStatuses[0]), "the container is being created again")
	require.Equal(t, "waiting:RestartingAllContainers after exit137:RestartingAllContainers #1", word(s.ContainerStatuses[1]))
	require.Equal(t, "The container is removed because RestartAllContainers in place", s.ContainerStatuses[1].State.Waiting.Message)
	require.Equal(t, corev1.ConditionTrue, status.Condition(s.Conditions, corev1.PodInitialized).Status)
	s = step("the next life", see(restarted(container("c0", "2", running, 0), 1), restarted(container("c1", "2", running, 0), 1)), "False", "")
	require.Equal(t, "running after exit137:RestartingAllContainers #1", word(s.ContainerStatuses[1]))
	step("triggered again", see(container("c0", "2", exited, 42), other), "True", started)
	step("a new life without a moment between", see(container("c0", "3", running, 0), container("c1", "3", running, 0)), "False", "")
	in.Terminal = true
	step("succeeded", see(container("c0", "3", exited, 0), container("c1", "3", exited, 0)), "False", status.ReasonPodCompleted)
	in.Previous.Phase = "Running"
	step("failed", see(container("c0", "3", exited, 1), container("c1", "3", exited, 0)), "False", status.ReasonPodFailed)

	plain := status.Generate(status.Input{Pod: newPod("Never", "a"), Previous: in.Previous})
	require.Nil(t, status.Condition(plain.Conditions, all), "without a restart rule, the condition must be missing")
}

// The status of each container while all are restarted.
func TestGenerate_ContainersDuringARestartOfAll(t *testing.T) {
	t.Parallel()
	pod := parseScene(t, "Never", "i:wait run@Never+all42 run").pod
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	see := func(list ...*runtimeapi.ContainerStatus) *podcache.Status { return &podcache.Status{Containers: list} }
	first, asker, other := container("c0", "1", exited, 0), container("c1", "1", exited, 42), container("c2", "1", running, 0)
	asker.ImageRef = "sha256:1"
	debug := container("debug", "1", running, 0)
	in := status.Input{Pod: pod, Runtime: see(first, container("c1", "1", running, 0), other, debug)}
	in.Previous = status.Generate(in)
	in.Runtime = see(first, asker, other, debug)
	in.Previous = status.Generate(in)

	in.Runtime = see(other)
	s := status.Generate(in)
	const down = "waiting:RestartingAllContainers after exit137:RestartingAllContainers #1"
	require.Equal(t, "exit0:Completed after exit137:RestartingAllContainers #1", word(s.InitContainerStatuses[0]), "the init container must be complete, because a regular container was created")
	require.Equal(t, down, word(s.ContainerStatuses[0]))
	require.Equal(t, []string{"c11", "sha256:1"}, []string{s.ContainerStatuses[0].ContainerID, s.ContainerStatuses[0].ImageID}, "the IDs of the terminated container must be kept")
	require.NotNil(t, s.ContainerStatuses[0].Resources)
	require.Equal(t, down, word(s.EphemeralContainerStatuses[0]))

	in.Runtime = see(container("c2", "1", unknown, 0))
	s = status.Generate(in)
	require.Equal(t, "exit137:RestartingAllContainers #1", word(s.ContainerStatuses[1]), "a container that ran must be shown as terminated")

	condition := func(list ...*runtimeapi.ContainerStatus) corev1.ConditionStatus {
		in.Runtime = see(list...)
		return status.Condition(status.Generate(in).Conditions, corev1.AllContainersRestarting).Status
	}
	anew := restarted(container("c1", "2", running, 0), 1)
	require.Equal(t, corev1.ConditionTrue, condition(anew, other), "an old container is left")
	require.Equal(t, corev1.ConditionFalse, condition(anew), "no old container is left")
	in.Previous.Conditions = nil
	require.Equal(t, corev1.ConditionTrue, condition(restarted(container("c1", "2", exited, 0), 1)), "the previous termination matches the rule")
	require.Equal(t, corev1.ConditionFalse, condition(anew))
}

func TestGenerate_FirstMatchingRestartRuleDecides(t *testing.T) {
	t.Parallel()
	rule := func(op corev1.ContainerRestartRuleOnExitCodesOperator, action corev1.ContainerRestartRuleAction) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: []int32{1}}}
	}
	const in, notIn = corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn
	const one, all = corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers
	for _, tc := range []struct {
		rules []corev1.ContainerRestartRule
		exit  int32
		want  corev1.ConditionStatus
	}{
		{[]corev1.ContainerRestartRule{rule(in, all)}, 1, "True"},
		{[]corev1.ContainerRestartRule{rule(in, all)}, 2, "False"},
		{[]corev1.ContainerRestartRule{rule(notIn, all)}, 2, "True"},
		{[]corev1.ContainerRestartRule{rule(notIn, all)}, 1, "False"},
		{[]corev1.ContainerRestartRule{rule(in, one), rule(in, all)}, 1, "False"},
		{[]corev1.ContainerRestartRule{{Action: all}, rule("Near", all)}, 1, "False"},
	} {
		pod := newPod("Never", "a")
		pod.Spec.Containers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever)
		pod.Spec.Containers[0].RestartPolicyRules = tc.rules
		seen := &podcache.Status{Containers: []*runtimeapi.ContainerStatus{container("a", "1", exited, tc.exit)}}
		require.Equal(t, tc.want, status.AllContainersRestarting(status.Input{Pod: pod, Runtime: seen}, "Running").Status)
	}
}
