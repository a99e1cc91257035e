package nodestats

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// maxPending bounds what a walk remembers. Who makes more folders than this
	// beside each other is counted up to there, which is enough to be found.
	maxPending = 1 << 17
	walkChunk  = 256
	// stepsPerLook is how many folders on the way to one cost as much as a file.
	stepsPerLook = 4
)

// A walk counts what a folder and all below it take, as du does: blocks, not
// sizes; a file with several names once; nothing that is mounted there. It can be
// interrupted after any number of files. Pods write to these folders while it
// reads them: it opens nothing outside and follows no symbolic link.
type walk struct {
	root    *os.Root // nil for a single file
	dev     uint64
	pending []string // folders still to be read, relative
	dir     *os.File // the one being read, and its name
	name    string
	linked  map[uint64]struct{} // inodes with several names, seen

	bytes, inodes uint64
	shares        float64 // of inodes whose names are too many to be remembered
	remember      int     // maxPending, but for tests
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
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	w.root, w.pending = root, []string{"."}
	return w, nil
}

func (w *walk) count(s *unix.Stat_t) {
	w.bytes += uint64(max(s.Blocks, 0)) * 512
	w.inodes++
}

// advance looks at about n more files and says at how many it did. The walk is
// over when done; an error ends it too. What vanishes meanwhile is not counted.
func (w *walk) advance(ctx context.Context, n int) (looked int, done bool, err error) {
	for looked < n {
		if err := ctx.Err(); err != nil {
			return looked, false, err
		}
		if w.dir == nil && len(w.pending) == 0 {
			w.close()
			return looked, true, nil
		}
		if w.dir == nil {
			looked += w.next()
			continue
		}
		names, err := w.dir.Readdirnames(min(walkChunk, n-looked))
		looked += max(1, len(names))
		for _, name := range names {
			w.look(name)
		}
		if err != nil { // the end of the folder, or of what can be read of it
			w.closeDir()
		}
	}
	return looked, false, nil
}

// next opens the next folder, if it can be, and returns how many files that is worth
// looking at. It goes down from the root each time, so that a pod that moves folders
// meanwhile leads it nowhere; thousands of them in each other take their time.
func (w *walk) next() (cost int) {
	last := len(w.pending) - 1
	w.name, w.pending = w.pending[last], w.pending[:last]
	cost = strings.Count(w.name, "/") / stepsPerLook
	dir, err := w.root.OpenFile(w.name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return cost + 1
	}
	w.dir = dir
	return cost
}

// look counts an entry of the open folder.
func (w *walk) look(name string) {
	var s unix.Stat_t
	if err := unix.Fstatat(int(w.dir.Fd()), name, &s, unix.AT_SYMLINK_NOFOLLOW); err != nil || s.Dev != w.dev {
		return
	}
	if s.Mode&unix.S_IFMT == unix.S_IFDIR {
		if len(w.pending) < w.remember {
			w.pending = append(w.pending, filepath.Join(w.name, name))
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

// found returns how many inodes there are.
func (w *walk) found() uint64 { return w.inodes + uint64(math.Round(w.shares)) }

func (w *walk) closeDir() {
	if w.dir != nil {
		_ = w.dir.Close() // read-only
		w.dir = nil
	}
}

// close lets go of what is open. The counts stay.
func (w *walk) close() {
	w.closeDir()
	if w.root != nil {
		_ = w.root.Close() // a folder: nothing can be lost
		w.root, w.pending = nil, nil
	}
}
