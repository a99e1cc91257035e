// Package safeopen opens files and folders that containers can write to, such as their
// logs.
//
// A container can replace its files at any time: by a link to a file of the node, by a pipe
// that blocks an open forever, or by a device on which an open has side effects. So no
// function of this package except [Place] follows a link below its root, and all functions
// check the type of a file before they open the file. A container could replace the file
// between the check and the open. Therefore a function opens exactly the file that it has
// checked, or compares the opened folder with the checked folder.
//
// On systems other than Linux the checks are weaker: a function may follow a link, and may
// detect a device or a pipe only after it has opened the device or the pipe.
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

// ErrNotRegular is returned by [File] if the file is not a regular file.
var ErrNotRegular = errors.New("not a regular file")

// asFolder is appended to a path, so that the kernel returns an error and opens nothing if
// the path is not a folder.
const asFolder = string(filepath.Separator) + "."

// Root opens a folder as os.OpenRoot does, but never opens a pipe or a device. It follows
// links in path. The caller closes the returned root.
func Root(path string) (*os.Root, error) { return os.OpenRoot(path + asFolder) }

// Folder opens a folder below root. It returns an error if any element of the path is a
// link or not a folder. The caller closes the returned root.
func Folder(root *os.Root, path string) (*os.Root, error) {
	if !filepath.IsLocal(path) {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("the path leads out of its root")}
	}
	path = filepath.Clean(path)
	if path == "." {
		return root.OpenRoot(path)
	}
	current := root
	for name := range strings.SplitSeq(path, string(filepath.Separator)) {
		next, err := step(current, name)
		if current != root {
			err = errors.Join(err, current.Close())
		}
		if err != nil {
			return nil, err
		}
		current = next
	}
	return current, nil
}

// maxExchanges is how often a folder may be replaced before step gives up.
const maxExchanges = 100

// step opens a folder in the folder parent. If the folder is replaced between the check and
// the open, step checks and opens again. So step returns an error if the replacement is a
// link.
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
// the path is a link, and [ErrNotRegular] if the file is not a regular file. It never
// blocks. The caller closes the returned file.
func File(root *os.Root, path string) (_ *os.File, err error) {
	dir := filepath.Dir(path)
	if dir == "." {
		return openFile(root, filepath.Base(path))
	}
	folder, err := Folder(root, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return openFile(folder, filepath.Base(path))
}

// Dir opens a folder below root, to list or sync the folder. It checks the path as [Folder]
// does. The caller closes the returned file.
func Dir(root *os.Root, path string) (_ *os.File, err error) {
	if filepath.Clean(path) == "." {
		return root.Open(".")
	}
	folder, err := Folder(root, path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	return folder.Open(".")
}

// ReadDir returns the entries of a folder below root, sorted by name. It checks the path as
// [Folder] does.
func ReadDir(root *os.Root, path string) ([]fs.DirEntry, error) {
	dir, err := Dir(root, path)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, errors.Join(err, dir.Close())
}

// ReadNames returns the sorted names of the entries of a folder below root. It checks the
// path as [Folder] does. Unlike [ReadDir], it does not read the types of the entries.
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
