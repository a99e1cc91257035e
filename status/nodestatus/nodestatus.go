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

// Facts are what an agent knows of its node. [Next] neither modifies nor retains them.
type Facts struct {
	// Capacity is what the machine has: cpu, memory, ephemeral-storage and hugepages-SIZE.
	// Nil means that the machine could not be measured.
	Capacity corev1.ResourceList
	// Extended are the resources of device plugins and others that add to the machine.
	Extended Extended
	// MaxPods is how many pods the node runs, and PodsPerCore how many for each processor, if
	// that is less. 0 pods per core means no such limit; MaxPods has no default.
	MaxPods, PodsPerCore int
	// Reserved is what pods can't have: systemReserved, kubeReserved and what hard eviction
	// keeps free.
	Reserved []corev1.ResourceList
	// NoLocalStorageIsolation is the kubelet's localStorageCapacityIsolation: false. The node
	// is then ready without ephemeral-storage in its capacity.
	NoLocalStorageIsolation bool

	// Info is what the machine and the agent are. An empty field is unknown, and its
	// previous value stays. ContainerRuntimeVersion, KubeProxyVersion and Swap are not read.
	Info corev1.NodeSystemInfo
	// SwapBytes is the swap space of the machine, 0 if it has none.
	SwapBytes int64
	// Addresses are the addresses of the node.
	Addresses Addresses
	// Port is the port of the kubelet API, 0 if the agent does not serve it.
	Port int32

	// Runtime is what the container runtime has answered.
	Runtime Runtime
	// Images are the images on the node: see [Images].
	Images []corev1.ContainerImage

	// Pressure has the conditions that eviction found to hold: MemoryPressure, DiskPressure,
	// PIDPressure.
	Pressure []corev1.NodeConditionType
	// Problems keep the node from being ready.
	Problems Problems
}

// Extended are resources that are none of the machine's own.
type Extended struct {
	// Capacity has all units, and Allocatable those that are healthy. A resource that
	// its plugin no longer offers has a capacity of 0: one that is not listed keeps its
	// previous capacity, because others may have added it.
	Capacity, Allocatable corev1.ResourceList
}

// Runtime is what a container runtime has answered.
type Runtime struct {
	// Version is the answer to Version. Nil means unknown: the previous version stays.
	Version *runtimeapi.VersionResponse
	// Status is the last answer to Status, nil before the first one. A failed call changes
	// nothing.
	Status *runtimeapi.StatusResponse
	// ReadyAt is when the runtime last answered that it is ready. The zero time means never.
	ReadyAt time.Time
}

// Next returns the status of the node now. previous is the status before, as the API server has
// it: its conditions keep their transition times, and what others have written into it stays. Nil
// means that the node is new.
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

// nextInfo returns what the machine and the agent are. The deprecated version of kube-proxy
// is left out.
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

// setRuntime sets what the runtime and its handlers can do. The previous values stay until the
// runtime is ready.
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
