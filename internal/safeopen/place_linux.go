package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// oPath is O_PATH of open(2). With this flag, open returns a reference to the file, and
// does not open the file for reading or writing. With this flag, [os.Root.OpenFile] does
// not follow a link at the end of the path, and returns a reference to the link.
const oPath = 0x200000

// maxLinks limits how many links at the end of a path Place follows one after the other.
// The kernel has the same limit.
const maxLinks = 40

// Place opens a reference (O_PATH) to the file at a path below root. Opening a reference
// has no effect on devices and pipes, and also works for sockets. Place follows links, but
// returns an error if a link leads out of root or has an absolute target. The caller can't
// read the returned file, but can call its Stat, and can mount or open the path that
// [PathOf] returns. The caller closes the returned file.
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

// NamedPlace opens a reference (O_PATH) to an entry of a folder. If the entry is a link,
// the reference is to the link itself. The caller closes the returned file.
func NamedPlace(folder *os.Root, name string) (*os.File, error) {
	return folder.OpenFile(name, oPath, 0)
}

// PathOf returns a path of the open file. The path is valid until f is closed, even if the
// file is renamed or replaced.
func PathOf(f *os.File) string {
	return "/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10)
}

// openFile opens a regular file of a folder. It opens exactly the file whose type it has
// checked. If another process has a lease on the file, openFile returns an error and does
// not wait.
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
