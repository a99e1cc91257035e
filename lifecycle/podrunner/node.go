package podrunner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Node is what a pod's configuration takes from its node and agent. Its zero
// value is a node of which nothing is known: what needs more is refused. A [Runner]
// makes it of its Config.
type Node struct {
	// Policy has the agent's settings.
	Policy
	// Facts are what the node is now.
	Facts

	// Agent, LogRoot and SeccompRoot are those of [Config].
	Agent, LogRoot, SeccompRoot string
	// CgroupParent returns the cgroup in which the pod's sandbox and containers
	// go. Nil, or empty: where the runtime puts them.
	CgroupParent func(*corev1.Pod) string
	// UserNamespace returns the IDs that the pod has in the host's numbers;
	// [IDRanges.Lookup] fits. Nil: pods can't have user namespaces.
	UserNamespace func(types.UID) (IDRange, bool)
}

// Facts are what a node is, which may change while its agent runs. The zero value is a
// node of which nothing is known.
type Facts struct {
	// Name and IPs are the node's, the primary address first.
	Name string
	IPs  []string
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
	// DNS is the node's own DNS configuration.
	DNS DNS
	// HostsFile is the content of the node's own /etc/hosts, for pods in its
	// network.
	HostsFile []byte
	// Cgroups is what the node's cgroups can limit.
	Cgroups Cgroups
	// AppArmor and SELinux report that the kernel enforces them.
	AppArmor, SELinux bool
	// RuntimeHandler returns the handler of a runtime class. Nil: there are no
	// runtime classes.
	RuntimeHandler func(className string) (string, error)
	// Handler returns what a runtime handler can do, as the runtime's Status shows
	// it. Nil: nothing that is optional.
	Handler func(handler string) *runtimeapi.RuntimeHandlerFeatures
	// Runtime is what the runtime can do besides. Nil: nothing that is optional.
	Runtime *runtimeapi.RuntimeFeatures
}

// Cgroups is what a node's cgroups can limit. The zero value is cgroup v1 without swap
// accounting and without huge pages.
type Cgroups struct {
	// V2 reports that the node has the unified hierarchy.
	V2 bool
	// SwapAccounting reports that the kernel can limit swap. Containers get none of
	// it then, but for those to which [Limits].LimitedSwap gives some.
	SwapAccounting bool
	// SwapCapacityBytes is the node's swap.
	SwapCapacityBytes int64
	// HugePageSizes are the sizes of huge pages that the node has, in bytes.
	HugePageSizes []int64
}

// features are what the pod's runtime handler can do.
func (n Node) features(pod *corev1.Pod) *runtimeapi.RuntimeHandlerFeatures {
	handler, err := RuntimeHandler(pod, n)
	if err != nil || n.Handler == nil {
		return nil
	}
	return n.Handler(handler)
}
