package volumes

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Plugin handles one type of volume. SetUp, TearDown and Usage are called
// concurrently for different pods, but one at a time for one pod. Supports may
// be called at any time.
type Plugin interface {
	// Name returns the plugin's name, which is used in errors and as the name
	// of the directory that contains the plugin's volumes. After a restart, the
	// agent finds the plugin of a volume by the name of this directory. The
	// name must therefore never change. The kubelet's form is
	// "example.com/type"; the directory's name has "~" in place of "/".
	Name() string
	// Supports reports whether the volume is of this type. An error means that
	// the volume is of this type but cannot be supported; the pod is then
	// rejected at admission. The error names the field below the volume's
	// source, such as "volumeAttributes"; the manager adds spec.volumes[i] and
	// the source as a prefix. Supports must not do I/O. It is not called for
	// image volumes.
	Supports(pod *corev1.Pod, v *corev1.Volume) (bool, error)
	// SetUp sets up the volume and returns its path. It is called before
	// containers of the pod start. If Dir exists, SetUp is also called in each
	// later sync of the pod, to update the contents of the volume. This
	// includes syncs after a restart of the agent. SetUp should return at once
	// if nothing has changed. If SetUp returns an error, the containers do not
	// start, and the call is repeated after a back-off. An [OutdatedError] does
	// not prevent the start.
	//
	// The directory Dir records that the volume exists. SetUp must create Dir
	// before it does anything that TearDown must undo: TearDown is not called
	// for a volume whose Dir does not exist.
	SetUp(ctx context.Context, r Request) (Mount, error)
	// TearDown removes the volume. It is called when no container of the pod
	// runs. The pod object may no longer exist, and SetUp may have been
	// interrupted. TearDown returns nil for a volume that does not exist. If
	// TearDown succeeds, the manager unmounts everything that is still mounted
	// in Dir, and removes Dir with its contents. If TearDown fails, Dir stays,
	// and the next [Manager.Unmount] calls TearDown again.
	TearDown(ctx context.Context, r Ref) error
	// Usage returns the volume's usage. Nil means that the agent measures Dir
	// itself.
	Usage(ctx context.Context, r Ref) (*Usage, error)
}

// Ref identifies a volume of a pod.
type Ref struct {
	PodUID types.UID
	// Volume is the volume's name in the pod.
	Volume string
	// Dir is the directory for the volume's contents,
	// Root/pods/UID/volumes/PLUGIN/VOLUME. The plugin creates Dir; the parent
	// of Dir exists.
	Dir string
}

// Request is the argument of SetUp. Pod and Spec must not be modified.
type Request struct {
	Ref
	Pod  *corev1.Pod
	Spec *corev1.Volume
	// Objects and Tokens are the fields of [Config] with the same names. They
	// are never nil. If a field is nil in Config, its value here returns an error
	// for each object or token.
	Objects podspec.Objects
	Tokens  podspec.TokenFunc

	batch *batch
}

// Mount is the path of a volume on the node.
type Mount struct {
	// Path is the path that containers mount, usually Ref.Dir. Required.
	Path string
	// ReadOnly makes containers mount the volume read-only, whatever they
	// request.
	ReadOnly bool
}

// Usage is the usage of a volume, in bytes and inodes. Zero capacity means
// unknown.
type Usage struct{ Used, Capacity, InodesUsed, Inodes int64 }

// An OutdatedError is the error of SetUp for a volume whose contents could not
// be updated but can still be used. SetUp must also return the Mount.
// [Manager.Mount] ignores an OutdatedError, so containers start with the old
// contents. [Manager.Refresh] returns the error.
type OutdatedError struct{ Err error }

// Error returns the text of the cause.
func (e *OutdatedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OutdatedError) Unwrap() error { return e.Err }
