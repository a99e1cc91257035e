package podrunner

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubeparts/kubeparts/internal/podlimits"
)

// Policy holds settings of the node for its pods. Agents usually let their
// users choose these settings. The settings do not change while the agent runs.
// The zero value is for a node that is not in a cluster.
type Policy struct {
	// ClusterDNS are the addresses of the cluster's DNS servers, for pods with
	// the policy ClusterFirst. If empty, these pods use the node's DNS servers.
	ClusterDNS []string
	// ClusterDomain is the domain of the cluster, such as cluster.local. If
	// empty, the cluster has no domain.
	ClusterDomain string
	// SeccompDefault selects the seccomp profile of containers that request no
	// profile: RuntimeDefault if it is true, and Unconfined if it is false.
	SeccompDefault bool
	// UnsafeSysctls are the sysctls that pods may set in addition to the safe
	// sysctls. An entry is a name, or a prefix that ends in an asterisk. Each
	// sysctl must belong to a namespace of the pod.
	UnsafeSysctls []string
	// Limits configures how requests and limits are enforced.
	Limits Limits
}

// Limits configures how the requests and limits of pods are enforced. With the
// zero value, requests and limits are enforced without swap and without memory
// throttling.
type Limits struct {
	// LimitedSwap gives each container of a Burstable pod a part of the node's
	// swap, in proportion to its memory request (KEP-2400). Containers of
	// critical pods, and containers whose memory limit equals their request,
	// get no swap. LimitedSwap has an effect only on cgroup v2.
	LimitedSwap bool
	// MemoryThrottling is the point between request and limit, from 0 to 1, at
	// which a container is slowed down (memory.high) instead of being killed
	// (KEP-2570). Zero disables throttling. The setting has an effect only on
	// cgroup v2.
	MemoryThrottling float64
	// TieredMemoryReservation makes the kernel reserve the memory that a
	// container requests. For containers of Guaranteed pods, the kernel always
	// reserves this memory (memory.min). For other containers, it does so as
	// long as it can reclaim other memory (memory.low). The setting corresponds
	// to the kubelet's memoryReservationPolicy. It has no effect if
	// MemoryThrottling is zero.
	TieredMemoryReservation bool
	// NoCPUQuota disables the CPU limits of containers and of pods.
	NoCPUQuota bool
	// CPUPeriod is the period of CPU quotas, from 1ms to 1s. Default 100ms.
	CPUPeriod time.Duration
	// SingleProcessOOMKill makes the kernel kill one process of a container
	// instead of all of them. On cgroup v1 the kernel always kills one process.
	SingleProcessOOMKill bool
}

// quotaPeriod returns the period of CPU quotas, or zero if quotas are disabled.
func (l Limits) quotaPeriod() time.Duration {
	switch {
	case l.NoCPUQuota:
		return 0
	case l.CPUPeriod == 0:
		return podlimits.DefaultPeriodMicros * time.Microsecond
	default:
		return l.CPUPeriod
	}
}

// Validate reports every problem with p, joined.
func (p Policy) Validate() error {
	var errs []error
	for i, server := range p.ClusterDNS {
		if _, err := netip.ParseAddr(server); err != nil {
			errs = append(errs, fmt.Errorf("field ClusterDNS[%d]: %q is not an IP address", i, server))
		}
	}
	if p.ClusterDomain != "" {
		for _, problem := range validation.IsDNS1123Subdomain(strings.TrimSuffix(p.ClusterDomain, ".")) {
			errs = append(errs, fmt.Errorf("field ClusterDomain: %q: %s", p.ClusterDomain, problem))
		}
	}
	for i, pattern := range p.UnsafeSysctls {
		prefix, _ := strings.CutSuffix(dotted(pattern), "*")
		if sysctlNamespace(prefix) == "" || strings.ContainsAny(prefix, "* \t,") {
			errs = append(errs, fmt.Errorf("field UnsafeSysctls[%d]: %q is not a sysctl of a pod's namespace, or a prefix of sysctls that ends in *", i, pattern))
		}
	}
	if !(p.Limits.MemoryThrottling >= 0 && p.Limits.MemoryThrottling <= 1) { // also rejects NaN
		errs = append(errs, fmt.Errorf("field Limits.MemoryThrottling: %v is not between 0 and 1", p.Limits.MemoryThrottling))
	}
	if d := p.Limits.CPUPeriod; d != 0 && (d < time.Millisecond || d > time.Second) {
		errs = append(errs, fmt.Errorf("field Limits.CPUPeriod: %v is not between 1ms and 1s", d))
	}
	return errors.Join(errs...)
}
