package podrunner

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"syscall"
)

// oPath opens a file as a place only (open(2), O_PATH): a device or a pipe is not
// touched, and a socket can be opened at all.
const oPath = 0x200000

// openBelow opens a path as a place. With O_PATH a link at its end is opened as a
// link, which is no place: it is resolved by the opening that follows links, and
// only within root.
func openBelow(root *os.Root, path string) (*os.File, error) {
	f, err := root.OpenFile(path, oPath, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return f, nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

// chmodInside sets the mode of what folder has under a name. A pod may have put a
// link there: what the link leads to keeps its mode.
func chmodInside(folder *os.Root, name string, mode fs.FileMode) (err error) {
	f, err := folder.OpenFile(name, oPath, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return os.Chmod(pathOf(f), mode)
}

// pathOf returns a path that leads to what is open, whatever its name leads to by
// now.
func pathOf(f *os.File) string {
	return "/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10)
}

// bindOpened mounts what is open in from onto a path.
func bindOpened(from *os.File, onto string) error {
	if err := syscall.Mount(pathOf(from), onto, "", syscall.MS_BIND, ""); err != nil {
		return &fs.PathError{Op: "bind", Path: onto, Err: err}
	}
	return nil
}

// unbindPath unmounts all that is mounted on a path, if anything is.
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
