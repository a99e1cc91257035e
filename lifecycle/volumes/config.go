package volumes

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// FailedMount is the reason of the kubelet's event on a volume that can't be
// mounted.
const FailedMount = "FailedMount"

// Mounter mounts and unmounts. [NewMounter] makes the system's.
type Mounter interface {
	// Tmpfs mounts an empty tmpfs with mode 0600 on a folder. Size 0 leaves the
	// size to the system.
	Tmpfs(target string, sizeBytes int64) error
	// Unmount unmounts what is on target, if anything is, and follows no link there.
	Unmount(target string) error
	// Mounts returns what is mounted, in the order of mounting.
	Mounts() ([]MountPoint, error)
}

// Config configures a [Manager].
type Config struct {
	// Root is the folder under which pods' volumes are, the kubelet's
	// /var/lib/kubelet. It is made if it is missing, and may be a symbolic link.
	// Required, absolute.
	Root string
	// Plugins are asked before the built-in types; the first that supports a volume gets
	// it. No two plugins have the same name, built-in types included.
	Plugins []Plugin
	// Objects finds ConfigMaps and Secrets. Optional; without it volumes that show them
	// are refused.
	Objects podspec.Objects
	// Allocatable returns what the node has for pods: what a container without a limit
	// is told its limit is, and the bound of emptyDir volumes in memory. It is called
	// for each such volume. Optional; without it resourceFieldRef of an absent limit is
	// refused.
	Allocatable func() corev1.ResourceList
	// Tokens requests tokens of the pod's service account. The request has the audience,
	// none for the API server's, the lifetime, and the pod as its bound object. Optional;
	// without it serviceAccountToken is refused.
	Tokens podspec.TokenFunc
	// Mounter mounts. Default [NewMounter].
	Mounter Mounter
	// Clock names the versions of a volume's contents. Default the system clock.
	Clock clock.PassiveClock
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
			errs = append(errs, fmt.Errorf("field Plugins[%d]: %q can't be the name of a plugin", i, name))
		case seen[name]:
			errs = append(errs, fmt.Errorf("field Plugins[%d]: there are several plugins of the name %q", i, name))
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
	return c
}

// An Error is why a volume can't be used.
type Error struct {
	// Volume is its name, Type the field that says what it is, as in the API.
	Volume, Type string
	// Err is the cause.
	Err error
}

// Error is the text of the kubelet's event, whose reason is [FailedMount].
func (e *Error) Error() string {
	return fmt.Sprintf("MountVolume.SetUp failed for volume %q : %v", e.Volume, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// allocatable returns what the node has for pods, nothing if that is not known.
func (c Config) allocatable() corev1.ResourceList {
	if c.Allocatable == nil {
		return nil
	}
	return c.Allocatable()
}
