package logrotate

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

// files are the operations on files that rotation is made of, below one root. A
// rotation may end after any of them, by a crash, and the next one must find a way
// on; so tests make each of them the last.
type files interface {
	// lstat does not follow a link.
	lstat(name string) (fs.FileInfo, error)
	list(dir string) ([]string, error)
	rename(from, to string) error
	// link gives a file a second name, which must be free.
	link(from, to string) error
	remove(name string) error
	// open opens a regular file; create makes one, whose name must be free.
	open(name string) (io.ReadCloser, error)
	create(name string, perm fs.FileMode) (newFile, error)
	setTime(name string, modified time.Time) error
	// syncDir makes the names in a folder durable.
	syncDir(dir string) error
}

// newFile is a file that is being written.
type newFile interface {
	io.WriteCloser
	Sync() error
}

// rootFiles are files below a folder, which they never leave.
type rootFiles struct{ root *os.Root }

func (r rootFiles) lstat(name string) (fs.FileInfo, error) { return r.root.Lstat(name) }
func (r rootFiles) rename(from, to string) error           { return r.root.Rename(from, to) }
func (r rootFiles) link(from, to string) error             { return r.root.Link(from, to) }
func (r rootFiles) remove(name string) error               { return r.root.Remove(name) }

func (r rootFiles) setTime(name string, modified time.Time) error {
	return r.root.Chtimes(name, time.Time{}, modified)
}

func (r rootFiles) list(dir string) ([]string, error) {
	f, err := r.root.Open(dir)
	if err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	return names, errors.Join(err, f.Close())
}

// errNotRegular says that something else is where a log should be, a link for
// instance. Logs are written by the runtime, which makes none.
var errNotRegular = errors.New("not a regular file")

func (r rootFiles) open(name string) (io.ReadCloser, error) {
	named, err := r.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, errNotRegular // opening a pipe would wait
	}
	f, err := r.root.Open(name)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(named, opened) {
		return nil, errors.Join(errNotRegular, err, f.Close())
	}
	return f, nil
}

func (r rootFiles) create(name string, perm fs.FileMode) (newFile, error) {
	f, err := r.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r rootFiles) syncDir(dir string) error {
	f, err := r.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readerUntil reads until ctx is done.
type readerUntil struct {
	ctx context.Context
	io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
