package logrotate

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"github.com/kubeparts/kubeparts/internal/safeopen"
)

// files are the file operations of rotation below a root. A crash may interrupt a rotation
// after any of these operations, and the next rotation must be able to continue.
// Therefore, tests stop a rotation after each of these operations.
type files interface {
	// lstat does not follow links.
	lstat(name string) (fs.FileInfo, error)
	list(dir string) ([]string, error)
	// rename and link work within a folder. The method link creates a hard link, and fails if
	// the new name exists.
	rename(from, to string) error
	link(from, to string) error
	remove(name string) error
	// open opens a regular file. create creates a file, and fails if the name exists.
	open(name string) (io.ReadCloser, error)
	create(name string, perm fs.FileMode) (newFile, error)
	setTime(name string, modified time.Time) error
	// syncDir syncs the names in a folder to disk.
	syncDir(dir string) error
}

// newFile is a file that is being written.
type newFile interface {
	io.WriteCloser
	Sync() error
}

// rootFiles implements the interface files for one root folder. Containers may be able to
// write to the folders of their logs, so rootFiles follows no links and uses no file outside
// the root folder.
type rootFiles struct{ root *os.Root }

// The method in opens the folder of a file. It calls the function do with this folder and
// the file's name in it.
func (r rootFiles) in(name string, do func(folder *os.Root, name string) error) error {
	folder, err := safeopen.Folder(r.root, path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(do(folder, path.Base(name)), folder.Close())
}

func (r rootFiles) lstat(name string) (info fs.FileInfo, err error) {
	err = r.in(name, func(folder *os.Root, name string) (err error) {
		info, err = folder.Lstat(name)
		return err
	})
	return info, err
}

func (r rootFiles) rename(from, to string) error {
	return r.in(from, func(folder *os.Root, from string) error { return folder.Rename(from, path.Base(to)) })
}

func (r rootFiles) link(from, to string) error {
	return r.in(from, func(folder *os.Root, from string) error { return folder.Link(from, path.Base(to)) })
}

func (r rootFiles) remove(name string) error {
	return r.in(name, (*os.Root).Remove)
}

func (r rootFiles) setTime(name string, modified time.Time) error {
	return r.in(name, func(folder *os.Root, name string) error { return folder.Chtimes(name, time.Time{}, modified) })
}

func (r rootFiles) list(dir string) ([]string, error) {
	f, err := safeopen.Dir(r.root, dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

func (r rootFiles) open(name string) (io.ReadCloser, error) {
	f, err := safeopen.File(r.root, name)
	if err != nil {
		return nil, err // f would be a nil *os.File in a non-nil interface
	}
	return f, nil
}

func (r rootFiles) create(name string, perm fs.FileMode) (file newFile, err error) {
	err = r.in(name, func(folder *os.Root, name string) error {
		f, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if err != nil {
			return err
		}
		if err := f.Chmod(perm); err != nil { // the umask may have cleared some bits
			return errors.Join(err, f.Close())
		}
		file = f
		return nil
	})
	return file, err
}

func (r rootFiles) syncDir(dir string) error {
	f, err := safeopen.Dir(r.root, dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// contextReader reads until ctx is done.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
