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

// builtIn returns the plugins for the volume types that need no storage system,
// with the kubelet's names.
func builtIn(cfg *Config) []Plugin {
	withContents := func(name string, kept medium) contents {
		return contents{local: local{name: name, cfg: cfg}, kept: kept}
	}
	return []Plugin{
		emptyDirPlugin{local{name: "kubernetes.io/empty-dir", cfg: cfg}},
		hostPathPlugin{local{name: "kubernetes.io/host-path", cfg: cfg}},
		configMapPlugin{withContents("kubernetes.io/configmap", onDisk)},
		secretPlugin{withContents("kubernetes.io/secret", inMemory)},
		downwardPlugin{withContents("kubernetes.io/downward-api", inMemory)},
		projectedPlugin{withContents("kubernetes.io/projected", inMemory)},
	}
}

// local is the common part of the built-in plugins.
type local struct {
	name string
	cfg  *Config
}

// Name implements [Plugin].
func (l local) Name() string { return l.name }

// TearDown implements [Plugin]. The manager unmounts and removes Dir, so there
// is nothing to do.
func (local) TearDown(context.Context, Ref) error { return nil }

// Usage implements [Plugin].
func (local) Usage(context.Context, Ref) (*Usage, error) { return nil, nil }

// dir returns the volume's directory below the root.
func (l local) dir(r Ref) string { return folderOf(r.PodUID, l.name, r.Volume) }

// modeNotReady is the mode of a volume's directory until SetUp has set the
// directory's group and final mode. If the directory still has this mode in the
// next SetUp, the previous SetUp was interrupted. SetUp assumes that no
// container gives the directory this mode, because only root could then enter
// the directory. The usual umasks do not change this mode.
const modeNotReady fs.FileMode = 0o600

// folder creates a volume's directory with its mode and group. It does not
// change a directory that is ready.
func (l local) folder(r Request) error { return l.makeFolder(r, nil) }

// memoryFolder creates a volume's directory like folder, and mounts a tmpfs on
// the directory. If sizeBytes is 0, the tmpfs has the system's default size.
func (l local) memoryFolder(r Request, sizeBytes int64) error {
	return l.makeFolder(r, func() error { return l.mountMemory(r, sizeBytes) })
}

func (l local) makeFolder(r Request, mount func() error) (err error) {
	dir := l.dir(r.Ref)
	parent, err := r.batch.root.OpenRoot(path.Dir(dir))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	name := path.Base(dir)
	if err := parent.Mkdir(name, modeNotReady); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if mount != nil {
		if err := mount(); err != nil {
			return err
		}
	}
	info, err := parent.Lstat(name)
	if err != nil || info.Mode() != fs.ModeDir|modeNotReady {
		return err
	}
	group := fsGroup(r.Pod)
	if group != nil {
		if err := parent.Lchown(name, -1, int(*group)); err != nil {
			return err
		}
	}
	mode := modeFor(0o777, true, group)
	if mount != nil {
		mode |= fs.ModeSticky // a tmpfs has this bit by default, and the kubelet keeps it
	}
	return parent.Chmod(name, mode)
}

// mountMemory mounts a tmpfs on the volume's directory. If the directory is a
// mount point already, mountMemory does nothing.
func (l local) mountMemory(r Request, sizeBytes int64) error {
	dir := l.dir(r.Ref)
	if isMountPoint(r.batch.root, dir) {
		return nil
	}
	mounts, err := r.batch.mounts()
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	top, err := filepath.EvalSymlinks(l.cfg.Root) // the mount table contains resolved paths
	if err != nil {
		return err
	}
	at := filepath.Join(top, filepath.FromSlash(dir))
	if slices.Contains(below(mounts, filepath.ToSlash(at)), filepath.ToSlash(at)) {
		return nil
	}
	// Reject a path with a symbolic link: mount(2) would follow the link, and mount
	// the tmpfs on another directory.
	switch real, err := filepath.EvalSymlinks(at); {
	case err != nil:
		return fmt.Errorf("could not mount a tmpfs: %w", err)
	case real != at:
		return fmt.Errorf("could not mount a tmpfs on %s: its path contains a symbolic link", at)
	}
	return l.cfg.Mounter.Tmpfs(at, sizeBytes)
}

// isMountPoint reports whether a directory is on another device than its
// parent. If so, the mount table need not be read. isMountPoint does not detect
// a bind mount from the same device.
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

// SetUp implements [Plugin]. It does not create Dir, so the manager does not
// refresh the volume or tear it down.
func (hostPathPlugin) SetUp(_ context.Context, r Request) (Mount, error) {
	at, err := hostPath(r.Spec.HostPath)
	return Mount{Path: at}, err
}

type emptyDirPlugin struct{ local }

// Supports implements [Plugin]. A volume without a source is an emptyDir.
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

// memorySize returns the size of a memory-backed volume: the smallest of its
// size limit, the pod's memory limit and the node's allocatable memory. It is 0
// if none of them is set.
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

// podMemoryLimit returns the pod-level memory limit. If it is not set,
// podMemoryLimit returns the sum of the containers' memory limits, or 0 if a
// container has no limit.
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
	// Init containers that are not sidecars end before the regular containers
	// start. Adding their limits can make the sum too high, but never too low.
	for i := range pod.Spec.InitContainers {
		limit := pod.Spec.InitContainers[i].Resources.Limits.Memory().Value()
		if limit <= 0 {
			return 0
		}
		sum += limit
	}
	return sum
}
