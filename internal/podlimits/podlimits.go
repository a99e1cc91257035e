// Package podlimits computes the limits of a pod's cgroup, for the packages that create or
// resize the cgroup, or create containers in the cgroup.
package podlimits

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	// MinShares is the smallest number of CPU shares of a cgroup.
	MinShares = 2
	// MaxShares is the largest number of CPU shares of a cgroup.
	MaxShares = 262_144
	// SharesPerCore is the number of CPU shares for one core.
	SharesPerCore = 1024
	// DefaultPeriodMicros is the kernel's default period of CPU quotas in microseconds.
	DefaultPeriodMicros = 100_000

	minQuotaMicros = 1000    // the smallest quota that the kernel accepts
	maxMilliCPU    = 1 << 40 // larger values would overflow
)

// Limits are those limits of a pod's cgroup that a resize can change. Zero means no limit.
type Limits struct {
	CPUShares                                    int64
	CPUQuotaMicros, CPUPeriodMicros, MemoryBytes int64
}

// Of returns the limits of the pod as a whole, including the pod's overhead. period is the
// period of CPU quotas. If period is zero, the limits have no CPU quota.
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

// Shares returns the CPU shares for a CPU request.
func Shares(milliCPU int64) int64 {
	return min(max(MinShares, min(milliCPU, maxMilliCPU)*SharesPerCore/1000), MaxShares)
}

// Quota returns the CPU quota for a CPU limit: microseconds of CPU time in each period.
func Quota(milliCPU, periodMicros int64) int64 {
	return max(minQuotaMicros, min(milliCPU, maxMilliCPU)*periodMicros/1000)
}
