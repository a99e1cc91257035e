// Package safeopen opens files and folders that containers can write to, such as their
// logs.
//
// A container can replace such a file at any time: by a link to a file of the node, by a
// pipe on which an open blocks for ever, or by a device on which an open has side effects.
// So no function of this package follows a link below its root, except [Place], and none
// opens a file before it knows the file's type. A check of a path before the open is not
// enough, because the file can be replaced in between.
//
// On systems other than Linux the checks are weaker: links can be followed, and devices and
// pipes are detected only after they were opened.
package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// ErrNotRegular is returned by [File] for anything but a regular file.
var ErrNotRegular = errors.New("not a regular file")

// asFolder, appended to a path, makes the kernel reject anything but a folder without
// opening it.
const asFolder = string(filepath.Separator) + "."

// Root opens a folder like os.OpenRoot, but never opens a pipe or a device. It follows
// links in the path. The caller closes the root.
func Root(path string) (*os.Root, error) { return os.OpenRoot(path + asFolder) }

// Folder opens a folder below root. It returns an error if any element of the path is a
// link or not a folder. The caller closes the returned root.
func Folder(root *os.Root, path string) (*os.Root, error) {
	if !filepath.IsLocal(path) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("the path leads out of its root")}
	}
	current, err := root.OpenRoot(asFolder[1:])
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(filepath.Clean(path), string(filepath.Separator)) {
		next, err := step(current, name)
		if err := errors.Join(err, current.Close()); err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

// maxExchanges is how often a folder may be replaced while it is opened.
const maxExchanges = 100

// step opens a folder in another one. If the folder is replaced between the check and the
// open, step tries again, and then detects whether it was replaced by a link.
func step(parent *os.Root, name string) (*os.Root, error) {
	for range maxExchanges {
		named, err := parent.Lstat(name)
		if err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: filepath.Join(parent.Name(), name), Err: causeOf(err)}
		}
		if !named.IsDir() {
			break
		}
		folder, err := parent.OpenRoot(name + asFolder)
		if err != nil {
			return nil, err
		}
		opened, err := folder.Stat(".")
		if err == nil && os.SameFile(named, opened) {
			return folder, nil
		}
		if err := errors.Join(err, folder.Close()); err != nil {
			return nil, err
		}
	}
	return nil, &fs.PathError{Op: "open", Path: filepath.Join(parent.Name(), name), Err: syscall.ENOTDIR}
}

func causeOf(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// File opens a regular file below root for reading. It returns an error if any element of
// the path is a link, and [ErrNotRegular] for anything but a regular file. It never blocks.
// The caller closes the file.
func File(root *os.Root, path string) (_ *os.File, err error) {
	folder, err := Folder(root, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return openFile(folder, filepath.Base(path))
}

// Dir opens a folder below root for listing or syncing it, under the rules of [Folder].
// The caller closes it.
func Dir(root *os.Root, path string) (_ *os.File, err error) {
	folder, err := Folder(root, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return folder.Open(".")
}

// ReadDir returns the entries of a folder below root, sorted by name, under the rules of
// [Folder].
func ReadDir(root *os.Root, path string) ([]fs.DirEntry, error) {
	dir, err := Dir(root, path)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, dir.Close())
}

// ReadNames returns the names in a folder below root, sorted, under the rules of [Folder].
// Unlike [ReadDir] it does not read the types of the entries.
func ReadNames(root *os.Root, path string) ([]string, error) {
	dir, err := Dir(root, path)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, dir.Close())
}

// cutName splits a path into its folder, with a trailing separator, and its last element.
func cutName(path string) (folder, name string) {
	path = strings.TrimRight(path, string(filepath.Separator))
	at := strings.LastIndexByte(path, filepath.Separator) + 1
	return path[:at], path[at:]
}
