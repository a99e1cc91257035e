package resources

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Allocator gives pods a share of something that the node has: devices, processors,
// licences. It is an admission handler with a [Ledger]: Admit reserves what the pod needs,
// or refuses the pod. If a later allocator refuses the pod, Release follows.
//
// Admit is also called for an edit of a pod that runs. It must not change the share that the
// pod has: if a later handler refuses the edit, the allocator is not told, and the version
// before the edit goes on.
//
// An allocator whose share for a container would be empty must refuse the pod in Admit:
// empty CPUs and Mems mean "not set", so that the container would run on all of them.
//
// A change of one pod's share may change what other containers get, such as the CPUs that
// are left to them. The allocator then has to have their pods synced: Container is called
// in each sync.
type Allocator interface {
	Ledger
	lifecycle.AdmitHandler
}

// Ledger is what an allocator remembers. Restore, Admit and Release are called one at a
// time. Container may be called at the same time as them, for several containers.
type Ledger interface {
	// Name names the allocator in refusals, in the messages of containers that wait, and
	// in metrics.
	Name() string
	// Restore is called once, before the first Admit, with what the runtime has of this
	// agent's pods that have not ended: their containers that run and those that have
	// exited, the newest instance of a container first among those of its name. The
	// annotations of containers are those of earlier Injections.
	Restore(ctx context.Context, found []*podcache.Status) error
	// Container returns what a container gets. It is called before each instance is
	// created, and in each sync of its pod while it runs. Of a running container only
	// CPUs, Mems and Health have an effect. An error keeps a container that is to be
	// created waiting; one that runs stays as it is. Both are tried again.
	Container(ctx context.Context, r ContainerRequest) (Injection, error)
	// Release takes back the share of a pod of which nothing runs and nothing will. It may
	// be called for a pod without a share.
	Release(pod types.UID)
}

// ContainerRequest is one instance of a container. Nothing in it may be modified.
type ContainerRequest struct {
	Pod *corev1.Pod
	// Container is the container of the pod's spec, also an ephemeral one.
	Container *corev1.Container
	// ID is the running instance. Empty: it is about to be created.
	ID string
}

// Injection is what a container gets in addition to its spec. What the spec has too wins,
// as in the kubelet: a variable of the same name, and a mount at the same path, which is
// mounted over it. Nothing that an Injection refers to is modified.
type Injection struct {
	Devices    []*runtimeapi.Device
	CDIDevices []*runtimeapi.CDIDevice
	// Env has environment variables by name.
	Env    map[string]string
	Mounts []*runtimeapi.Mount
	// Annotations are those of the container in the runtime. Those that the agent sets
	// itself, such as io.kubernetes.container.restartCount, win.
	Annotations map[string]string
	// CPUs and Mems are lists as in cpuset.cpus and cpuset.mems, such as "0-3,8". Empty
	// means not set: a new container may use all, and a running one keeps what it has.
	CPUs, Mems string
	// Health is the container's allocatedResourcesStatus (KEP-4680), each resource once.
	Health []corev1.ResourceStatus
}
