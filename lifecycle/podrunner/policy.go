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

// Policy has the settings of pods that programs leave to their users. They do not change
// while the agent runs. The zero value is a node without a cluster and with the kernel's
// defaults.
type Policy struct {
	// ClusterDNS are the addresses of the cluster's DNS servers, which pods of the policy
	// ClusterFirst ask. Empty: they ask the node's.
	ClusterDNS []string
	// ClusterDomain is the domain of the cluster, such as cluster.local. Empty: none.
	ClusterDomain string
	// SeccompDefault is the profile of containers that name none: false is
	// Unconfined, true RuntimeDefault.
	SeccompDefault bool
	// UnsafeSysctls are the kernel parameters that pods may set in addition to the safe
	// ones: names, or prefixes that end in an asterisk. Each must belong to a namespace
	// of the pod.
	UnsafeSysctls []string
	// Limits is how requests and limits are enforced.
	Limits Limits
}

// Limits is how the requests and limits of pods are enforced. The zero value is the
// kernel's behaviour, without swap.
type Limits struct {
	// LimitedSwap gives Burstable containers that are not critical a part of the
	// node's swap: as much of it as they asked for of its memory (KEP-2400). Only
	// on cgroup v2.
	LimitedSwap bool
	// MemoryThrottling is where between request and limit a container is slowed
	// down (memory.high) instead of being killed, from 0 to 1 (KEP-2570). Zero: not
	// at all. Only on cgroup v2.
	MemoryThrottling float64
	// TieredMemoryReservation has the kernel keep the memory that a container
	// requests: of Guaranteed pods in any case (memory.min), of others as long as
	// there is other memory to take (memory.low). The kubelet's
	// memoryReservationPolicy. It has no effect without MemoryThrottling.
	TieredMemoryReservation bool
	// NoCPUQuota leaves CPU limits without effect, of containers and of pods.
	NoCPUQuota bool
	// CPUPeriod is the time in which a CPU quota is measured, from 1ms to 1s. Default
	// 100ms.
	CPUPeriod time.Duration
	// SingleProcessOOMKill has the kernel kill one process of a container, not all
	// of them. On cgroup v1 the kernel always does.
	SingleProcessOOMKill bool
}

// quotaPeriod returns the period of CPU quotas; zero if there are no quotas.
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
			errs = append(errs, fmt.Errorf("field UnsafeSysctls[%d]: %q is not a kernel parameter of a pod's namespace, or a prefix of some that ends in *", i, pattern))
		}
	}
	if !(p.Limits.MemoryThrottling >= 0 && p.Limits.MemoryThrottling <= 1) { // which refuses what is no number, too
		errs = append(errs, fmt.Errorf("field Limits.MemoryThrottling: %v is not between 0 and 1", p.Limits.MemoryThrottling))
	}
	if d := p.Limits.CPUPeriod; d != 0 && (d < time.Millisecond || d > time.Second) {
		errs = append(errs, fmt.Errorf("field Limits.CPUPeriod: %v is not between 1ms and 1s", d))
	}
	return errors.Join(errs...)
}
