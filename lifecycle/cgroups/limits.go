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

// Limits is what a cgroup is limited to. Zero is no limit, but for shares, where
// it is the least.
type Limits struct {
	// CPUShares is its part of the cpu when others want it, too: 1024 a core.
	CPUShares int64
	// CPUQuotaMicros is how much of the cpu it gets in each period.
	CPUQuotaMicros, CPUPeriodMicros int64
	// MemoryBytes is how much memory it may have.
	MemoryBytes int64
	// Pids is how many processes and threads.
	Pids int64
	// HugePages are bytes by size, as cgroup files are named: 2MB.
	HugePages map[string]int64
}

// PodLimits is what the pod as a whole is limited to, with its overhead: of cpu
// and memory the sum of its containers' limits if each of them has one, or what is
// written for the pod as a whole. period is that of cpu quotas; zero is no quota.
// It is pure.
func PodLimits(pod *corev1.Pod, period time.Duration) Limits {
	l := podlimits.Of(pod, period)
	return Limits{
		CPUShares: l.CPUShares, CPUQuotaMicros: l.CPUQuotaMicros, CPUPeriodMicros: l.CPUPeriodMicros, MemoryBytes: l.MemoryBytes,
		HugePages: hugePages(podspec.Limits(pod)),
	}
}

// Weight is what cgroup v2 has in place of shares. Runtimes convert them so that
// the least, one core's 1024 and the most (2, 1024, 262144) are 1, 100 and 10000.
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

// PageSize names a size of huge pages as cgroup files are named: 2MB, 1GB.
func PageSize(bytes int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	i := 0
	for ; i < len(units)-1 && bytes >= 1024 && bytes%1024 == 0; i++ {
		bytes /= 1024
	}
	return strconv.FormatInt(bytes, 10) + units[i]
}

// burstableShares are those of all Burstable pods together.
func burstableShares(pods []*corev1.Pod) int64 {
	const enough = podlimits.MaxShares * 1000 // more would overflow, and are no more shares
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
