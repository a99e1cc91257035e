package podrunner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// SubPathMount describes a part of a volume that a container mounts.
type SubPathMount struct {
	// Container and Index identify the mount: the container's
	// volumeMounts[Index].
	Container string
	Index     int
	// Volume is the volume's name, and HostPath its path on the node.
	Volume, HostPath string
	// SubPath is the path in the volume, relative and without "..".
	SubPath string
}

// SubPaths prepares parts of volumes for mounting into the containers of one
// pod. A process that can write to a volume can change the volume while a
// container is being created. If the agent checked a path and the runtime
// mounted it later, the process could replace the path in between with a link
// to a file of the node (CVE-2017-1002101, CVE-2021-25741). Therefore SubPaths
// opens the target of a subPath without leaving the volume, and then
// bind-mounts the target on a path in the pod's directory, which no pod can
// change. The runtime mounts that path. SubPaths works only on Linux, and needs
// the permission to mount.
type SubPaths struct {
	// PodDir is the pod's directory, which no pod can write to.
	PodDir string

	bind   func(from *os.File, onto string) error // nil: the system call
	unbind func(path string) error                // nil: the system call
}

// SubPathsOf returns the SubPaths of a pod whose directory is below podRoot.
func SubPathsOf(podRoot string, uid types.UID) (SubPaths, error) {
	if err := checkFolders(string(uid)); err != nil {
		return SubPaths{}, fmt.Errorf("sub-paths of a pod: %w", err)
	}
	return SubPaths{PodDir: filepath.Join(podRoot, string(uid))}, nil
}

// Prepare bind-mounts the sub-path m and returns the path for the runtime: a
// file or a directory PodDir/volume-subpaths/VOLUME/CONTAINER/INDEX, as in the
// kubelet. Missing directories are created with the mode of the volume,
// independent of the umask. A mount of an earlier instance of the container is
// removed first. Prepare implements [Instance].SubPath.
func (s SubPaths) Prepare(m SubPathMount) (hostPath string, err error) {
	if err := checkFolders(m.Volume, m.Container); err != nil {
		return "", fmt.Errorf("prepare sub-path: %w", err)
	}
	root, err := safeopen.Root(m.HostPath)
	if err != nil {
		return "", fmt.Errorf("prepare sub-path: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	from, err := openOrMake(root, m.SubPath)
	if err != nil {
		return "", fmt.Errorf("prepare sub-path: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	info, err := from.Stat()
	if err != nil {
		return "", fmt.Errorf("prepare sub-path: %w", err)
	}
	onto := filepath.Join(s.folder(), m.Volume, m.Container, strconv.Itoa(m.Index))
	if err := s.clear(onto); err != nil {
		return "", err
	}
	if err := makeMountPoint(onto, info.IsDir()); err != nil {
		return "", fmt.Errorf("prepare sub-path: %w", err)
	}
	bind := s.bind
	if bind == nil {
		bind = bindOpened
	}
	if err := bind(from, onto); err != nil {
		return "", errors.Join(fmt.Errorf("prepare sub-path: %w", err), os.Remove(onto))
	}
	return onto, nil
}

// Clean unmounts all sub-paths of the pod. The pod's containers must have
// ended. Clean returns nil if the pod has no sub-paths.
func (s SubPaths) Clean() error {
	bound, err := fs.Glob(os.DirFS(s.folder()), "*/*/*")
	if err != nil {
		return fmt.Errorf("clean up sub-paths: %w", err)
	}
	var errs []error
	for _, path := range bound {
		errs = append(errs, s.clear(filepath.Join(s.folder(), path)))
	}
	if err := errors.Join(errs...); err != nil {
		return err // keep the directories: a path that is still mounted shows the volume's data
	}
	return removeFolders(s.folder())
}

func (s SubPaths) folder() string { return filepath.Join(s.PodDir, "volume-subpaths") }

// clear unmounts a path and removes the empty mount point.
func (s SubPaths) clear(path string) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	unbind := s.unbind
	if unbind == nil {
		unbind = unbindPath
	}
	if err := unbind(path); err != nil {
		return fmt.Errorf("unmount sub-path: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmount sub-path: %w", err)
	}
	return nil
}

// openOrMake opens a path below root. If the path does not exist, openOrMake
// creates it as a directory, with its parents.
func openOrMake(root *os.Root, path string) (*os.File, error) {
	f, err := safeopen.Place(root, path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, err
	}
	folder, err := openOrMakeFolder(root, path, info.Mode())
	if err != nil {
		return nil, err
	}
	if err := folder.Close(); err != nil {
		return nil, err
	}
	return safeopen.Place(root, path)
}

// openOrMakeFolder opens a directory below root. It creates missing directories
// with exactly the given mode, independent of the agent's umask. Otherwise
// users of the volume might not be able to write.
func openOrMakeFolder(root *os.Root, path string, mode fs.FileMode) (_ *os.Root, err error) {
	folder, err := root.OpenRoot(path + "/.") // with /., only a directory can be opened, not a pipe or a device
	if !errors.Is(err, fs.ErrNotExist) {
		return folder, err
	}
	parent, err := openOrMakeFolder(root, filepath.Dir(path), mode)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	name := filepath.Base(path)
	switch err := parent.Mkdir(name, mode.Perm()); {
	case errors.Is(err, fs.ErrExist): // created by another pod that shares the volume
	case err != nil:
		return nil, err
	default:
		if err := chmodInside(parent, name, mode); err != nil {
			return nil, err
		}
	}
	return parent.OpenRoot(name + "/.")
}

func makeMountPoint(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o750)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

// removeFolders removes a tree that contains only directories. If the tree
// contains anything else, removeFolders returns an error, because this may be
// data of a user.
func removeFolders(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("clean up sub-paths: %w", err)
	}
	for _, e := range entries {
		if err := removeFolders(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("clean up sub-paths: %w", err)
	}
	return nil
}
