// Package podlimits computes what the cgroup of a pod is limited to, for the packages
// that make it, resize it and create containers in it.
package podlimits

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// MinShares are the fewest shares of cpu of a cgroup.
	MinShares = 2
	// MaxShares are the most.
	MaxShares = 262_144
	// SharesPerCore are those of a whole core.
	SharesPerCore = 1024
	// DefaultPeriodMicros is the kernel's period of cpu quotas.
	DefaultPeriodMicros = 100_000

	minQuotaMicros = 1000    // the least that the kernel takes
	maxMilliCPU    = 1 << 40 // more would overflow
)

// Limits are those of a pod's cgroup that a resize can change. Zero is no limit.
type Limits struct {
	CPUShares                                    int64
	CPUQuotaMicros, CPUPeriodMicros, MemoryBytes int64
}

// Of returns the limits of the pod as a whole, with its overhead. period is that of cpu
// quotas; zero is no quota.
func Of(pod *corev1.Pod, period time.Duration) Limits {
	if podspec.QOSClass(pod) == corev1.PodQOSBestEffort {
		return Limits{CPUShares: MinShares}
	}
	requests, limits := podspec.Requests(pod), podspec.EnforceableLimits(pod)
	l := Limits{CPUShares: Shares(requests.Cpu().MilliValue()), MemoryBytes: limits.Memory().Value()}
	if milli := limits.Cpu().MilliValue(); milli > 0 && period > 0 {
		l.CPUPeriodMicros = period.Microseconds()
		l.CPUQuotaMicros = Quota(milli, l.CPUPeriodMicros)
	}
	return l
}

// Shares returns the shares of cpu for a request.
func Shares(milliCPU int64) int64 {
	return min(max(MinShares, min(milliCPU, maxMilliCPU)*SharesPerCore/1000), MaxShares)
}

// Quota returns the microseconds of cpu in each period for a limit.
func Quota(milliCPU, periodMicros int64) int64 {
	return max(minQuotaMicros, min(milliCPU, maxMilliCPU)*periodMicros/1000)
}
