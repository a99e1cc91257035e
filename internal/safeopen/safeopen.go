// Package safeopen opens files and folders that containers can write to, such as their
// logs.
//
// A container can put anything in the place of such a file, at any moment: a link to a
// file of the node's, a pipe on which an open waits for ever, a device on which an open
// acts. So no function here follows a link below its root, with [Place] as the only
// exception, and none opens anything before it knows what that is. Nothing is known of
// a path that was looked at before it is opened.
//
// Links are followed, and devices and pipes are found late, where the kernel is not Linux.
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

// ErrNotRegular is the error of [File] for anything but a regular file.
var ErrNotRegular = errors.New("not a regular file")

// asFolder at the end of a path has the kernel refuse what is no folder without opening it.
const asFolder = string(filepath.Separator) + "."

// Root opens a folder as os.OpenRoot does, but never a pipe or a device in its place.
// Links in the path are followed. The caller closes the root.
func Root(path string) (*os.Root, error) { return os.OpenRoot(path + asFolder) }

// Folder opens a folder below root. A link anywhere in the path, or anything else that
// is no folder, is an error. The caller closes the returned root.
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

// maxExchanges is how often something may take a folder's place while it is opened.
const maxExchanges = 100

// step opens a folder in another one. A folder that is removed and made again meanwhile
// is looked at again; so is a link that took its place, which then is found to be one.
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

// File opens a regular file below root for reading. A link anywhere in the path is an
// error, anything that is no regular file is [ErrNotRegular]. It never waits. The caller
// closes the file.
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
// Unlike [ReadDir] it does not examine what has the names.
func ReadNames(root *os.Root, path string) ([]string, error) {
	dir, err := Dir(root, path)
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, dir.Close())
}

// cutName splits a path into its folder, with the separator, and its last element.
func cutName(path string) (folder, name string) {
	path = strings.TrimRight(path, string(filepath.Separator))
	at := strings.LastIndexByte(path, filepath.Separator) + 1
	return path[:at], path[at:]
}
