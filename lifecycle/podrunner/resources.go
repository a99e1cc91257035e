package podrunner

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podresource "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/podlimits"
	"github.com/kubeparts/kubeparts/internal/quantity"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// ContainerResources returns the container's resources as a CRI message, for
// its creation and for a resize in place. It is pure. It returns an error if
// the container requests huge pages of a size that the node does not have.
func ContainerResources(pod *corev1.Pod, c *corev1.Container, node Node) (*runtimeapi.LinuxContainerResources, error) {
	limits := effectiveLimits(pod, c)
	res := cpuAndMemory(c.Resources.Requests, limits, node)
	res.OomScoreAdj = oomScoreAdj(pod, c, node.MemoryCapacityBytes)
	setSwap(res, pod, c, node)
	if node.Cgroups.V2 {
		setMemoryQoS(res, pod, c, node)
	}
	var err error
	res.HugepageLimits, err = hugePages(limits, node.Cgroups.HugePageSizes)
	return res, err
}

// effectiveLimits returns the container's limits of CPU, memory and huge pages.
// If a limit is missing or zero, the pod-level limit is used (KEP-2837). For
// huge pages, zero is a limit too.
func effectiveLimits(pod *corev1.Pod, c *corev1.Container) corev1.ResourceList {
	if pod.Spec.Resources == nil {
		return c.Resources.Limits
	}
	limits := corev1.ResourceList{}
	maps.Copy(limits, pod.Spec.Resources.Limits)
	for name, limit := range c.Resources.Limits {
		if !limit.IsZero() || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			limits[name] = limit
		}
	}
	return limits
}

// cpuAndMemory converts requests and limits of CPU and memory to cgroup
// settings. A missing CPU request defaults to the limit.
func cpuAndMemory(requests, limits corev1.ResourceList, node Node) *runtimeapi.LinuxContainerResources {
	request := requests.Cpu().MilliValue()
	if _, asked := requests[corev1.ResourceCPU]; !asked {
		request = limits.Cpu().MilliValue()
	}
	res := &runtimeapi.LinuxContainerResources{
		CpuShares:          podlimits.Shares(request),
		MemoryLimitInBytes: limits.Memory().Value(),
	}
	if period := node.Limits.quotaPeriod(); period > 0 {
		res.CpuPeriod = period.Microseconds()
		if limit := limits.Cpu().MilliValue(); limit > 0 {
			res.CpuQuota = podlimits.Quota(limit, res.CpuPeriod)
		}
	}
	if node.Cgroups.V2 && !node.Limits.SingleProcessOOMKill {
		setUnified(res, "memory.oom.group", "1")
	}
	return res
}

// oomScoreAdj returns the OOM score adjustment of a container, as in the
// kubelet. If memory is short, the kernel kills the containers of BestEffort
// pods first (1000). It kills the containers of Guaranteed pods, and of
// critical pods with the priority class system-node-critical, last (-997).
// Containers of Burstable pods get a value between 3 and 999, which is lower if
// their memory request is higher. Memory that the pod requests in addition to
// its containers is divided equally between the containers (KEP-2837). A
// sidecar is not killed earlier than the regular container with the smallest
// memory request (KEP-753).
func oomScoreAdj(pod *corev1.Pod, c *corev1.Container, memoryCapacity int64) int64 {
	const guaranteed, bestEffort, lowest, nodeCritical = -997, 1000, 3, "system-node-critical"
	if podspec.IsCritical(pod) && pod.Spec.PriorityClassName == nodeCritical {
		return guaranteed
	}
	switch podspec.QOSClass(pod) {
	case corev1.PodQOSGuaranteed:
		return guaranteed
	case corev1.PodQOSBestEffort:
		return bestEffort
	case corev1.PodQOSBurstable:
	}
	if memoryCapacity <= 0 {
		return bestEffort - 1
	}
	share := memoryShare(pod)
	adj := func(c *corev1.Container) int64 {
		asked := min(c.Resources.Requests.Memory().Value(), memoryCapacity)
		asked = min(asked+share, memoryCapacity)
		return bestEffort - int64(float64(bestEffort)*float64(asked)/float64(memoryCapacity))
	}
	score := adj(c)
	if podspec.IsSidecar(c) && len(pod.Spec.Containers) > 0 {
		latest := int64(0)
		for i := range pod.Spec.Containers {
			latest = max(latest, adj(&pod.Spec.Containers[i]))
		}
		score = min(score, latest)
	}
	return min(max(score, lowest), bestEffort-1)
}

