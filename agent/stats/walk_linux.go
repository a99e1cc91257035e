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
	// maxPending limits the memory of a walk: the number of remembered folders, and the number of
	// remembered inodes with several hard links. The contents of folders beyond this number are not
	// counted, but the count is then high enough to detect a pod that fills the disk.
	maxPending = 1 << 17
	walkChunk  = 256
	// stepsPerFile is the number of path components whose opening costs as much as examining
	// one file.
	stepsPerFile = 4
)

// walk counts the disk usage of a folder and everything below, as du does. It counts blocks instead
// of sizes, a file with several hard links once, and no other mounted filesystems. It can be
// interrupted after any number of files. Although pods write to the folder during the walk, the
// walk opens nothing outside the folder and follows no symbolic link. At any depth, the walk has
// two folders open, and for a moment a third folder.
type walk struct {
	root    *os.File // nil for a single file
	dev     uint64
	path    []folder            // from the root to dir
	dir     *os.File            // the folder that is being read; nil after the last folder
	read    bool                // dir was read completely
	pending int                 // number of folders that are not read yet, in all of path
	linked  map[uint64]struct{} // counted inodes with several hard links

	err           error // first error; some files are not counted
	bytes, inodes uint64
	shares        float64 // fractions of the inodes with several hard links that did not fit into linked
	remember      int     // maxPending, except in tests
}

// folder is a folder on the path to the folder that is being read.
type folder struct {
	name    string
	inode   uint64
	pending []string // subfolders that are not read yet
}

// newWalk starts a walk at path. It counts the file or folder at path itself.
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

// openFolder opens a folder for reading. The name is relative to the folder with the given
// file descriptor.
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

// advance examines about n more files and returns the actual number. If done is true, the walk
// is complete, and the error is the first error about a file that could not be counted. If done
// is false, the error is the error of ctx, or nil. Files that disappear during the walk are not
// counted and cause no error.
func (w *walk) advance(ctx context.Context, n int) (examined int, done bool, err error) {
	for examined < n {
		if err := ctx.Err(); err != nil {
			return examined, false, err
		}
		switch {
		case w.dir == nil:
			w.close()
			return examined, true, w.err
		case !w.read:
			examined += w.scan(min(walkChunk, n-examined))
		case len(w.last().pending) > 0:
			w.down()
			examined++
		default:
			examined += w.up()
		}
	}
	return examined, false, nil
}

func (w *walk) last() *folder { return &w.path[len(w.path)-1] }

// scan counts about n entries of the open folder and returns their number.
func (w *walk) scan(n int) (examined int) {
	names, err := w.dir.Readdirnames(n)
	for _, name := range names {
		w.scanEntry(name)
	}
	if err != nil { // end of the folder, or it can't be read further
		w.read = true
	}
	if err != nil && !errors.Is(err, io.EOF) {
		w.miss(err)
	}
	return max(1, len(names))
}

// scanEntry counts an entry of the open folder.
func (w *walk) scanEntry(name string) {
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
		if len(w.linked) >= w.remember { // count each name as a fraction
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

// down opens the next subfolder of the open folder, if possible.
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
		_ = dir.Close() // read-only
		return
	}
	w.path = append(w.path, folder{name: name, inode: inode})
	w.open(dir)
	w.read = false
}

// up opens the parent of the open folder again. A pod may have moved the open folder in the
// meantime, so up verifies that the parent is the expected folder. The result cost is the work of
// the call as a number of files.
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

// reopen opens the last folder of path again, by descending from the root. If a folder of path
// was moved or removed, reopen opens the folder above and shortens path. The result cost is the
// work of the call as a number of files.
func (w *walk) reopen() (cost int) {
	cost = len(w.path)/stepsPerFile + 1
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

// open makes dir the open folder and closes the previous one.
func (w *walk) open(dir *os.File) {
	if w.dir != nil {
		_ = w.dir.Close()
	}
	w.dir = dir
}

// inode returns the inode number of an open folder. ok is false if the folder is on another
// filesystem or could not be examined.
func (w *walk) inode(dir *os.File) (inode uint64, ok bool) {
	var s unix.Stat_t
	if err := unix.Fstat(int(dir.Fd()), &s); err != nil {
		w.miss(err)
		return 0, false
	}
	return s.Ino, s.Dev == w.dev
}

// miss records the error of a file that could not be counted. It ignores the errors of files
// that were removed or replaced during the walk.
func (w *walk) miss(err error) {
	if w.err == nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		w.err = err
	}
}

// found returns the number of counted inodes.
func (w *walk) found() uint64 { return w.inodes + uint64(math.Round(w.shares)) }

// close closes the open folders. The counts stay valid.
func (w *walk) close() {
	w.open(nil)
	if w.root != nil {
		_ = w.root.Close()
		w.root = nil
	}
}
