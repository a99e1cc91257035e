package cgroups

import (
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/internal/podlimits"
	"github.com/kubeparts/kubeparts/internal/quantity"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Limits holds the limits of a cgroup. Zero means no limit, with two
// exceptions: zero CPUShares means the minimum, and a zero entry of HugePages
// means no huge pages.
type Limits struct {
	// CPUShares determines the part of the CPU time that the cgroup gets if
	// cgroups compete for CPU time. It is 1024 for each requested core.
	CPUShares int64
	// CPUQuotaMicros is the maximum CPU time in each period of CPUPeriodMicros.
	CPUQuotaMicros, CPUPeriodMicros int64
	// MemoryBytes is the maximum memory.
	MemoryBytes int64
	// Pids is the maximum number of processes and threads.
	Pids int64
	// HugePages maps page sizes to limits in bytes. A page size has the format
	// of cgroup file names, such as 2MB.
	HugePages map[string]int64
}

// PodLimits returns the limits of the pod as a whole, with its overhead. The
// limits of CPU and memory are the pod-level limits. If a pod-level limit is
// missing and every container has a limit, the sum of the containers' limits is
// used. period is the period of CPU quotas; if it is zero, the limits have no
// quota. PodLimits is pure.
func PodLimits(pod *corev1.Pod, period time.Duration) Limits {
	l := podlimits.Of(pod, period)
	return Limits{
		CPUShares: l.CPUShares, CPUQuotaMicros: l.CPUQuotaMicros, CPUPeriodMicros: l.CPUPeriodMicros, MemoryBytes: l.MemoryBytes,
		HugePages: hugePages(podspec.Limits(pod)),
	}
}

// Weight converts CPU shares to the CPU weight of cgroup v2. Like runtimes, it
// maps 2 shares (the minimum) to 1, 1024 shares (one core) to 100, and 262144
// shares (the maximum) to 10000.
func Weight(shares int64) int64 {
	switch {
	case shares <= podlimits.MinShares:
		return 1
	case shares >= podlimits.MaxShares:
		return 10_000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

func hugePages(limits corev1.ResourceList) map[string]int64 {
	out := map[string]int64{}
	for name, amount := range limits {
		text, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		if size, err := quantity.Parse(text); err == nil && size.Sign() > 0 {
			out[PageSize(size.Value())] = amount.Value()
		}
	}
	return out
}

// PageSize formats the size of a huge page as in the names of cgroup files:
// 2MB, 1GB.
func PageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for ; i < len(units)-1 && bytes >= 1024 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// burstableShares returns the CPU shares for the sum of the CPU requests of all
// Burstable pods.
func burstableShares(pods []*corev1.Pod) int64 {
	const enough = podlimits.MaxShares * 1000 // a larger sum could overflow, and would not increase the shares
	milli := int64(0)
	for _, pod := range pods {
		if pod == nil || podspec.QOSClass(pod) != corev1.PodQOSBurstable {
			continue
		}
		requests := podspec.Requests(pod)
		milli = min(milli+max(0, min(requests.Cpu().MilliValue(), enough)), enough)
	}
	return podlimits.Shares(milli)
}
