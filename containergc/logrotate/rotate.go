package logrotate

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"
)

// rotation is the work on one log.
type rotation struct {
	files
	log      string // its path below the root
	maxFiles int
	now      time.Time
	// reopen makes the runtime write to a file of the log's name, which it makes if
	// there is none.
	reopen func(context.Context) error
}

// run rotates the log and returns its new name. Each step leaves files in which every
// line is found once, or, where that is not possible, at least once:
//
//  1. What a crash left half done is removed: the source is whole.
//  2. The oldest files go, so that with the new one there are maxFiles. This comes
//     first because it makes room on a full disk.
//  3. Rotated files are compressed. What was rotated last time cannot be written to
//     any more. That it fails, on a full disk, keeps nothing from being rotated.
//  4. The log gets another name, and the runtime is told. If it does not take it, the
//     log gets its name back, unless there is a new file of that name.
func (r rotation) run(ctx context.Context) (to string, err error) {
	a, err := r.cleanUp()
	if err != nil {
		return "", err
	}
	var errs []error
	for len(a.rotated) > r.maxFiles-2 {
		oldest := a.rotated[len(a.rotated)-1]
		if err := r.removeFile(oldest); err != nil {
			return "", err // rather no rotation than files without limit
		}
		a.rotated = a.rotated[:len(a.rotated)-1]
	}
	for _, name := range a.rotated {
		if path.Ext(name) != compressed {
			errs = append(errs, r.compress(ctx, r.beside(name)))
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	to, err = r.moveAway(ctx, a)
	return to, errors.Join(append(errs, err)...)
}

// beside returns the path of a name in the log's folder.
func (r rotation) beside(name string) string { return path.Join(path.Dir(r.log), name) }

// removeFile removes a file beside the log. What is gone is no error.
func (r rotation) removeFile(name string) error {
	if err := r.remove(r.beside(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// cleanUp removes what a crash has left and returns what is beside the log after.
func (r rotation) cleanUp() (aside, error) {
	names, err := r.list(path.Dir(r.log))
	if err != nil {
		return aside{}, fmt.Errorf("list rotated logs: %w", err)
	}
	a := sortAside(path.Base(r.log), names)
	if len(a.rotated) > 0 && r.sameFile(a.rotated[0]) {
		// Giving the log its name back ended before its other one was taken away.
		a.useless = append(a.useless, a.rotated[0])
		a.rotated = a.rotated[1:]
	}
	for _, name := range a.useless {
		if err := r.removeFile(name); err != nil {
			return aside{}, err
		}
	}
	return a, nil
}

// sameFile says whether a name beside the log is the log itself.
func (r rotation) sameFile(name string) bool {
	log, err1 := r.lstat(r.log)
	other, err2 := r.lstat(r.beside(name))
	return err1 == nil && err2 == nil && os.SameFile(log, other)
}

// compress replaces a file by a compressed one, with its age and permissions. The new
// one is whole and on the disk before the old one goes.
func (r rotation) compress(ctx context.Context, name string) error {
	info, err := r.lstat(name)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	tmp := name + temporary
	if err := r.writeCompressed(ctx, name, tmp, info); err != nil {
		if gone := r.remove(tmp); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return fmt.Errorf("compress %s: %w", name, err)
	}
	if err := r.rename(tmp, name+compressed); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := r.syncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if err := r.remove(name); err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	return nil
}

func (r rotation) writeCompressed(ctx context.Context, from, to string, info fs.FileInfo) (err error) {
	in, err := r.open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := r.create(to, info.Mode().Perm())
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	_, err = io.Copy(zip, readerUntil{ctx, in})
	err = errors.Join(err, zip.Close())
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return r.setTime(to, info.ModTime())
}

// moveAway gives the log another name and makes the runtime write to a new one.
func (r rotation) moveAway(ctx context.Context, a aside) (string, error) {
	to := r.beside(rotatedName(path.Base(r.log), r.now, a))
	if _, err := r.lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("rotate: %s is in the way", to) // renaming would replace it
	}
	if err := r.rename(r.log, to); err != nil {
		return "", fmt.Errorf("rotate: %w", err)
	}
	if err := r.reopen(ctx); err != nil {
		err = fmt.Errorf("reopen log: %w", err)
		back, undo := r.moveBack(to)
		if !back {
			return to, errors.Join(errHalf, err, undo)
		}
		return "", err
	}
	return to, nil
}

// errHalf says that the log has been renamed and that it is not known whether the
// runtime has noticed.
var errHalf = errors.New("rotated by half")

// moveBack gives the log its name back. A file that the runtime has made meanwhile
// may have lines in it, so it must not be replaced: making a link never does.
func (r rotation) moveBack(to string) (back bool, err error) {
	err = r.link(to, r.log)
	switch {
	case err == nil:
		// Should this fail, the next rotation finds two names of one file.
		return true, r.remove(to)
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	// A filesystem without links, or one with no room for another name.
	if _, missing := r.lstat(r.log); !errors.Is(missing, fs.ErrNotExist) {
		return false, err
	}
	if err := r.rename(to, r.log); err != nil {
		return false, fmt.Errorf("move log back: %w", err)
	}
	return true, nil
}
