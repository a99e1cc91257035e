package volumes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FailedMount is the reason of the kubelet's event about a volume that can't be
// mounted.
const FailedMount = "FailedMount"

// Mounter mounts and unmounts. [NewMounter] returns the Mounter of this system.
type Mounter interface {
	// Tmpfs mounts an empty tmpfs with mode 0600 on a directory. Size 0 means
	// the system's default size.
	Tmpfs(target string, sizeBytes int64) error
	// Unmount unmounts target. It returns nil if nothing is mounted on target.
	// It does not follow links.
	Unmount(target string) error
	// Mounts returns the mounts in the order of mounting.
	Mounts() ([]MountPoint, error)
}

// Config configures a [Manager].
type Config struct {
	// Root is the directory that contains the pods' volumes. In the kubelet it
	// is /var/lib/kubelet. The Manager creates Root if it is missing. Root may
	// be a symbolic link. Required; the path must be absolute.
	Root string
	// Plugins are tried before the built-in types; the first plugin that
	// supports a volume handles it. The names of all plugins, including the
	// built-in plugins, must be unique.
	Plugins []Plugin
	// Objects reads ConfigMaps and Secrets. Optional. If nil, volumes that need
	// ConfigMaps or Secrets are rejected.
	Objects podspec.Objects
	// Allocatable returns the node's allocatable resources. They replace a
	// missing limit in the downward API, and limit the size of emptyDir volumes
	// in memory. It is called each time that a configMap, secret, downwardAPI
	// or projected volume, or an emptyDir in memory, is set up or updated.
	// Optional. If nil, a volume with a resourceFieldRef to a missing limit of
	// a resource other than hugepages can't be mounted.
	Allocatable func() corev1.ResourceList
	// Tokens requests tokens of the pod's service account. The request has the
	// audience, the lifetime, and the pod as its bound object. Without an
	// audience, the token is for the API server. Optional. If nil, volumes with
	// a serviceAccountToken are rejected.
	Tokens podspec.TokenFunc
	// Mounter mounts and unmounts. Default [NewMounter].
	Mounter Mounter
	// Clock is used for the names of versions of a volume's contents, and for
	// the durations in an [Operation]. Default the system clock.
	Clock clock.PassiveClock
	// Observer has callbacks for metrics. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called during Mount, Refresh and
// Unmount, concurrently for different pods, and must not block.
type Observer struct {
	// Mounted is called after each attempt to set up a volume, in Mount and in
	// Refresh.
	Mounted func(Operation)
	// TornDown is called after each call of TearDown of a plugin. It is not
	// called for a volume that has no directory, such as a hostPath.
	TornDown func(Operation)
	// Unmounted is called when no volume of a pod is left.
	Unmounted func(pod types.UID)
}

// An Operation describes an operation on a volume.
type Operation struct {
	// PodUID is the UID of the pod, Volume is the name of the volume in the
	// pod, and Plugin is the name of its plugin.
	PodUID types.UID
	Volume string
	Plugin string
	// Took is the duration of the operation. Total is the time from the start
	// of Mount to the end of the operation. Total is zero for operations
	// outside of Mount.
	Took, Total time.Duration
	// Err is the error of the operation.
	Err error
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Root == "" {
		errs = append(errs, errors.New("field Root is required"))
	} else if !filepath.IsAbs(c.Root) {
		errs = append(errs, fmt.Errorf("field Root: %q is not absolute", c.Root))
	}
	seen := map[string]bool{}
	for _, p := range builtIn(&c) {
		seen[p.Name()] = true
	}
	for i, p := range c.Plugins {
		if p == nil {
			errs = append(errs, fmt.Errorf("field Plugins[%d] is nil", i))
			continue
		}
		name := p.Name()
		switch {
		case !isElement(folderName(name)) || strings.Contains(name, "~"):
			errs = append(errs, fmt.Errorf("field Plugins[%d]: %q is not a valid plugin name", i, name))
		case seen[name]:
			errs = append(errs, fmt.Errorf("field Plugins[%d]: plugin name %q is used twice", i, name))
		}
		seen[name] = true
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Root = filepath.Clean(c.Root)
	if c.Mounter == nil {
		c.Mounter = NewMounter()
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Observer.Mounted == nil {
		c.Observer.Mounted = func(Operation) {}
	}
	if c.Observer.TornDown == nil {
		c.Observer.TornDown = func(Operation) {}
	}
	if c.Observer.Unmounted == nil {
		c.Observer.Unmounted = func(types.UID) {}
	}
	return c
}

// An Error describes why a volume can't be used.
type Error struct {
	// Volume is the name of the volume, and Type is the API field of its
	// source.
	Volume, Type string
	// Err is the cause.
	Err error
}

// Error returns the text of the kubelet's event, whose reason is [FailedMount].
func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// allocatable returns the node's allocatable resources, nil if they are
// unknown.
func (c Config) allocatable() corev1.ResourceList {
	if c.Allocatable == nil {
		return nil
	}
	return c.Allocatable()
}
