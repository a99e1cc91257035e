package podspec_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func list(cpu, memory string) corev1.ResourceList {
	l := corev1.ResourceList{}
	if cpu != "" {
		l[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		l[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return l
}

func asks(cpu, memory string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(cpu, memory)}}
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func requireList(t *testing.T, want, got corev1.ResourceList) {
	t.Helper()
	require.Len(t, got, len(want))
	for name, q := range want {
		g := got[name]
		require.Zero(t, g.Cmp(q), "%s: %s, want %s", name, g.String(), q.String())
	}
}

// A long quantity is stored as a pointer, so that adding to a copy would modify the pod.
func TestRequests_DoNotModifyThePod(t *testing.T) {
	t.Parallel()
	const long = "1000000000000000000001m"
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Resources: &corev1.ResourceRequirements{Requests: list(long, "")}, Overhead: list("1", ""),
	}}
	before := pod.DeepCopy()
	first := podspec.Requests(pod)
	requireList(t, first, podspec.Requests(pod))
	requireList(t, first, podspec.AllocatedResources(pod))
	require.Zero(t, before.Spec.Resources.Requests.Cpu().Cmp(*pod.Spec.Resources.Requests.Cpu()))
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: list(long, "")}
	before = pod.DeepCopy()
	podspec.Requests(pod)
	podspec.Limits(pod)
	require.Zero(t, before.Spec.Resources.Limits.Cpu().Cmp(*pod.Spec.Resources.Limits.Cpu()))
}

func TestRequests_InitContainersSidecarsAndOverhead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		spec corev1.PodSpec
		want corev1.ResourceList
	}{
		{"nothing", corev1.PodSpec{}, list("", "")},
		{
			"containers add up",
			corev1.PodSpec{Containers: []corev1.Container{asks("1", "1Gi"), asks("500m", "")}},
			list("1500m", "1Gi"),
		},
		{
			"an init container that needs more at its time counts instead",
			corev1.PodSpec{
				InitContainers: []corev1.Container{asks("3", "1Mi"), asks("2", "")},
				Containers:     []corev1.Container{asks("1", "1Gi")},
			},
			list("3", "1Gi"),
		},
		{
			"a sidecar runs beside the containers and beside later init containers",
			corev1.PodSpec{
				InitContainers: []corev1.Container{sidecar(asks("1", "")), asks("3", "")},
				Containers:     []corev1.Container{asks("2", "")},
			},
			list("4", ""),
		},
		{
			"an earlier init container does not see the sidecar",
			corev1.PodSpec{
				InitContainers: []corev1.Container{asks("3", ""), sidecar(asks("1", ""))},
				Containers:     []corev1.Container{asks("2", "")},
			},
			list("3", ""),
		},
		{
			"the overhead of the runtime class is added",
			corev1.PodSpec{Containers: []corev1.Container{asks("1", "")}, Overhead: list("250m", "100Mi")},
			list("1250m", "100Mi"),
		},
		{
			"the pod as a whole counts instead of its containers",
			corev1.PodSpec{
				Containers: []corev1.Container{asks("1", "1Gi")},
				Resources:  &corev1.ResourceRequirements{Requests: list("4", "")},
				Overhead:   list("1", ""),
			},
			list("5", "1Gi"),
		},
		{
			"a limit stands in for a request of a container",
			corev1.PodSpec{Containers: []corev1.Container{
				{Resources: corev1.ResourceRequirements{Limits: list("2", "2Gi"), Requests: list("1", "")}},
				asks("1", ""),
			}},
			list("2", "2Gi"),
		},
		{
			"a limit of the pod stands in where no container asks",
			corev1.PodSpec{
				Containers: []corev1.Container{asks("1", "")},
				Resources:  &corev1.ResourceRequirements{Limits: list("4", "4Gi")},
			},
			list("1", "4Gi"),
		},
	} {
		pod := &corev1.Pod{Spec: tt.spec}
		before := pod.DeepCopy()
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			requireList(t, tt.want, podspec.Requests(pod))
			requireList(t, tt.want, podspec.AllocatedResources(pod)) // the status has no other amounts
			require.Equal(t, before, pod, "the pod must not be modified")
		})
	}
}

func TestLimits_InitContainersSidecarsAndOverhead(t *testing.T) {
	t.Parallel()
	limited := func(cpu string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Limits: list(cpu, "")}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{sidecar(limited("1")), limited("5")},
		Containers:     []corev1.Container{limited("2"), asks("9", "9Gi")},
		Overhead:       list("500m", "1Gi"), // memory has no limit to which the overhead could be added
	}}
	requireList(t, list("6500m", ""), podspec.Limits(pod))
	pod.Spec.Resources = &corev1.ResourceRequirements{Limits: list("4", "")}
	requireList(t, list("4500m", ""), podspec.Limits(pod))
}

