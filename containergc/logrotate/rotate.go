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

// rotation rotates one log.
type rotation struct {
	files
	log      string // path below the root
	maxFiles int
	now      time.Time
	// reopen makes the runtime open the log by its name, and create the file if it does
	// not exist.
	reopen func(context.Context) error
}

// run rotates the log and returns its new path. It has these steps:
//
//  1. Leftover files of an interrupted rotation are removed. Every line of a leftover file is
//     also in another file.
//  2. The oldest files are removed, so that there are at most maxFiles files after the
//     rotation. This step precedes the next steps because it frees space on a full disk.
//  3. Rotated files are compressed: the runtime does not write to them any more. If the
//     compression fails, for example because the disk is full, the rotation continues.
//  4. The log is renamed and the runtime reopens it. If the runtime fails to reopen the log and
//     has not created a new file, the log gets its old name back.
//
// If a crash interrupts run, no lines are lost except those in the files that step 2 removes.
// Other lines may then be in two files, until step 1 of the next rotation removes one of the
// two files.
func (r rotation) run(ctx context.Context) (to string, err error) {
	a, err := r.cleanUp()
	if err != nil {
		return "", err
	}
	var errs []error
	for len(a.rotated) > r.maxFiles-2 {
		oldest := a.rotated[len(a.rotated)-1]
		if err := r.removeFile(oldest); err != nil {
			return "", err // if the rotation continued, the number of files could exceed maxFiles
		}
		a.rotated = a.rotated[:len(a.rotated)-1]
	}
	for _, name := range a.rotated {
		if path.Ext(name) != compressed {
			errs = append(errs, r.compress(ctx, r.siblingPath(name)))
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	to, err = r.renameAndReopen(ctx, a)
	return to, errors.Join(append(errs, err)...)
}

// siblingPath returns the path of a file in the log's folder.
func (r rotation) siblingPath(name string) string { return path.Join(path.Dir(r.log), name) }

// removeFile removes a file in the log's folder. It is no error if the file does not
// exist.
func (r rotation) removeFile(name string) error {
	if err := r.remove(r.siblingPath(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// cleanUp removes the files that a crash has left, and returns the remaining files of the
// log.
func (r rotation) cleanUp() (siblings, error) {
	names, err := r.list(path.Dir(r.log))
	if err != nil {
		return siblings{}, fmt.Errorf("list rotated logs: %w", err)
	}
	a := classify(path.Base(r.log), names)
	if len(a.rotated) > 0 && r.sameFile(a.rotated[0]) {
		// A crash interrupted undoRename before it removed the second hard link.
		a.leftovers = append(a.leftovers, a.rotated[0])
		a.rotated = a.rotated[1:]
	}
	for _, name := range a.leftovers {
		if err := r.removeFile(name); err != nil {
			return siblings{}, err
		}
	}
	return a, nil
}

// sameFile reports whether a name in the log's folder is a hard link to the log.
func (r rotation) sameFile(name string) bool {
	log, err1 := r.lstat(r.log)
	other, err2 := r.lstat(r.siblingPath(name))
	return err1 == nil && err2 == nil && os.SameFile(log, other)
}

// compress replaces a file with a compressed file that has the same modification time and
// permissions. The compressed file is complete and synced to disk before the original is
// removed.
func (r rotation) compress(ctx context.Context, name string) error {
	info, err := r.lstat(name)
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	tmp := name + temporary
	if err := r.writeCompressed(ctx, name, tmp, info); err != nil {
		if removeErr := r.remove(tmp); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
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
	_, err = io.Copy(zip, contextReader{ctx, in})
	err = errors.Join(err, zip.Close())
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return err
	}
	return r.setTime(to, info.ModTime())
}

// renameAndReopen renames the log and makes the runtime create a new log. It returns the
// new path of the renamed log, or an empty path if the log has its old name again.
func (r rotation) renameAndReopen(ctx context.Context, a siblings) (string, error) {
	to := r.siblingPath(rotatedName(path.Base(r.log), r.now, a))
	if _, err := r.lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("rotate: file %s exists already", to) // renaming would replace it
	}
	if err := r.rename(r.log, to); err != nil {
		return "", fmt.Errorf("rotate: %w", err)
	}
	if err := r.reopen(ctx); err != nil {
		err = fmt.Errorf("reopen log: %w", err)
		back, undo := r.undoRename(to)
		if !back {
			return to, errors.Join(errNotReopened, err, undo)
		}
		return "", err
	}
	return to, nil
}

// errNotReopened is returned if the log was renamed and it is unknown whether the runtime
// writes to a new file.
var errNotReopened = errors.New("log renamed but not reopened, will reopen it later")

// undoRename gives the log its old name back. A file that the runtime has created meanwhile
// may contain lines and must not be replaced: the method link fails if the file exists.
func (r rotation) undoRename(to string) (back bool, err error) {
	err = r.link(to, r.log)
	switch {
	case err == nil:
		// If this fails, the next rotation finds the second hard link to the log and
		// removes it.
		return true, r.remove(to)
	case errors.Is(err, fs.ErrExist):
		return false, nil
	}
	// The filesystem has no hard links, or no space for another hard link.
	if _, missing := r.lstat(r.log); !errors.Is(missing, fs.ErrNotExist) {
		return false, err
	}
	if err := r.rename(to, r.log); err != nil {
		return false, fmt.Errorf("restore the log's name: %w", err)
	}
	return true, nil
}
