package volumes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

const (
	// maxDepth is the depth at which nested directories are moved up before
	// they are removed.
	maxDepth = 64
	// volumeDepth is the depth of a volume's directory below the directory of
	// all volumes.
	volumeDepth = 2
	// removeChunk is how many entries of a directory are read at a time.
	removeChunk = 1024
)

// A remover removes a directory that containers have filled. os.Root.RemoveAll
// keeps every directory from the root to the current file open, and a container
// can nest more directories than the agent can open. The remover therefore
// first moves directories at maxDepth up to the volume's directory.
type remover struct {
	root   *os.Root
	volume string // the directory of the volume that is being removed
	moved  int
}

// remove removes the file or directory with the given name from its parent.
// file is the path of this file or directory below the root.
func (r *remover) remove(parent *os.Root, name, file string, depth int) error {
	err := removed(parent.Remove(name))
	if err == nil {
		return nil
	}
	info, errStat := parent.Lstat(name)
	if errors.Is(errStat, fs.ErrNotExist) {
		return nil
	}
	if errStat != nil || !info.IsDir() {
		return fmt.Errorf("%s: %w", path.Dir(file), err)
	}
	switch depth {
	case volumeDepth:
		r.volume = file
	case maxDepth:
		return r.moveUp(file)
	}
	if err := r.empty(parent, name, file, depth); err != nil {
		return err
	}
	if err := removed(parent.Remove(name)); err != nil {
		return fmt.Errorf("%s: %w", path.Dir(file), err)
	}
	return nil
}

// removed returns err, or nil if err means that the file does not exist.
func removed(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// empty removes the contents of a directory. It reads the directory from the
// beginning after each chunk, because removals change the order of the entries.
// It stops when no entry of a chunk can be removed.
func (r *remover) empty(parent *os.Root, name, file string, depth int) (err error) {
	folder, err := safeopen.Folder(parent, name)
	if err != nil {
		return removed(err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	for {
		names, err := readNames(folder)
		if err != nil || len(names) == 0 {
			return removed(err)
		}
		var errs []error
		for _, name := range names {
			if err := r.remove(folder, name, path.Join(file, name), depth+1); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) == len(names) {
			return errors.Join(errs...)
		}
	}
}

func readNames(folder *os.Root) ([]string, error) {
	f, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(removeChunk)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, errors.Join(err, f.Close())
}

// moveUp moves a directory into the directory of its volume, where it is
// removed later.
func (r *remover) moveUp(file string) error {
	for {
		r.moved++
		err := r.root.Rename(file, path.Join(r.volume, fmt.Sprintf(".removing-%d", r.moved)))
		if !errors.Is(err, fs.ErrExist) { // after ErrExist, try the next name: a container may have created this file
			return removed(err)
		}
	}
}
