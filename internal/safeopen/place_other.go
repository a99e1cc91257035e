//go:build !linux

package safeopen

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Place opens the file at a path below root. It follows links, but returns an error if a
// link leads out of root or has an absolute target. The caller closes the returned file.
func Place(root *os.Root, path string) (*os.File, error) {
	return root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func openFile(folder *os.Root, name string) (*os.File, error) {
	named, err := folder.Lstat(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: filepath.Join(folder.Name(), name), Err: causeOf(err)}
	}
	if !named.Mode().IsRegular() {
		return nil, ErrNotRegular
	}
	f, err := folder.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(named, opened) {
		return nil, errors.Join(ErrNotRegular, err, f.Close())
	}
	return f, nil
}
