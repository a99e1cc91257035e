package nodestatus

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Facts are the facts about a node. [Next] neither modifies nor retains them.
type Facts struct {
	// Capacity is the capacity of the machine: cpu, memory, ephemeral-storage and
	// hugepages-SIZE. Nil means that the machine could not be measured.
	Capacity corev1.ResourceList
	// Extended are the resources that device plugins and other programs add to the resources of
	// the machine.
	Extended Extended
	// MaxPods is the maximum number of pods of the node, and PodsPerCore the maximum number per
	// processor; the lower limit applies. If PodsPerCore is 0, only MaxPods applies. MaxPods has
	// no default.
	MaxPods, PodsPerCore int
	// Reserved are the resources that pods cannot use: systemReserved, kubeReserved and the
	// hard eviction thresholds.
	Reserved []corev1.ResourceList
	// NoLocalStorageIsolation is true if a kubelet's setting localStorageCapacityIsolation would
	// be false. The node can then be ready without ephemeral-storage in its capacity.
	NoLocalStorageIsolation bool

	// Info describes the machine and the agent. An empty field means unknown, and the previous
	// value is kept. ContainerRuntimeVersion, KubeProxyVersion and Swap are ignored.
	Info corev1.NodeSystemInfo
	// SwapBytes is the swap space of the machine, 0 if it has none.
	SwapBytes int64
	// Addresses are the addresses of the node.
	Addresses Addresses
	// Port is the port of the kubelet API, 0 if the agent does not serve it.
	Port int32

	// Runtime contains the last responses of the container runtime.
	Runtime Runtime
	// Images are the images on the node: see [Images].
	Images []corev1.ContainerImage

	// Pressure contains those of the conditions MemoryPressure, DiskPressure and PIDPressure that
	// are True.
	Pressure []corev1.NodeConditionType
	// Problems are the problems that the condition Ready shows.
	Problems Problems
}

// Extended are resources in addition to the resources of the machine.
type Extended struct {
	// Capacity contains all units of each resource, and Allocatable the healthy units. A resource
	// that its device plugin no longer offers must have a capacity of 0: a resource that is not
	// listed keeps its previous capacity, because another writer may have added it.
	Capacity, Allocatable corev1.ResourceList
}

// Runtime contains the last responses of a container runtime.
type Runtime struct {
	// Version is the response of the call Version. Nil means unknown: the previous version
	// is kept.
	Version *runtimeapi.VersionResponse
	// Status is the last response of the call Status; nil before the first response. A failed call
	// does not change it.
	Status *runtimeapi.StatusResponse
	// ReadyAt is when the runtime last reported that it is ready. The zero time means never.
	ReadyAt time.Time
}

// Next returns the current status of the node. previous is the status in the API server, or nil
// for a new node. The transition time of a condition changes only with its status. Values of
// other writers are kept.
func Next(previous *corev1.NodeStatus, f Facts, now time.Time) *corev1.NodeStatus {
	s := &corev1.NodeStatus{}
	if previous != nil {
		s = previous.DeepCopy()
	}
	setAddresses(s, f.Addresses)
	setResources(s, f)
	s.NodeInfo = nextInfo(s.NodeInfo, f)
	s.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: f.Port}}
	s.Images = copyImages(f.Images)
	setRuntime(s, f.Runtime.Status)
	setConditions(s, f, now)
	return s
}

// nextInfo returns the description of the machine and the agent. It omits the deprecated
// version of kube-proxy.
func nextInfo(previous corev1.NodeSystemInfo, f Facts) corev1.NodeSystemInfo {
	next := corev1.NodeSystemInfo{
		MachineID:               cmp.Or(f.Info.MachineID, previous.MachineID),
		SystemUUID:              cmp.Or(f.Info.SystemUUID, previous.SystemUUID),
		BootID:                  cmp.Or(f.Info.BootID, previous.BootID),
		KernelVersion:           cmp.Or(f.Info.KernelVersion, previous.KernelVersion),
		OSImage:                 cmp.Or(f.Info.OSImage, previous.OSImage),
		ContainerRuntimeVersion: previous.ContainerRuntimeVersion,
		KubeletVersion:          cmp.Or(f.Info.KubeletVersion, previous.KubeletVersion),
		OperatingSystem:         cmp.Or(f.Info.OperatingSystem, previous.OperatingSystem),
		Architecture:            cmp.Or(f.Info.Architecture, previous.Architecture),
	}
	if v := f.Runtime.Version; v != nil {
		next.ContainerRuntimeVersion = v.GetRuntimeName() + "://" + runtimeVersion(v.GetRuntimeVersion())
	}
	switch {
	case f.Capacity == nil:
		next.Swap = previous.Swap
	case f.SwapBytes > 0:
		next.Swap = &corev1.NodeSwapStatus{Capacity: &f.SwapBytes}
	}
	return next
}

// runtimeVersion returns a version in the form that the kubelet reports.
func runtimeVersion(text string) string {
	v, err := version.ParseSemantic(text)
	if err != nil {
		v, err = version.ParseGeneric(text)
	}
	if err != nil {
		return "Unknown"
	}
	return v.String()
}

// setRuntime sets the handlers and the features of the runtime. While the runtime is not ready,
// the previous values are kept.
func setRuntime(s *corev1.NodeStatus, answer *runtimeapi.StatusResponse) {
	if c := runtimeCondition(answer, runtimeapi.RuntimeReady); !c.GetStatus() {
		return
	}
	s.RuntimeHandlers = nil
	for _, h := range answer.GetRuntimeHandlers() {
		recursive, userNamespaces := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, corev1.NodeRuntimeHandler{
			Name:     h.GetName(),
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &userNamespaces},
		})
	}
	slices.SortStableFunc(s.RuntimeHandlers, func(a, b corev1.NodeRuntimeHandler) int { return strings.Compare(a.Name, b.Name) })
	if features := answer.GetFeatures(); features != nil {
		policy := features.GetSupplementalGroupsPolicy()
		s.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &policy}
	}
}
