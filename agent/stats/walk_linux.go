package stats

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxPending bounds what a walk remembers. Who makes more folders than this
	// beside or in each other is counted up to there, which is enough to be found.
	maxPending = 1 << 17
	walkChunk  = 256
	// stepsPerLook is how many folders on the way to one cost as much as a file.
	stepsPerLook = 4
)

// A walk counts what a folder and all below it take, as du does: blocks, not
// sizes; a file with several names once; nothing that is mounted there. It can be
// interrupted after any number of files. Pods write to these folders while it
// reads them: it opens nothing outside and follows no symbolic link. However deep the
// folders are, it has two of them open, and a third for a moment.
type walk struct {
	root    *os.File // nil for a single file
	dev     uint64
	path    []folder            // from the root to dir
	dir     *os.File            // the one that is read; nil at the end
	read    bool                // all of it
	pending int                 // folders still to be read, in all of path
	linked  map[uint64]struct{} // inodes with several names, seen

	err           error // why something below is not counted
	bytes, inodes uint64
	shares        float64 // of inodes whose names are too many to be remembered
	remember      int     // maxPending, but for tests
}

// A folder is one on the way to the one that is read.
type folder struct {
	name    string
	inode   uint64
	pending []string // folders in it that are still to be read
}

// newWalk begins a walk at path, which counts itself.
func newWalk(path string) (*walk, error) {
	var s unix.Stat_t
	if err := unix.Lstat(path, &s); err != nil {
		return nil, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	w := &walk{dev: s.Dev, remember: maxPending}
	w.count(&s)
	if s.Mode&unix.S_IFMT != unix.S_IFDIR {
		return w, nil
	}
	root, err := openFolder(unix.AT_FDCWD, path)
	if err != nil {
		return nil, err
	}
	dir, err := openFolder(int(root.Fd()), ".")
	if err != nil {
		_ = root.Close() // read-only
		return nil, err
	}
	w.root, w.dir, w.path = root, dir, []folder{{name: path, inode: s.Ino}}
	return w, nil
}

// openFolder opens a folder in another one to read it.
func openFolder(at int, name string) (*os.File, error) {
	fd, err := retry(func() (int, error) {
		return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (w *walk) count(s *unix.Stat_t) {
	w.bytes += uint64(max(s.Blocks, 0)) * 512
	w.inodes++
}

// advance looks at about n more files and says at how many it did. With done, the walk
// is over, and the error is why it has not counted everything. Else the error is ctx's.
// What vanishes meanwhile is not counted, which is no error.
func (w *walk) advance(ctx context.Context, n int) (looked int, done bool, err error) {
	for looked < n {
		if err := ctx.Err(); err != nil {
			return looked, false, err
		}
		switch {
		case w.dir == nil:
			w.close()
			return looked, true, w.err
		case !w.read:
			looked += w.look(min(walkChunk, n-looked))
		case len(w.last().pending) > 0:
			w.down()
			looked++
		default:
			looked += w.up()
		}
	}
	return looked, false, nil
}

func (w *walk) last() *folder { return &w.path[len(w.path)-1] }

// look counts about n entries of the open folder and returns how many it looked at.
func (w *walk) look(n int) (looked int) {
	names, err := w.dir.Readdirnames(n)
	for _, name := range names {
		w.lookAt(name)
	}
	if err != nil { // the end of the folder, or of what can be read of it
		w.read = true
	}
	if err != nil && !errors.Is(err, io.EOF) {
		w.miss(err)
	}
	return max(1, len(names))
}

// lookAt counts an entry of the open folder.
func (w *walk) lookAt(name string) {
	var s unix.Stat_t
	if err := unix.Fstatat(int(w.dir.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		w.miss(&os.PathError{Op: "stat", Path: name, Err: err})
		return
	}
	if s.Dev != w.dev {
		return
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		if w.pending+len(w.path) < w.remember {
			w.last().pending = append(w.last().pending, name)
			w.pending++
		}
	} else if s.Nlink > 1 {
		if _, seen := w.linked[s.Ino]; seen {
			return
		}
		if len(w.linked) >= w.remember { // each name has its part
			part := 1 / float64(s.Nlink)
			w.bytes += uint64(float64(max(s.Blocks, 0)) * 512 * part)
			w.shares += part
			return
		}
		if w.linked == nil {
			w.linked = map[uint64]struct{}{}
		}
		w.linked[s.Ino] = struct{}{}
	}
	w.count(&s)
}

// down opens the next folder in the open one, if it can be.
func (w *walk) down() {
	last := w.last()
	name := last.pending[len(last.pending)-1]
	last.pending = last.pending[:len(last.pending)-1]
	w.pending--
	dir, err := openFolder(int(w.dir.Fd()), name)
	if err != nil {
		w.miss(err)
		return
	}
	inode, ok := w.inode(dir)
	if !ok {
		_ = dir.Close() // read-only, as all are
		return
	}
	w.path = append(w.path, folder{name: name, inode: inode})
	w.open(dir)
	w.read = false
}

// up goes back to the folder above the open one, and returns what that costs. A pod may
// have moved the open one meanwhile, and what is above it now may be anything.
func (w *walk) up() (cost int) {
	w.path = w.path[:len(w.path)-1]
	if len(w.path) == 0 {
		w.open(nil)
		return 0
	}
	dir, err := openFolder(int(w.dir.Fd()), "..")
	if err == nil {
		if inode, ok := w.inode(dir); ok && inode == w.last().inode {
			w.open(dir)
			return 0
		}
		_ = dir.Close()
	}
	return w.reopen()
}

// reopen goes down from the root to the last folder of path that is still in its place.
func (w *walk) reopen() (cost int) {
	cost = len(w.path)/stepsPerLook + 1
	dir, err := openFolder(int(w.root.Fd()), ".")
	if err != nil {
		w.miss(err)
		w.open(nil)
		return cost
	}
	w.open(dir)
	for i := 1; i < len(w.path); i++ {
		dir, err := openFolder(int(w.dir.Fd()), w.path[i].name)
		if err == nil {
			if inode, ok := w.inode(dir); ok && inode == w.path[i].inode {
				w.open(dir)
				continue
			}
			_ = dir.Close()
		} else {
			w.miss(err)
		}
		for _, gone := range w.path[i:] {
			w.pending -= len(gone.pending)
		}
		w.path = w.path[:i]
	}
	return cost
}

// open makes dir the open folder.
func (w *walk) open(dir *os.File) {
	if w.dir != nil {
		_ = w.dir.Close()
	}
	w.dir = dir
}

// inode returns the number of an open folder; ok is false if it is on another
// filesystem.
func (w *walk) inode(dir *os.File) (inode uint64, ok bool) {
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		w.miss(err)
		return 0, false
	}
	return s.Ino, s.Dev == w.dev
}

// miss notes that something could not be counted, unless it is gone or something else
// has taken its place.
func (w *walk) miss(err error) {
	if w.err == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		w.err = err
	}
}

// found returns how many inodes there are.
func (w *walk) found() uint64 { return w.inodes + uint64(math.Round(w.shares)) }

// close lets go of what is open. The counts stay.
func (w *walk) close() {
	w.open(nil)
	if w.root != nil {
		_ = w.root.Close()
		w.root = nil
	}
}