// memoryShare divides the memory that the pod requests in addition to its
// containers, and returns the share of each container. Init containers also
// have a share.
func memoryShare(pod *corev1.Pod) int64 {
	if pod.Spec.Resources == nil {
		return 0
	}
	containers := podresource.AggregateContainerRequests(pod, podresource.PodResourcesOptions{})
	rest := pod.Spec.Resources.Requests.Memory().Value() - containers.Memory().Value()
	return max(0, rest) / int64(max(1, len(pod.Spec.Containers)+len(pod.Spec.InitContainers)))
}

// setSwap sets the container's swap limit if the kernel can limit swap. The
// limit is no swap, or the container's share of the node's swap.
func setSwap(res *runtimeapi.LinuxContainerResources, pod *corev1.Pod, c *corev1.Container, node Node) {
	cgroups := node.Cgroups
	switch {
	case !cgroups.SwapAccounting:
	case !cgroups.V2:
		res.MemorySwapLimitInBytes = res.GetMemoryLimitInBytes() // the limit of memory and swap together
	default:
		setUnified(res, "memory.swap.max", strconv.FormatInt(swapShare(pod, c, node), 10))
	}
}

func swapShare(pod *corev1.Pod, c *corev1.Container, node Node) int64 {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	switch {
	case !node.Limits.LimitedSwap, node.MemoryCapacityBytes <= 0, podspec.QOSClass(pod) != corev1.PodQOSBurstable,
		podspec.IsCritical(pod), request.Sign() > 0 && request.Cmp(*limit) == 0:
		return 0
	}
	part := float64(request.Value()) / float64(node.MemoryCapacityBytes)
	return int64(min(part, 1) * float64(node.Cgroups.SwapCapacityBytes))
}

// setMemoryQoS sets the container's memory reservation and memory throttling as
// the node's policy requires (KEP-2570). The kernel slows a throttled container
// down before the container reaches its memory limit. If only the limit is
// missing, the node's allocatable memory is used as the limit. If the request
// equals the limit, or if both are missing, the container is not throttled.
func setMemoryQoS(res *runtimeapi.LinuxContainerResources, pod *corev1.Pod, c *corev1.Container, node Node) {
	factor := node.Limits.MemoryThrottling
	if factor <= 0 {
		return
	}
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	switch {
	case request == 0 || !node.Limits.TieredMemoryReservation:
		setUnified(res, "memory.min", "0")
		setUnified(res, "memory.low", "0")
	case podspec.QOSClass(pod) == corev1.PodQOSGuaranteed:
		setUnified(res, "memory.min", strconv.FormatInt(request, 10))
	default:
		setUnified(res, "memory.low", strconv.FormatInt(request, 10))
	}
	if request == limit {
		return
	}
	if limit == 0 {
		limit = node.Allocatable.Memory().Value()
	}
	page := int64(os.Getpagesize())
	if high := (request + int64(min(factor, 1)*float64(limit-request))) / page * page; high > request {
		setUnified(res, "memory.high", strconv.FormatInt(high, 10))
	}
}

func setUnified(res *runtimeapi.LinuxContainerResources, file, value string) {
	if res.Unified == nil {
		res.Unified = map[string]string{}
	}
	res.Unified[file] = value
}

// hugePages returns a limit for every huge page size of the node. The limit is
// zero for sizes that the container does not request.
func hugePages(limits corev1.ResourceList, sizes []int64) ([]*runtimeapi.HugepageLimit, error) {
	asked := map[int64]uint64{}
	for _, name := range sortedKeys(limits) {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		size, err := quantity.Parse(text)
		quantity := limits[name]
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %q is not a size: %w", name, text, err)
		case quantity.Sign() <= 0:
			continue
		case !slices.Contains(sizes, size.Value()):
			return nil, fmt.Errorf("%s: this node has no huge pages of that size", name)
		}
		asked[size.Value()] = uint64(quantity.Value())
	}
	var out []*runtimeapi.HugepageLimit
	for _, size := range slices.Sorted(slices.Values(sizes)) {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: pageSize(size), Limit: asked[size]})
	}
	return out, nil
}

// pageSize formats a size as in the names of cgroup files: 2MB, 1GB.
func pageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for ; i < len(units)-1 && bytes >= 1024 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}
