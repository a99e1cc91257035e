package requests

import (
	"reflect"
	"sync"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// Unexported parts of the kubelet's packages.

//go:linkname newRuntimeState k8s.io/kubernetes/pkg/kubelet.newRuntimeState
func newRuntimeState(time.Duration) unsafe.Pointer

//go:linkname setRuntimeHandlers k8s.io/kubernetes/pkg/kubelet.(*runtimeState).setRuntimeHandlers
func setRuntimeHandlers(unsafe.Pointer, []kubecontainer.RuntimeHandler)

//go:linkname pullSecretsForPod k8s.io/kubernetes/pkg/kubelet.(*Kubelet).getPullSecretsForPod
func pullSecretsForPod(*kubelet.Kubelet, klog.Logger, *corev1.Pod) []corev1.Secret

//go:linkname sortPodIPs k8s.io/kubernetes/pkg/kubelet.(*Kubelet).sortPodIPs
func sortPodIPs(*kubelet.Kubelet, []string) []string

//go:linkname podContainerName k8s.io/kubernetes/pkg/kubelet/cm.(*podContainerManagerImpl).GetPodContainerName
func podContainerName(unsafe.Pointer, *corev1.Pod) (cm.CgroupName, string)

// isCgroup2UnifiedMode decides which cgroups the kubelet writes requests for.
//
//go:linkname isCgroup2UnifiedMode k8s.io/kubernetes/pkg/kubelet/kuberuntime.isCgroup2UnifiedMode
var isCgroup2UnifiedMode func() bool

// hugePageSizes is what libcontainer found on the machine.
//
//go:linkname hugePageSizes github.com/opencontainers/cgroups.hugePageSizes
var hugePageSizes []string

// seLinux is what go-selinux found on the machine. The fields are those of its
// selinuxState.
//
//go:linkname seLinux github.com/opencontainers/selinux/go-selinux.state
var seLinux struct {
	mcsList       map[string]bool
	selinuxfs     string
	selinuxfsOnce sync.Once
	enabledSet    bool
	enabled       bool
	sync.Mutex
}

// setField sets a field of a struct that its package does not export.
func setField(target any, name string, value any) {
	field := reflect.ValueOf(target).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// setPointer is setField for a pointer to an unexported type.
func setPointer(target any, name string, value unsafe.Pointer) {
	field := reflect.ValueOf(target).Elem().FieldByName(name)
	*(*unsafe.Pointer)(unsafe.Pointer(field.UnsafeAddr())) = value
}
