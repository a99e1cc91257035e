package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// builtIn returns the types of volumes that need nothing but this node, under the
// kubelet's names.
func builtIn(cfg *Config) []Plugin {
	shows := func(name string, kept medium) contents {
		return contents{local: local{name: name, cfg: cfg}, kept: kept}
	}
	return []Plugin{
		emptyDirPlugin{local{name: "kubernetes.io/empty-dir", cfg: cfg}},
		hostPathPlugin{local{name: "kubernetes.io/host-path", cfg: cfg}},
		configMapPlugin{shows("kubernetes.io/configmap", onDisk)},
		secretPlugin{shows("kubernetes.io/secret", inMemory)},
		downwardPlugin{shows("kubernetes.io/downward-api", inMemory)},
		projectedPlugin{shows("kubernetes.io/projected", inMemory)},
	}
}

// local is what the built-in types have in common.
type local struct {
	name string
	cfg  *Config
}

// Name implements [Plugin].
func (l local) Name() string { return l.name }

// TearDown implements [Plugin]. The manager unmounts and removes Dir, which is all there is.
func (local) TearDown(context.Context, Ref) error { return nil }

// Usage implements [Plugin].
func (local) Usage(context.Context, Ref) (*Usage, error) { return nil, nil }

// dir is the volume's folder below the root.
func (l local) dir(r Ref) string { return folderOf(r.PodUID, l.name, r.Volume) }

// unready is the mode of a volume's folder until its owner is set, so that the
// next attempt sees what was cut short. Programs do set the mode of their folders,
// 0700 for one, but none to this: nobody could enter. No umask changes it.
const unready fs.FileMode = 0o600

// folder makes a volume's folder with the mode and group that it is to have. One that is
// ready is left as its users made it.
func (l local) folder(r Request) error { return l.makeFolder(r, nil) }

// memoryFolder is folder with a tmpfs on it, of the system's size if sizeBytes is zero.
func (l local) memoryFolder(r Request, sizeBytes int64) error {
	return l.makeFolder(r, func() error { return l.mountMemory(r, sizeBytes) })
}

func (l local) makeFolder(r Request, mount func() error) error {
	root, dir := r.batch.root, l.dir(r.Ref)
	if err := root.Mkdir(dir, unready); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if mount != nil {
		if err := mount(); err != nil {
			return err
		}
	}
	info, err := root.Lstat(dir)
	if err != nil || info.Mode() != fs.ModeDir|unready {
		return err
	}
	group := fsGroup(r.Pod)
	if group != nil {
		if err := root.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
	}
	return root.Chmod(dir, modeFor(0o777, true, group))
}

// mountMemory mounts a tmpfs where there is none yet.
func (l local) mountMemory(r Request, sizeBytes int64) error {
	dir := l.dir(r.Ref)
	if isMountPoint(r.batch.root, dir) {
		return nil
	}
	mounts, err := r.batch.mounts()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	top, err := filepath.EvalSymlinks(l.cfg.Root) // mounts are listed by their true paths
	if err != nil {
		return err
	}
	at := filepath.Join(top, filepath.FromSlash(dir))
	if slices.Contains(below(mounts, filepath.ToSlash(at)), filepath.ToSlash(at)) {
		return nil
	}
	// Mounts go by path: a link on the way would lead them elsewhere.
	if real, err := filepath.EvalSymlinks(at); err != nil || real != at {
		return fmt.Errorf("%s is not a folder of ours", at)
	}
	return l.cfg.Mounter.Tmpfs(at, sizeBytes)
}

// isMountPoint reports whether a folder is on another device than the folder above it, so
// that the table of mounts need not be read. Of mounts of the same device it knows nothing.
func isMountPoint(root *os.Root, dir string) bool {
	inside, err := root.Lstat(dir)
	above, errAbove := root.Lstat(path.Dir(dir))
	return err == nil && errAbove == nil && onOtherDevices(inside, above)
}

type hostPathPlugin struct{ local }

// Supports implements [Plugin].
func (hostPathPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	return v.HostPath != nil, nil
}

// SetUp implements [Plugin]. There is no Dir: nothing is brought up to date or torn down.
func (hostPathPlugin) SetUp(_ context.Context, r Request) (Mount, error) {
	at, err := hostPath(r.Spec.HostPath)
	return Mount{Path: at}, err
}

type emptyDirPlugin struct{ local }

// Supports implements [Plugin]. A volume that does not say what it is, is an emptyDir.
func (emptyDirPlugin) Supports(_ *corev1.Pod, v *corev1.Volume) (bool, error) {
	if v.EmptyDir == nil {
		return v.VolumeSource == corev1.VolumeSource{}, nil
	}
	if m := v.EmptyDir.Medium; m != corev1.StorageMediumDefault && m != corev1.StorageMediumMemory {
		return true, fmt.Errorf("emptyDir with medium %s is not supported", m)
	}
	return true, nil
}

// SetUp implements [Plugin].
func (e emptyDirPlugin) SetUp(_ context.Context, r Request) (Mount, error) {
	source := r.Spec.EmptyDir
	if source == nil || source.Medium != corev1.StorageMediumMemory {
		return Mount{Path: r.Dir}, e.folder(r)
	}
	return Mount{Path: r.Dir}, e.memoryFolder(r, memorySize(r.Pod, source, e.cfg.allocatable()))
}

// memorySize bounds a volume in memory by the smallest of its own limit, the pod's
// and the node's, 0 if there is none of them.
func memorySize(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource, allocatable corev1.ResourceList) (size int64) {
	smaller := func(n int64) {
		if n > 0 && (size == 0 || n < size) {
			size = n
		}
	}
	smaller(allocatable.Memory().Value())
	smaller(podMemoryLimit(pod))
	if source != nil && source.SizeLimit != nil {
		smaller(source.SizeLimit.Value())
	}
	return size
}

// podMemoryLimit is the pod's own limit, or what its containers may use at once,
// 0 if one of them has no limit.
func podMemoryLimit(pod *corev1.Pod) (sum int64) {
	if r := pod.Spec.Resources; r != nil && r.Limits.Memory().Value() > 0 {
		return r.Limits.Memory().Value()
	}
	for i := range pod.Spec.Containers {
		limit := pod.Spec.Containers[i].Resources.Limits.Memory().Value()
		if limit <= 0 {
			return 0
		}
		sum += limit
	}
	// Init containers run before, sidecars beside; a bound that is too wide by
	// one of them is none too narrow.
	for i := range pod.Spec.InitContainers {
		limit := pod.Spec.InitContainers[i].Resources.Limits.Memory().Value()
		if limit <= 0 {
			return 0
		}
		sum += limit
	}
	return sum
}
