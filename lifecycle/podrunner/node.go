package podrunner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Node describes the node and the agent for functions that configure pods. In
// the zero value nothing is known about the node, and pods that need facts
// about the node are rejected. A [Runner] makes a Node from its Config.
type Node struct {
	// Policy holds the agent's settings.
	Policy
	// Facts are the current facts about the node.
	Facts

	// Agent, LogRoot and SeccompRoot are the fields of [Config] with the same
	// names.
	Agent, LogRoot, SeccompRoot string
	// CgroupParent returns the parent cgroup of the pod's sandbox and
	// containers. If CgroupParent is nil or returns "", the runtime chooses the
	// cgroup.
	CgroupParent func(*corev1.Pod) string
	// UserNamespace returns the pod's IDs on the host. [IDRanges.Lookup]
	// implements UserNamespace. Nil: pods can't have user namespaces.
	UserNamespace func(types.UID) (IDRange, bool)
}

// Facts describe a node. They may change while the agent runs. In the zero
// value nothing is known about the node.
type Facts struct {
	// Name is the node's name. IPs are the node's addresses, the primary
	// address first.
	Name string
	IPs  []string
	// MemoryCapacityBytes is the size of the node's memory.
	MemoryCapacityBytes int64
	// Allocatable are the node's allocatable resources. [ResourceValue] uses
	// them in place of missing limits.
	Allocatable corev1.ResourceList
	// Objects reads the ConfigMaps and Secrets to which environment variables
	// refer. Nil: no ConfigMap or Secret exists.
	Objects podspec.Objects
	// Services returns the services of a namespace, for the environment
	// variables of containers. If Services returns an error, for example
	// because the services are not known yet, the container is not created.
	// Only containers of static pods are still created. Nil: the node is not in
	// a cluster and has no services.
	Services func(namespace string) ([]*corev1.Service, error)
	// NetworkErr is the reason why the runtime's network is not ready. While it
	// is set, sandboxes are created only for pods in the host network. Nil: the
	// network is ready.
	NetworkErr error
	// DNS is the node's own DNS configuration.
	DNS DNS
	// HostsFile is the content of the node's /etc/hosts, for pods in the host
	// network.
	HostsFile []byte
	// Cgroups describes which resources the node's cgroups can limit.
	Cgroups Cgroups
	// AppArmor and SELinux report whether they are enabled in the kernel.
	AppArmor, SELinux bool
	// RuntimeHandler returns the handler of a runtime class. Nil: no runtime
	// classes exist.
	RuntimeHandler func(className string) (string, error)
	// Handler returns the features of a runtime handler, from the runtime's
	// Status. Nil: the handlers have no optional features.
	Handler func(handler string) *runtimeapi.RuntimeHandlerFeatures
	// Runtime has the features of the runtime itself. Nil: the runtime has no
	// optional features.
	Runtime *runtimeapi.RuntimeFeatures
}

// Cgroups describes what a node's cgroups can limit. The zero value is cgroup
// v1 without swap accounting and without huge pages.
type Cgroups struct {
	// V2 reports whether the node has cgroup v2.
	V2 bool
	// SwapAccounting reports whether the kernel can limit swap. If so,
	// containers can use swap only according to [Limits].LimitedSwap.
	SwapAccounting bool
	// SwapCapacityBytes is the size of the node's swap.
	SwapCapacityBytes int64
	// HugePageSizes are the huge page sizes of the node, in bytes.
	HugePageSizes []int64
}

// features returns the features of the pod's runtime handler.
func (n Node) features(pod *corev1.Pod) *runtimeapi.RuntimeHandlerFeatures {
	handler, err := RuntimeHandler(pod, n)
	if err != nil || n.Handler == nil {
		return nil
	}
	return n.Handler(handler)
}
