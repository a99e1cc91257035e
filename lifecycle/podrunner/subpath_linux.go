package podrunner

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// chmodInside sets the mode of a file in folder. If a pod has replaced the file
// with a link, the mode of the link's target does not change.
func chmodInside(folder *os.Root, name string, mode fs.FileMode) (err error) {
	f, err := safeopen.NamedPlace(folder, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return os.Chmod(safeopen.PathOf(f), mode)
}

// bindOpened bind-mounts an open file or directory on a path.
func bindOpened(from *os.File, onto string) error {
	if err := syscall.Mount(safeopen.PathOf(from), onto, "", syscall.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind", Path: onto, Err: err}
	}
	return nil
}

// unbindPath unmounts everything that is mounted on a path.
func unbindPath(path string) error {
	const noFollow = 0x8 // UMOUNT_NOFOLLOW
	for {
		err := syscall.Unmount(path, noFollow)
		switch {
		case err == nil:
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOENT):
			return nil // nothing is mounted there
		default:
			return &fs.PathError{Op: "unmount", Path: path, Err: err}
		}
	}
}
