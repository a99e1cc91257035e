package podrunner

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Node is what a pod's configuration takes from its node and agent. Its zero
// value is a node of which nothing is known: what needs more is refused.
type Node struct {
	// Agent marks what is made (see Config.Agent).
	Agent string
	// Name and IPs are the node's, the primary address first.
	Name string
	IPs  []string
	// LogRoot is the folder of all pods' logs.
	LogRoot string
	// MemoryCapacityBytes is the node's memory.
	MemoryCapacityBytes int64
	// Allocatable is what the node has for pods; a resourceFieldRef to a limit
	// that is not set shows it.
	Allocatable corev1.ResourceList
	// Objects are the ConfigMaps and Secrets that environments refer to. Nil:
	// there are none.
	Objects podspec.Objects
	// Services returns the services of a namespace, for the variables that containers
	// get for them. An error keeps the container from being created, such as that the
	// services are not known yet. Nil: the node is in no cluster, and there are none.
	Services func(namespace string) ([]*corev1.Service, error)
	// DNS is what resolv.conf files are made of.
	DNS DNS
	// HostsFile is the content of the node's own /etc/hosts, for pods in its
	// network.
	HostsFile []byte
	// Cgroups is how the node's limits work.
	Cgroups Cgroups
	// CgroupParent returns the cgroup in which the pod's sandbox and containers
	// go. Nil, or empty: where the runtime puts them.
	CgroupParent func(*corev1.Pod) string
	// SeccompRoot is the folder of seccomp profiles of type Localhost. Empty:
	// there are none.
	SeccompRoot string
	// SeccompDefault is the profile of containers that name none: false is
	// Unconfined, true RuntimeDefault.
	SeccompDefault bool
	// AppArmor and SELinux say that the kernel enforces them.
	AppArmor, SELinux bool
	// UnsafeSysctls are allowed besides those that are safe: names, or prefixes
	// that end in an asterisk.
	UnsafeSysctls []string
	// RuntimeHandler returns the handler of a runtime class. Nil: there are no
	// runtime classes.
	RuntimeHandler func(className string) (string, error)
	// Handler says what a runtime handler can do, as the runtime's Status shows
	// it. Nil: nothing that is optional.
	Handler func(handler string) *runtimeapi.RuntimeHandlerFeatures
	// Runtime says what the runtime can do besides. Nil: nothing that is optional.
	Runtime *runtimeapi.RuntimeFeatures
	// UserNamespace returns the IDs that the pod has in the host's numbers;
	// [IDRanges.Lookup] fits. Nil: pods can't have user namespaces.
	UserNamespace func(types.UID) (IDRange, bool)
}

// Cgroups is how a node's limits work. The zero value is cgroup v1 without swap
// accounting and without huge pages.
type Cgroups struct {
	// V2 says that the node has the unified hierarchy.
	V2 bool
	// SwapAccounting says that the kernel can limit swap. Containers get none of
	// it then, but for those that LimitedSwap gives some.
	SwapAccounting bool
	// LimitedSwap gives Burstable containers that are not critical a part of the
	// node's swap: as much of it as they asked for of its memory (KEP-2400). Only
	// on cgroup v2.
	LimitedSwap bool
	// SwapCapacityBytes is the node's swap.
	SwapCapacityBytes int64
	// MemoryThrottling is where between request and limit a container is slowed
	// down (memory.high) instead of being killed, from 0 to 1 (KEP-2570). Zero: not
	// at all. Only on cgroup v2.
	MemoryThrottling float64
	// TieredMemoryReservation has the kernel keep the memory that a container
	// requests: of Guaranteed pods in any case (memory.min), of others as long as
	// there is other memory to take (memory.low). The kubelet's
	// memoryReservationPolicy. It has no effect without MemoryThrottling.
	TieredMemoryReservation bool
	// HugePageSizes are the sizes of huge pages that the node has, in bytes.
	HugePageSizes []int64
	// NoCPUQuota leaves limits of cpu without effect.
	NoCPUQuota bool
	// CPUPeriod is the time in which a quota is measured. Default 100ms.
	CPUPeriod time.Duration
	// SingleProcessOOMKill has the kernel kill one process of a container, not all
	// of them. cgroup v1 knows nothing else.
	SingleProcessOOMKill bool
}

// features are what the pod's runtime handler can do.
func (n Node) features(pod *corev1.Pod) *runtimeapi.RuntimeHandlerFeatures {
	handler, err := RuntimeHandler(pod, n)
	if err != nil || n.Handler == nil {
		return nil
	}
	return n.Handler(handler)
}
