package resources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Allocator assigns shares of a node's resource, such as devices, processors or
// licences, to pods. It is a [Ledger] and an admission handler: Admit reserves
// what the pod needs, or rejects the pod. If a later admission handler rejects
// the pod, the agent calls Release.
//
// The agent also calls Admit when a running pod is edited. Admit must then not
// change the pod's share: if a later handler rejects the edit, the agent does
// not notify the allocator, and the old version of the pod keeps running.
//
// If an allocator has no CPUs or memory nodes left for a container, Admit must
// reject the pod. Otherwise the container could use all CPUs or memory nodes,
// because empty CPUs or Mems mean "not set".
//
// If the share of one pod changes, the containers of other pods may get
// something else, for example other shared CPUs. The allocator must then
// request a sync of these pods. The sync calls Container.
type Allocator interface {
	Ledger
	lifecycle.AdmitHandler
}

// Ledger records what an allocator has assigned. The agent calls Restore, Admit
// and Release one at a time. It may call Container concurrently with these
// methods, and concurrently for several containers.
type Ledger interface {
	// Name returns the allocator's name for rejections, messages of waiting
	// containers, and metrics.
	Name() string
	// Restore is called once, before the first Admit. The statuses in found
	// describe those pods of this agent that still run in the runtime, with
	// their running and exited containers: see [podcache.Status.Running]. The
	// instances of one container are sorted, the newest first. The annotations
	// of containers include the Annotations of earlier Injections.
	Restore(ctx context.Context, found []*podcache.Status) error
	// Container returns what a container gets. The Runner calls Container
	// before it creates an instance, and in each sync of the pod while the
	// instance runs. For a running container only CPUs, Mems and Health have an
	// effect. If Container returns an error, a container that is about to be
	// created waits, and a running container is not changed. A later sync calls
	// Container again.
	Container(ctx context.Context, r ContainerRequest) (Injection, error)
	// Release releases the share of a pod that was rejected or has ended for
	// good. The agent may call Release for a pod without a share.
	Release(pod types.UID)
}

// ContainerRequest identifies the instance of a container for which
// [Ledger].Container is called. The Ledger must not modify the request.
type ContainerRequest struct {
	Pod *corev1.Pod
	// Container is the container in the pod's spec. It may be an ephemeral
	// container.
	Container *corev1.Container
	// ID is the runtime's ID of the running instance. It is empty if the
	// instance is about to be created.
	ID string
}

// Injection is what a container gets in addition to its spec. If the spec has a
// variable with the same name or a mount at the same path, the spec takes
// precedence, as in the kubelet: the mount in the spec hides the injected
// mount. The Runner does not modify the objects to which an Injection refers.
type Injection struct {
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Env has environment variables by name.
	Env    map[string]string
	Mounts []*runtimeapi.Mount
	// Annotations are annotations of the container in the runtime. Annotations
	// that the agent sets itself, such as io.kubernetes.container.restartCount,
	// take precedence.
	Annotations map[string]string
	// CPUs and Mems are lists of CPUs and memory nodes in the format of
	// cpuset.cpus and cpuset.mems, such as "0-3,8". Empty means not set: a new
	// container may use all CPUs or memory nodes, and the list of a running
	// container does not change.
	CPUs, Mems string
	// Health is the container's allocatedResourcesStatus (KEP-4680). Each
	// resource must occur only once.
	Health []corev1.ResourceStatus
}
