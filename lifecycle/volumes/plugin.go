package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Plugin is one type of volume. SetUp, TearDown and Usage are called for different pods
// at once, and for one pod one at a time; Supports may be called at any time.
type Plugin interface {
	// Name names the plugin in errors and in the folder of its volumes, so that a
	// restarted agent finds the plugin of a volume without the pod. It never changes. The
	// kubelet's form is "example.com/type"; "/" is "~" in the folder's name.
	Name() string
	// Supports reports whether the volume is of this type. With an error the pod is
	// refused at admission: the volume is of this type and cannot be honoured. The error
	// names the field below the volume's source, such as "volumeAttributes"; the manager
	// puts spec.volumes[i] and the source in front of it. Supports does no I/O. Image
	// volumes are not offered.
	Supports(pod *corev1.Pod, v *corev1.Volume) (bool, error)
	// SetUp makes the volume ready and returns where it is. It is called before containers
	// of the pod start and, for a volume whose Dir exists, in each other sync of the pod,
	// also after a restart of the agent: it brings the contents up to date and returns at
	// once if nothing is to be done. An error keeps containers from starting and is
	// retried with back-off, unless it is an [OutdatedError].
	//
	// Dir is the record of the volume. A plugin makes it before anything that TearDown has
	// to undo. Without Dir nothing of the volume is on the node: TearDown is not called.
	SetUp(ctx context.Context, r Request) (Mount, error)
	// TearDown removes the volume when no container of the pod runs. The pod may be
	// unknown, and SetUp may have ended halfway. A volume that does not exist is success.
	// After a success the manager unmounts what is still mounted in Dir, and removes Dir
	// with all that is left in it. After an error all of Dir stays, and the call is
	// repeated.
	TearDown(ctx context.Context, r Ref) error
	// Usage returns what the volume uses. Nil: the node measures Dir by itself.
	Usage(ctx context.Context, r Ref) (*Usage, error)
}

// Ref names a volume of a pod.
type Ref struct {
	PodUID types.UID
	// Volume is the volume's name in the pod.
	Volume string
	// Dir is the folder for the volume's contents,
	// Root/pods/UID/volumes/PLUGIN/VOLUME. The plugin makes it; the folder above it exists.
	Dir string
}

// Request is what SetUp gets. Pod and Spec are not to be modified.
type Request struct {
	Ref
	Pod  *corev1.Pod
	Spec *corev1.Volume
	// Objects and Tokens are those of [Config]. They are never nil: without them in Config
	// each call returns an error.
	Objects podspec.Objects
	Tokens  podspec.TokenFunc

	batch *batch
}

// Mount is where a volume is on the node.
type Mount struct {
	// Path is what containers mount, usually Ref.Dir. Required.
	Path string
	// ReadOnly has containers mount the volume read-only, whatever they ask for.
	ReadOnly bool
}

// Usage is what a volume uses, in bytes and inodes. Zero capacity is unknown.
type Usage struct{ Used, Capacity, InodesUsed, Inodes int64 }

// An OutdatedError is the error of SetUp for a volume that could not be brought up to date
// and can be used as it is. SetUp returns the Mount, too. Containers start with the volume,
// and a sync in which none starts reports the error.
type OutdatedError struct{ Err error }

// Error returns the text of the cause.
func (e *OutdatedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OutdatedError) Unwrap() error { return e.Err }
