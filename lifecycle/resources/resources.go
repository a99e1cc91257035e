package resources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Allocator assigns pods shares of a resource of the node: devices, processors,
// licences. It is an admission handler with a [Ledger]: Admit reserves what the
// pod needs, or rejects the pod. If a later allocator rejects the pod, Release
// is called.
//
// Admit is also called for an edit of a running pod. It must not change the
// share that the pod has: if a later handler rejects the edit, the allocator is
// not notified, and the old version keeps running.
//
// An allocator whose share for a container would be empty must reject the pod
// in Admit: empty CPUs and Mems mean "not set", so the container would run on
// all of them.
//
// A change of one pod's share may change what other containers get, such as the
// remaining CPUs. The allocator must then request a sync of their pods:
// Container is called in each sync.
// in each sync.
type Allocator interface {
	Ledger
	lifecycle.AdmitHandler
}

// Ledger records what an allocator has assigned. Restore, Admit and Release are
// called one at a time. Container may be called concurrently with them and for
// several containers.
type Ledger interface {
	// Name returns the allocator's name for rejections, messages of waiting
	// containers, and metrics.
	Name() string
	// Restore is called once, before the first Admit, with the runtime's state
	// of this agent's pods that have not ended. It has their running and exited
	// containers, for each name the newest instance first. The annotations of
	// containers are those of earlier Injections.
	Restore(ctx context.Context, found []*podcache.Status) error
	// Container returns what a container gets. It is called before each
	// instance is created, and in each sync of its pod while it runs. For a
	// running container only CPUs, Mems and Health have an effect. After an
	// error, a new container waits and a running one is not changed; the call
	// is retried.
	Container(ctx context.Context, r ContainerRequest) (Injection, error)
	// Release releases the share of a pod that has ended for good. It may be
	// called for a pod without a share.
	Release(pod types.UID)
}

// ContainerRequest is about one instance of a container. It must not be
// modified.
type ContainerRequest struct {
	Pod *corev1.Pod
	// Container is the container of the pod's spec, also an ephemeral one.
	Container *corev1.Container
	// ID is the ID of the running instance. Empty: it is about to be created.
	ID string
}

// Injection is what a container gets in addition to its spec. In a conflict the
// spec takes precedence, as in the kubelet: a variable of the same name, and a
// mount at the same path, which is mounted on top. Objects that an Injection
// refers to are not modified.
type Injection struct {
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Env has environment variables by name.
	Env    map[string]string
	Mounts []*runtimeapi.Mount
	// Annotations are annotations of the container in the runtime. Those that
	// the agent sets itself, such as io.kubernetes.container.restartCount, take
	// precedence.
	Annotations map[string]string
	// CPUs and Mems are lists as in cpuset.cpus and cpuset.mems, such as
	// "0-3,8". Empty means not set: a new container may use all, and a running
	// one keeps its own.
	CPUs, Mems string
	// Health is the container's allocatedResourcesStatus (KEP-4680), each resource once.
	Health []corev1.ResourceStatus
}
