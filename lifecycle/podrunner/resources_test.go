package podrunner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// amounts builds requests and limits from strings such as "memory=1Gi<2Gi": a
// request before the sign and a limit after it; the request or the limit may be
// missing.
func amounts(all ...string) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, a := range all {
		name, both, _ := strings.Cut(a, "=")
		request, limit, _ := strings.Cut(both, "<")
		if request != "" {
			r.Requests[corev1.ResourceName(name)] = resource.MustParse(request)
		}
		if limit != "" {
			r.Limits[corev1.ResourceName(name)] = resource.MustParse(limit)
		}
	}
	return r
}

func TestCgroupSettings(t *testing.T) {
	t.Parallel()
	v2 := podrunner.Cgroups{V2: true}
	with := func(change func(*podrunner.Cgroups)) podrunner.Cgroups {
		c := v2
		change(&c)
		return c
	}
	swap := with(func(c *podrunner.Cgroups) { c.SwapAccounting, c.SwapCapacityBytes = true, 4<<30 })
	oneKilled := podrunner.Limits{SingleProcessOOMKill: true}
	limited, throttled, kept := oneKilled, oneKilled, oneKilled
	limited.LimitedSwap, throttled.MemoryThrottling = true, 0.9
	kept.MemoryThrottling, kept.TieredMemoryReservation = 0.9, true
	for name, c := range map[string]struct {
		r        corev1.ResourceRequirements
		cgroups  podrunner.Cgroups
		limits   podrunner.Limits
		priority int32
		want     string
	}{
		"v1":          {r: amounts("memory=<1Gi"), want: "mem=1073741824"},
		"v1, no swap": {r: amounts("memory=<1Gi"), cgroups: podrunner.Cgroups{SwapAccounting: true}, want: "mem=1073741824 swap=1073741824"},
		"v2, an OOM kill kills the whole container": {cgroups: podrunner.Cgroups{V2: true}, want: "memory.oom.group=1"},
		"v2, an OOM kill kills one process":         {cgroups: v2, limits: oneKilled, want: ""},
		"v2, no swap":                               {cgroups: with(func(c *podrunner.Cgroups) { c.SwapAccounting = true }), limits: oneKilled, want: "memory.swap.max=0"},
		"v2, swap can't be limited":                 {cgroups: v2, limits: limited, want: ""},
		"swap by request":                           {r: amounts("memory=2Gi<4Gi"), cgroups: swap, limits: limited, want: "mem=4294967296 memory.swap.max=1073741824"},
		"swap, but no request":                      {r: amounts("cpu=1"), cgroups: swap, limits: limited, want: "memory.swap.max=0"},
		"swap, but best effort":                     {cgroups: swap, limits: limited, want: "memory.swap.max=0"},
		"swap, but guaranteed":                      {r: amounts("cpu=1<1", "memory=2Gi<2Gi"), cgroups: swap, limits: limited, want: "mem=2147483648 quota=100000/100000 memory.swap.max=0"},
		"swap, but request is limit":                {r: amounts("cpu=1", "memory=2Gi<2Gi"), cgroups: swap, limits: limited, want: "mem=2147483648 memory.swap.max=0"},
		"swap, but critical":                        {r: amounts("memory=2Gi"), cgroups: swap, limits: limited, priority: 2_000_000_000, want: "memory.swap.max=0"},
		"throttled":                                 {r: amounts("memory=1Gi<2Gi"), cgroups: v2, limits: throttled, want: "mem=2147483648 memory.high=2040107008 memory.low=0 memory.min=0"},
		"throttled by the node's memory":            {r: amounts("memory=1Gi"), cgroups: v2, limits: throttled, want: "memory.high=7838314496 memory.low=0 memory.min=0"},
		"throttled, but guaranteed":                 {r: amounts("cpu=1<1", "memory=2Gi<2Gi"), cgroups: v2, limits: throttled, want: "mem=2147483648 quota=100000/100000 memory.low=0 memory.min=0"},
		"throttled, but no memory request":          {r: amounts("cpu=1"), cgroups: v2, limits: throttled, want: "memory.low=0 memory.min=0"},
		"kept if possible":                          {r: amounts("memory=1Gi<2Gi"), cgroups: v2, limits: kept, want: "mem=2147483648 memory.high=2040107008 memory.low=1073741824"},
		"kept in any case":                          {r: amounts("cpu=1<1", "memory=2Gi<2Gi"), cgroups: v2, limits: kept, want: "mem=2147483648 quota=100000/100000 memory.min=2147483648"},
		"nothing to keep":                           {r: amounts("cpu=1"), cgroups: v2, limits: kept, want: "memory.low=0 memory.min=0"},
		"another period":                            {r: amounts("cpu=<500m"), limits: podrunner.Limits{CPUPeriod: 20 * time.Millisecond}, want: "quota=10000/20000"},
		"no quota":                                  {r: amounts("cpu=<500m"), limits: podrunner.Limits{NoCPUQuota: true}, want: ""},
		"huge pages": {
			r: amounts("hugepages-2Mi=<4Mi"), cgroups: podrunner.Cgroups{HugePageSizes: []int64{1 << 30, 2 << 20}}, want: "2MB=4194304 1GB=0",
		},
		"0 huge pages": {r: amounts("hugepages-2Mi=<0"), want: ""},
		"huge pages of a size that the node does not have": {r: amounts("hugepages-2Mi=<4Mi"), want: "error hugepages-2Mi: this node has no huge pages of that size"},
		"huge pages with an invalid size":                  {r: amounts("hugepages-x=<4Mi"), want: `error hugepages-x: "x" is not a size: `},
		"huge pages of an odd size":                        {r: amounts("hugepages-3k=<1"), cgroups: podrunner.Cgroups{HugePageSizes: []int64{3000}}, want: "3000B=1"},
	} {
		pod, node := testPod(), testNode()
		pod.Spec.Priority = &c.priority
		pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: c.r}}
		node.Cgroups, node.Limits = c.cgroups, c.limits
		node.Allocatable = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
		got, err := podrunner.ContainerResources(pod, &pod.Spec.Containers[0], node)
		var out []string
		if v := got.GetMemoryLimitInBytes(); v != 0 {
			out = append(out, fmt.Sprintf("mem=%d", v))
		}
		if v := got.GetMemorySwapLimitInBytes(); v != 0 {
			out = append(out, fmt.Sprintf("swap=%d", v))
		}
		if v := got.GetCpuQuota(); v != 0 {
			out = append(out, fmt.Sprintf("quota=%d/%d", v, got.GetCpuPeriod()))
		}
		for _, h := range got.GetHugepageLimits() {
			out = append(out, fmt.Sprintf("%s=%d", h.GetPageSize(), h.GetLimit()))
		}
		var unified []string
		for file, text := range got.GetUnified() {
			unified = append(unified, file+"="+text)
		}
		slices.Sort(unified)
		text := strings.Join(append(out, unified...), " ")
		if err != nil {
			text = "error " + err.Error()
			require.Contains(t, text, c.want, name)
			continue
		}
		require.Equal(t, c.want, text, name)
	}
}

