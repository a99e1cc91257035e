package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// oPath is O_PATH of open(2): it returns a reference to the file without opening it for
// reading or writing. A link at the end of a path is not followed.
const oPath = 0x200000

// maxLinks is the maximum number of links that are followed for one path, as in the kernel.
const maxLinks = 40

// Place opens a reference (O_PATH) to the file at a path below root. This has no effect on
// devices and pipes, and works for sockets. Links are followed, but not out of root. The
// returned file cannot be read, but it can be examined, and mounted or opened by its
// [PathOf]. The caller closes it.
func Place(root *os.Root, path string) (*os.File, error) {
	for range maxLinks {
		f, err := root.OpenFile(path, oPath, 0)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && info.Mode().Type() != fs.ModeSymlink {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		target, err := root.Readlink(path)
		if err != nil {
			return nil, err
		}
		if filepath.IsAbs(target) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("a link leads out of the folder")}
		}
		folder, _ := cutName(path)
		path = folder + target
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
}

// NamedPlace opens a reference (O_PATH) to an entry of a folder. It does not follow a link.
// The caller closes it.
func NamedPlace(folder *os.Root, name string) (*os.File, error) {
	return folder.OpenFile(name, oPath, 0)
}

// PathOf returns a path of the open file, which is valid even if the file was renamed or
// replaced.
func PathOf(f *os.File) string {
	return "/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10)
}

// openFile opens a regular file of a folder. It opens exactly the file whose type it
// checked. It does not wait if another process has a lease on the file.
func openFile(folder *os.Root, name string) (_ *os.File, err error) {
	place, err := NamedPlace(folder, name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: filepath.Join(folder.Name(), name), Err: causeOf(err)}
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	info, err := place.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := os.OpenFile(PathOf(place), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(folder.Name(), name), Err: causeOf(err)}
	}
	return f, nil
}
