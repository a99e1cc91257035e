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
	"k8s.io/apimachinery/pkg/types"
)

// folderOf is where a volume is below the root, in the kubelet's layout.
func folderOf(uid types.UID, v *corev1.Volume) string {
	plugin := "kubernetes.io~empty-dir"
	switch {
	case v.ConfigMap != nil:
		plugin = "kubernetes.io~configmap"
	case v.Secret != nil:
		plugin = "kubernetes.io~secret"
	case v.DownwardAPI != nil:
		plugin = "kubernetes.io~downward-api"
	case v.Projected != nil:
		plugin = "kubernetes.io~projected"
	}
	return path.Join(podsDir, string(uid), volumesDir, plugin, v.Name)
}

// mount makes one volume ready and returns where it is, nothing for those that
// the runtime mounts.
func (l *Local) mount(ctx context.Context, root *os.Root, m *maker, v *corev1.Volume) (string, error) {
	switch {
	case v.Image != nil:
		return "", nil
	case v.HostPath != nil:
		return hostPath(v.HostPath)
	}
	dir := folderOf(m.pod.UID, v)
	if err := l.fill(ctx, root, m, v, dir); err != nil {
		if ready, readErr := isFilled(root, dir); !ready {
			return "", errors.Join(err, readErr)
		}
		// Its containers go on with what it shows. Refresh returns the error.
	}
	return filepath.Join(l.cfg.Root, filepath.FromSlash(dir)), nil
}

// fill makes a volume's folder and has it show what it is to show.
func (l *Local) fill(ctx context.Context, root *os.Root, m *maker, v *corev1.Volume, dir string) error {
	// Before the folder: what can't be had leaves nothing behind.
	p, err := m.make(ctx, &v.VolumeSource)
	if err != nil {
		return err
	}
	if err := p.validate(); err != nil {
		return err
	}
	if err := l.makeFolder(root, m.pod, v, dir); err != nil || p == nil {
		return err
	}
	return l.write(root, m.pod, dir, p)
}

// isFilled reports whether a volume shows a version of its contents. The link to
// it is there only where Mount was done, after its tmpfs.
func isFilled(root *os.Root, dir string) (bool, error) {
	_, err := root.Readlink(path.Join(dir, dataLink))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// write makes a volume's folder show p.
func (l *Local) write(root *os.Root, pod *corev1.Pod, dir string, p payload) error {
	volume, err := root.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = volume.Close() }()
	_, err = writer{root: volume, group: fsGroup(pod), now: l.cfg.Clock.Now()}.write(p)
	return err
}

// unready is the mode of a volume's folder until its owner is set, so that the
// next attempt sees what was cut short. Programs do set the mode of their folders,
// 0700 for one, but none to this: nobody could enter. No umask changes it.
const unready fs.FileMode = 0o600

// makeFolder makes a volume's folder, on disk or in memory, with the mode and
// group that it is to have. One that is ready is left as its users made it.
func (l *Local) makeFolder(root *os.Root, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	if err := root.MkdirAll(path.Dir(dir), 0o750); err != nil {
		return err
	}
	if err := root.Mkdir(dir, unready); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if inMemory(v) {
		if err := l.mountMemory(root, pod, v, dir); err != nil {
			return err
		}
	}
	info, err := root.Lstat(dir)
	if err != nil || info.Mode() != fs.ModeDir|unready {
		return err
	}
	group := fsGroup(pod)
	if group != nil {
		if err := root.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
	}
	return root.Chmod(dir, modeFor(0o777, true, group))
}

// mountMemory mounts a tmpfs where there is none yet.
func (l *Local) mountMemory(root *os.Root, pod *corev1.Pod, v *corev1.Volume, dir string) error {
	targets, err := l.mounted(dir)
	if err != nil {
		return err
	}
	top, err := filepath.EvalSymlinks(root.Name())
	if err != nil {
		return err
	}
	at := filepath.Join(top, filepath.FromSlash(dir))
	if slices.Contains(targets, filepath.ToSlash(at)) {
		return nil
	}
	// Mounts go by path: a link on the way would lead them elsewhere.
	if real, err := filepath.EvalSymlinks(at); err != nil || real != at {
		return fmt.Errorf("%s is not a folder of ours", at)
	}
	size := int64(0)
	if isEmptyDir(v) {
		size = memorySize(pod, v.EmptyDir, l.cfg.Allocatable)
	}
	return l.cfg.Mounter.Tmpfs(at, size)
}

func isEmptyDir(v *corev1.Volume) bool {
	return v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil && v.Projected == nil
}

// inMemory says whether a volume is a tmpfs: secrets and what may hold some never
// touch a disk.
func inMemory(v *corev1.Volume) bool {
	return v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil ||
		v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory
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