func TestOOMScore_SidecarsAndPodLevelResources(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	score := func(pod *corev1.Pod, c *corev1.Container) int64 {
		got, err := podrunner.ContainerResources(pod, c, testNode())
		require.NoError(t, err)
		return got.GetOomScoreAdj()
	}
	pod := testPod() // the node has 8 GiB
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: &always, Resources: amounts("memory=8Mi")}, {Name: "init"}}
	pod.Spec.Containers = []corev1.Container{{Name: "a", Resources: amounts("memory=2Gi")}, {Name: "b", Resources: amounts("memory=4Gi")}}
	require.Equal(t, int64(750), score(pod, &pod.Spec.Containers[0]))
	require.Equal(t, int64(500), score(pod, &pod.Spec.Containers[1]))
	require.Equal(t, int64(750), score(pod, &pod.Spec.InitContainers[0]), "a sidecar's score must not exceed that of the first container")
	require.Equal(t, int64(999), score(pod, &pod.Spec.InitContainers[1]))

	pod.Spec.InitContainers = pod.Spec.InitContainers[1:]
	pod.Spec.Resources = new(amounts("memory=7Gi"))
	require.Equal(t, int64(709), score(pod, &pod.Spec.Containers[0]), "the container uses a third of the remaining memory")
	pod.Spec.Resources = new(amounts("memory=1Gi"))
	require.Equal(t, int64(750), score(pod, &pod.Spec.Containers[0]), "no memory remains")
}