func TestHeld_ShrinkingPodHoldsTheLargerAmount(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{asks("1", "")}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			AllocatedResources: list("3", ""),
			Resources:          &corev1.ResourceRequirements{Requests: list("4", "")},
		}}},
	}
	requireList(t, list("1", ""), podspec.Requests(pod))
	requireList(t, list("4", ""), podspec.AllocatedResources(pod))
	pod.Spec.Containers[0] = asks("9", "")
	requireList(t, list("9", ""), podspec.AllocatedResources(pod))
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	requireList(t, list("4", ""), podspec.AllocatedResources(pod))
}

func TestCanPreempt_CriticalPods(t *testing.T) {
	t.Parallel()
	prio := func(p int32) *corev1.Pod { return &corev1.Pod{Spec: corev1.PodSpec{Priority: &p}} }
	annotated := func(key, value string) *corev1.Pod {
		pod := &corev1.Pod{}
		pod.Annotations = map[string]string{key: value}
		return pod
	}
	static, mirror := annotated(podspec.SourceAnnotation, "file"), annotated(podspec.MirrorAnnotation, "x")
	plain, cluster, node := &corev1.Pod{}, prio(podspec.SystemCriticalPriority), prio(podspec.SystemCriticalPriority+1000)
	high := prio(podspec.SystemCriticalPriority - 1)

	for pod, want := range map[*corev1.Pod]bool{
		plain: false, high: false, cluster: true, node: true, static: true, mirror: true,
		annotated(podspec.SourceAnnotation, "api"): false,
	} {
		require.Equal(t, want, podspec.IsCritical(pod), "%v", pod.Annotations)
	}
	require.Zero(t, podspec.Priority(plain))
	require.Equal(t, podspec.SystemCriticalPriority-1, podspec.Priority(high))

	for _, tt := range []struct {
		name              string
		preemptor, victim *corev1.Pod
		want              bool
	}{
		{"a critical pod preempts a pod that is not critical", cluster, plain, true},
		{"a static pod preempts a pod that is not critical", static, high, true},
		{"a critical pod does not preempt a pod with the same priority", cluster, cluster, false},
		{"a node-critical pod preempts a cluster-critical pod", node, cluster, true},
		{"a cluster-critical pod does not preempt a node-critical pod", cluster, node, false},
		{"a critical pod without a priority is not preempted", node, static, false},
		{"a critical pod without a priority preempts no critical pod", static, node, false},
		{"a pod with a higher priority preempts a pod with a lower priority", high, prio(1), true},
		{"a pod without a priority is not preempted because of its priority", high, plain, false},
	} {
		require.Equal(t, tt.want, podspec.CanPreempt(tt.preemptor, tt.victim), tt.name)
	}
}

// TestAllocatedResources_AgreesWithComponentHelpers compares random pods, with
// and without resources in their status, with the general computation.
func TestAllocatedResources_AgreesWithComponentHelpers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	amounts := []string{"", "", "1", "2"}
	some := func() corev1.ResourceList { return list(amounts[random.IntN(4)], amounts[random.IntN(4)]) }
	for range 20_000 {
		pod := &corev1.Pod{}
		add := func(all *[]corev1.Container, statuses *[]corev1.ContainerStatus, n int) {
			for i := range n {
				c := corev1.Container{Name: strconv.Itoa(len(*all)), Resources: corev1.ResourceRequirements{Requests: some()}}
				if i == 0 && random.IntN(2) == 0 {
					c = sidecar(c)
				}
				*all = append(*all, c)
				if random.IntN(2) == 0 {
					continue
				}
				*statuses = append(*statuses, corev1.ContainerStatus{Name: c.Name, AllocatedResources: some(), Resources: &corev1.ResourceRequirements{Requests: some()}})
			}
		}
		add(&pod.Spec.InitContainers, &pod.Status.InitContainerStatuses, random.IntN(8)/6)
		for i := range pod.Spec.InitContainers {
			pod.Spec.InitContainers[i].Name += "-init"
		}
		for i := range pod.Status.InitContainerStatuses {
			pod.Status.InitContainerStatuses[i].Name += "-init"
		}
		add(&pod.Spec.Containers, &pod.Status.ContainerStatuses, 1+random.IntN(3)/2)
		if random.IntN(8) == 0 {
			pod.Spec.Resources = &corev1.ResourceRequirements{Requests: some()}
			pod.Status.Resources = &corev1.ResourceRequirements{Requests: some()}
			pod.Status.AllocatedResources = some()
		}
		if random.IntN(8) == 0 {
			pod.Spec.Overhead = some()
		}
		if random.IntN(8) == 0 {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
		}
		want := helpers.PodRequests(pod.DeepCopy(), helpers.PodResourcesOptions{
			UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
		})
		requireList(t, want, podspec.AllocatedResources(pod))
	}
}

// The admission of a pod computes the resources of all other pods.
func TestAllocatedResources_AllocatesNothingForTheUsualPod(t *testing.T) {
	c := asks("1", "1Gi")
	c.Name = "web"
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{c}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "web", AllocatedResources: list("1", "1Gi"), Resources: &corev1.ResourceRequirements{Requests: list("1", "1Gi")},
		}}},
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { podspec.AllocatedResources(pod) }))
}
