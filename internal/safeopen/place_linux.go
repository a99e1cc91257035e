package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// oPath is O_PATH of open(2): the file is opened as a place only, and nothing is done
// to it. A link at the end of a path is opened as a link.
const oPath = 0x200000

// maxLinks is how many links one path may lead through, as in the kernel.
const maxLinks = 40

// Place opens what a path below root leads to as a place only: neither a device nor a
// pipe is touched, and a socket can be opened at all. Links are followed, but none out
// of root. The file can be examined, mounted and opened under its [PathOf], not read.
// The caller closes it.
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

// NamedPlace opens what a folder has under a name as a place only. A link is opened as
// a link. The caller closes it.
func NamedPlace(folder *os.Root, name string) (*os.File, error) {
	return folder.OpenFile(name, oPath, 0)
}

// PathOf returns a path that leads to what is open, whatever its name leads to by now.
func PathOf(f *os.File) string {
	return "/proc/self/fd/" + strconv.FormatUint(uint64(f.Fd()), 10)
}

// openFile opens a regular file of a folder. What it opens is what it has found to be
// one. The open does not wait for whoever has a lease on the file.
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