func TestSandboxResources(t *testing.T) {
	t.Parallel()
	pod, node := testPod(), testNode()
	pod.Spec.Containers = []corev1.Container{{Resources: amounts("cpu=1<2", "memory=1Gi<2Gi")}, {Resources: amounts("cpu=500m<1", "memory=1Gi<1Gi")}}
	pod.Spec.Overhead = amounts("cpu=250m", "memory=64Mi").Requests
	node.CgroupParent = func(p *corev1.Pod) string { return "/kubepods/pod" + string(p.UID) }
	got := podrunner.SandboxConfig(pod, 0, node).GetLinux()
	require.Equal(t, "/kubepods/poduid", got.GetCgroupParent())
	require.Equal(t, []int64{1536, 300_000, 100_000, 3 << 30}, []int64{
		got.GetResources().GetCpuShares(), got.GetResources().GetCpuQuota(), got.GetResources().GetCpuPeriod(), got.GetResources().GetMemoryLimitInBytes(),
	})
	require.Equal(t, []int64{256, 25_000, 64 << 20}, []int64{
		got.GetOverhead().GetCpuShares(), got.GetOverhead().GetCpuQuota(), got.GetOverhead().GetMemoryLimitInBytes(),
	})
}

func TestOOMScore_CriticalPods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		static   bool
		priority int32
		class    string
		want     int64
	}{
		"a static pod of the class":   {static: true, class: "system-node-critical", want: -997},
		"a critical pod of the class": {priority: 2_000_001_000, class: "system-node-critical", want: -997},
		"the class, but not critical": {class: "system-node-critical", want: 1000},
		"a priority alone":            {priority: 2_000_001_000, want: 1000},
		"critical for the cluster":    {priority: 2_000_000_000, class: "system-cluster-critical", want: 1000},
		"a static pod without class":  {static: true, want: 1000},
	} {
		pod := testPod()
		pod.Spec.Priority, pod.Spec.PriorityClassName = &c.priority, c.class
		if c.static {
			pod.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
		}
		got, err := podrunner.ContainerResources(pod, &corev1.Container{}, testNode())
		require.NoError(t, err, name)
		require.Equal(t, c.want, got.GetOomScoreAdj(), name)
	}
}

// TestContainerResources_PodLevelLimitsReplaceMissingLimits checks that the containers of a pod without a cgroup get the
// limits of the pod.
func TestContainerResources_PodLevelLimitsReplaceMissingLimits(t *testing.T) {
	t.Parallel()
	pod, node := testPod(), testNode()
	node.Cgroups = podrunner.Cgroups{SwapAccounting: true, HugePageSizes: []int64{1 << 30, 2 << 20}}
	pod.Spec.Resources = new(amounts("cpu=1<2", "memory=1Gi<2Gi", "hugepages-2Mi=4Mi<4Mi", "hugepages-1Gi=1Gi<1Gi"))
	for name, c := range map[string]struct {
		r                           corev1.ResourceRequirements
		memory, quota, shares, huge int64
	}{
		"no resources of the container": {memory: 2 << 30, quota: 200_000, shares: 2048, huge: 4 << 20},
		"limits of the container":       {r: amounts("cpu=<1", "memory=<1Gi", "hugepages-2Mi=<2Mi"), memory: 1 << 30, quota: 100_000, shares: 1024, huge: 2 << 20},
		"limits of zero":                {r: amounts("cpu=<0", "memory=<0", "hugepages-2Mi=<0"), memory: 2 << 30, quota: 200_000, shares: 2048},
		"a request of the container":    {r: amounts("cpu=500m"), memory: 2 << 30, quota: 200_000, shares: 512, huge: 4 << 20},
	} {
		got, err := podrunner.ContainerResources(pod, &corev1.Container{Resources: c.r}, node)
		require.NoError(t, err, name)
		require.Equal(t, []int64{c.memory, c.memory, c.quota, c.shares, c.huge, 1 << 30}, []int64{
			got.GetMemoryLimitInBytes(), got.GetMemorySwapLimitInBytes(), got.GetCpuQuota(), got.GetCpuShares(),
			int64(got.GetHugepageLimits()[0].GetLimit()), int64(got.GetHugepageLimits()[1].GetLimit()),
		}, name)
	}
}
