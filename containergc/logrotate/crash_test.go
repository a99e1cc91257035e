package logrotate

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"
)

const folder, logName = "ns_pod_uid/app", "0.log"

// writer is a runtime with one container, which writes numbered lines to a file that stays
// open after a rename.
type writer struct {
	t    *testing.T
	path string
	mu   sync.Mutex
	file *os.File
	next int
	// refuse makes reopening fail: at once, after the new file was created, or after the
	// runtime has switched to the new file.
	refuse string
	calls  int
}

func newWriter(t *testing.T) *writer {
	t.Helper()
	w := &writer{t: t, path: filepath.Join(t.TempDir(), folder, logName)}
	require.NoError(t, os.MkdirAll(filepath.Dir(w.path), 0o755))
	w.reopen()
	t.Cleanup(func() { require.NoError(t, w.file.Close()) })
	return w
}

func (w *writer) root() string {
	return strings.TrimSuffix(w.path, filepath.Join("/", folder, logName))
}

func (w *writer) reopen() {
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
	require.NoError(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.file != nil {
		require.NoError(w.t, w.file.Close())
	}
	w.file = file
}

func (w *writer) write(lines int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range lines {
		_, err := fmt.Fprintf(w.file, "line %d\n", w.next)
		require.NoError(w.t, err)
		w.next++
	}
}

func (w *writer) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return []*runtimeapi.Container{{Id: "c", State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil
}

func (w *writer) ContainerStatus(context.Context, string, bool) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{LogPath: w.path}}, nil
}

func (w *writer) ReopenContainerLog(ctx context.Context, _ string) error {
	w.calls++
	if err := ctx.Err(); err != nil {
		return err
	}
	switch w.refuse {
	case "at once":
		return errors.New("refused")
	case "file made":
		f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o640)
		return errors.Join(errors.New("refused"), err, f.Close())
	case "switched":
		w.reopen()
		return errors.New("too late")
	}
	w.reopen()
	return nil
}

// lines returns the numbers of the lines in all files, in the order of their names.
func (w *writer) lines() (numbers []int) {
	names, err := filepath.Glob(w.path + ".*")
	require.NoError(w.t, err)
	slices.Sort(names)
	for _, name := range append(names, w.path) {
		require.False(w.t, strings.HasSuffix(name, temporary), "temporary file %s was left", name)
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && name == w.path {
			continue
		}
		require.NoError(w.t, err)
		var in io.Reader = f
		if strings.HasSuffix(name, compressed) {
			in, err = gzip.NewReader(f)
			require.NoError(w.t, err)
		}
		for s := bufio.NewScanner(in); s.Scan(); {
			n, err := strconv.Atoi(strings.TrimPrefix(s.Text(), "line "))
			require.NoError(w.t, err, name)
			numbers = append(numbers, n)
		}
		require.NoError(w.t, f.Close())
	}
	return numbers
}

func (w *writer) requireAll() {
	w.t.Helper()
	want := make([]int, w.next)
	for i := range want {
		want[i] = i
	}
	require.Equal(w.t, want, w.lines())
}

func (w *writer) rotator(clock *testingclock.FakeClock, f func(files) files) *Rotator {
	r, err := New(Config{Runtime: w, PodLogs: w.root(), Policy: Policy{MaxSizeBytes: 50, MaxFiles: 100}, Clock: clock})
	require.NoError(w.t, err)
	if f != nil {
		r.openFiles = func(root *os.Root) files { return f(rootFiles{root}) }
	}
	return r
}

var errCrash = errors.New("the process is no more")

// crash permits a number of operations, then simulates the end of the process. It lets the
// container write at each operation. The last operation may happen or not, and a write may be
// incomplete.
type crash struct {
	files
	w     *writer
	left  *int
	after bool
}

// step runs an operation unless the simulated process has ended.
func (c crash) step(do func() error) error {
	c.w.write(1)
	switch {
	case *c.left > 0:
		*c.left--
		return do()
	case *c.left == 0 && c.after:
		*c.left--
		return errors.Join(do(), errCrash)
	default:
		*c.left = -1
		return errCrash
	}
}

func (c crash) lstat(name string) (info fs.FileInfo, err error) {
	err = c.step(func() error { info, err = c.files.lstat(name); return err })
	return info, err
}

func (c crash) list(dir string) (names []string, err error) {
	err = c.step(func() error { names, err = c.files.list(dir); return err })
	return names, err
}

func (c crash) rename(from, to string) error {
	return c.step(func() error { return c.files.rename(from, to) })
}

func (c crash) link(from, to string) error {
	return c.step(func() error { return c.files.link(from, to) })
}

func (c crash) remove(name string) error {
	return c.step(func() error { return c.files.remove(name) })
}

func (c crash) open(name string) (in io.ReadCloser, err error) {
	err = c.step(func() error { in, err = c.files.open(name); return err })
	return in, err
}

func (c crash) create(name string, perm fs.FileMode) (newFile, error) {
	var out newFile
	err := c.step(func() (err error) { out, err = c.files.create(name, perm); return err })
	if out == nil {
		return nil, err
	}
	return crashFile{out, c}, err
}

func (c crash) setTime(name string, at time.Time) error {
	return c.step(func() error { return c.files.setTime(name, at) })
}

func (c crash) syncDir(dir string) error {
	return c.step(func() error { return c.files.syncDir(dir) })
}

type crashFile struct {
	newFile
	c crash
}

func (f crashFile) Write(p []byte) (n int, err error) {
	err = f.c.step(func() error {
		if *f.c.left < 0 { // the last one
			p = p[:len(p)/2]
		}
		n, err = f.newFile.Write(p)
		return err
	})
	return n, err
}

func (f crashFile) Sync() error { return f.c.step(f.newFile.Sync) }

// Close always closes, as the end of a process does.
func (f crashFile) Close() error {
	return errors.Join(f.c.step(func() error { return nil }), f.newFile.Close())
}

// TestRotate_NoLineIsLostWhereverTheProcessEnds ends the process at each operation of a
// rotation, and lets a new process continue until everything is compressed, twice.
func TestRotate_NoLineIsLostWhereverTheProcessEnds(t *testing.T) {
	for _, refuse := range []string{"", "at once", "file made", "switched"} {
		t.Run("refuse="+refuse, func(t *testing.T) {
			for _, after := range []bool{false, true} {
				for n, ended := 0, true; ended; n++ {
					require.Less(t, n, 100, "the rotation never completes")
					ended = crashAt(t, n, after, refuse)
				}
			}
		})
	}
}

// crashAt reports whether the simulated process ended before the rotation was complete.
func crashAt(t *testing.T, n int, after bool, refuse string) bool {
	t.Helper()
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pass := func(r *Rotator) {
		clock.Step(time.Hour) // longer than any back-off
		_, _ = r.Rotate(t.Context())
		w.write(10)
	}
	healthy := w.rotator(clock, nil)
	w.write(10)
	pass(healthy)
	pass(healthy)

	left := n
	r := w.rotator(clock, func(f files) files { return crash{f, w, &left, after} })
	w.refuse = refuse
	pass(r)
	w.refuse = ""
	ended := left < 0
	w.write(10)

	fresh := w.rotator(clock, nil)
	for range 3 {
		pass(fresh)
	}
	w.requireAll()
	info, err := os.Stat(w.path)
	require.NoError(t, err)
	require.NotZero(t, info.Size(), "the container must write to the new file")
	return ended
}

// TestRotate_NoLineIsLostWithABusyWriter rotates as fast as possible while the container writes.
func TestRotate_NoLineIsLostWithABusyWriter(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r := w.rotator(clock, nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 30 {
			w.write(500)
		}
	}()
	rotated := 0
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		res, err := r.Rotate(t.Context())
		require.NoError(t, err)
		rotated += res.Rotated
		clock.Step(time.Second)
	}
	require.NotZero(t, rotated)
	w.requireAll()
}

// TestRotate_FullDiskStopsOnlyCompression fails every write to a new file.
func TestRotate_FullDiskStopsOnlyCompression(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r, err := New(Config{Runtime: w, PodLogs: w.root(), Policy: Policy{MaxSizeBytes: 50, MaxFiles: 3}, Clock: clock})
	require.NoError(t, err)
	full := true
	r.openFiles = func(root *os.Root) files { return fullDisk{rootFiles{root}, &full} }
	for range 6 {
		w.write(10)
		res, err := r.Rotate(t.Context())
		require.Equal(t, 1, res.Rotated, "%v", err)
		clock.Step(time.Hour)
		names, err := filepath.Glob(w.path + "*")
		require.NoError(t, err)
		require.LessOrEqual(t, len(names), 3)
	}
	names, err := filepath.Glob(w.path + "*")
	require.NoError(t, err)
	require.Len(t, names, 3)
	for _, name := range names {
		require.NotContains(t, name, compressed)
		require.NotContains(t, name, temporary)
	}
	full = false
	w.write(10)
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	zipped, err := filepath.Glob(w.path + "*" + compressed)
	require.NoError(t, err)
	require.Len(t, zipped, 1)
	kept := w.lines()
	require.Equal(t, w.next-1, kept[len(kept)-1])
	require.Len(t, kept, 20, "two files of ten lines, and an empty file")
}

type fullDisk struct {
	files
	full *bool
}

func (f fullDisk) create(name string, perm fs.FileMode) (newFile, error) {
	out, err := f.files.create(name, perm)
	if err == nil && *f.full {
		return fullFile{out}, nil
	}
	return out, err
}

type fullFile struct{ newFile }

func (f fullFile) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// noLinks is a filesystem without hard links.
type noLinks struct{ files }

func (noLinks) link(string, string) error { return errors.ErrUnsupported }

func TestRotate_LogGetsItsNameBackWithoutHardLinks(t *testing.T) {
	for _, refuse := range []string{"at once", "file made", "switched"} {
		t.Run(refuse, func(t *testing.T) {
			w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			r := w.rotator(clock, func(f files) files { return noLinks{f} })
			w.write(10)
			w.refuse = refuse
			_, err := r.Rotate(t.Context())
			require.ErrorContains(t, err, "reopen log")
			require.Equal(t, refuse != "at once", errors.Is(err, errNotReopened))
			w.write(10)
			w.requireAll()
			w.refuse = ""
			clock.Step(time.Hour)
			_, err = r.Rotate(t.Context())
			require.NoError(t, err)
			w.write(10)
			w.requireAll()
		})
	}
}

// broken is a filesystem on which one operation fails.
type broken struct {
	files
	operation string
}

func (b broken) fail(operation string, applies bool) error {
	if applies && b.operation == operation {
		return errors.New(operation + " is broken")
	}
	return nil
}

func (b broken) lstat(name string) (fs.FileInfo, error) {
	if err := b.fail("lstat", !strings.HasSuffix(name, ".log")); err != nil {
		return nil, err
	}
	return b.files.lstat(name)
}

func (b broken) rename(from, to string) error {
	if err := errors.Join(b.fail("rename", strings.HasSuffix(from, temporary)), b.fail("rename back", strings.HasSuffix(to, ".log"))); err != nil {
		return err
	}
	return b.files.rename(from, to)
}

func (b broken) remove(name string) error {
	if err := b.fail("remove", !strings.HasSuffix(name, temporary)); err != nil {
		return err
	}
	return b.files.remove(name)
}

func (b broken) syncDir(dir string) error {
	if err := b.fail("syncDir", true); err != nil {
		return err
	}
	return b.files.syncDir(dir)
}

func TestCompress_NamesTheFailedOperation(t *testing.T) {
	for _, operation := range []string{"lstat", "rename", "syncDir", "remove"} {
		t.Run(operation, func(t *testing.T) {
			w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
			w.write(10)
			_, err := w.rotator(clock, nil).Rotate(t.Context())
			require.NoError(t, err)
			rotated := rotation{files: broken{openRoot(t, w), operation}}
			err = rotated.compress(t.Context(), below(t, w, w.path+".20260102-030405"))
			require.EqualError(t, err, "compress: "+operation+" is broken")
		})
	}
}

// openRoot returns the files below the writer's directory.
func openRoot(t *testing.T, w *writer) files {
	t.Helper()
	root, err := os.OpenRoot(w.root())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return rootFiles{root}
}

// below returns a path relative to the writer's directory.
func below(t *testing.T, w *writer, file string) string {
	t.Helper()
	name, err := filepath.Rel(w.root(), file)
	require.NoError(t, err)
	return name
}

// TestRotate_NameThatCannotBeRestored checks the case that the runtime fails to reopen the
// log, and the rotation fails to restore the log's name. A later pass makes the runtime
// reopen the log.
func TestRotate_NameThatCannotBeRestored(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r := w.rotator(clock, func(f files) files { return broken{noLinks{f}, "rename back"} })
	w.write(10)
	w.refuse = "at once"
	_, err := r.Rotate(t.Context())
	require.ErrorIs(t, err, errNotReopened)
	require.True(t, strings.HasSuffix(err.Error(), "restore the log's name: rename back is broken"), err.Error())
	w.write(10)
	w.refuse = ""
	clock.Step(time.Hour)
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	w.write(10)
	w.requireAll()
}

// TestRotate_InterruptedRotationIsCompleted checks the case that the runtime has created the
// new file and still writes to the old file.
func TestRotate_InterruptedRotationIsCompleted(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	r := w.rotator(clock, nil)
	w.write(10)
	w.refuse = "file made"
	res, err := r.Rotate(t.Context())
	require.ErrorIs(t, err, errNotReopened)
	require.Zero(t, res.Rotated)
	w.refuse = ""
	clock.Step(time.Minute)
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	w.write(1)
	info, err := os.Stat(w.path)
	require.NoError(t, err)
	require.NotZero(t, info.Size(), "the container must write to the new file now")
	w.requireAll()
}

// TestRotate_SecondNameOfTheLogIsRemoved checks the case that the process ended while it
// restored the log's name.
func TestRotate_SecondNameOfTheLogIsRemoved(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	w.write(10)
	require.NoError(t, os.Link(w.path, w.path+".20260102-030400"))
	_, err := w.rotator(clock, nil).Rotate(t.Context())
	require.NoError(t, err)
	w.requireAll()
}

// noted is a filesystem that records the operations, in order.
type noted struct {
	files
	note func(string)
}

func (n noted) rename(from, to string) error {
	n.note("rename " + filepath.Ext(from) + " " + filepath.Ext(to))
	return n.files.rename(from, to)
}

func (n noted) remove(name string) error {
	n.note("remove " + filepath.Ext(name))
	return n.files.remove(name)
}

func (n noted) create(name string, perm fs.FileMode) (newFile, error) {
	out, err := n.files.create(name, perm)
	return notedFile{out, n.note}, err
}

func (n noted) syncDir(dir string) error {
	n.note("sync the folder")
	return n.files.syncDir(dir)
}

type notedFile struct {
	newFile
	note func(string)
}

func (n notedFile) Sync() error {
	n.note("sync the file")
	return n.newFile.Sync()
}

// TestRotate_SyncsBeforeRemovingTheOriginal checks the order of operations that protects
// against a loss of power.
func TestRotate_SyncsBeforeRemovingTheOriginal(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	var done []string
	r := w.rotator(clock, func(f files) files { return noted{f, func(what string) { done = append(done, what) }} })
	w.write(10)
	_, err := r.Rotate(t.Context())
	require.NoError(t, err)
	w.write(10)
	clock.Step(time.Hour)
	done = nil
	_, err = r.Rotate(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{
		"sync the file", "rename .tmp .gz", "sync the folder", "remove .20260102-030405", "rename .log .20260102-040405",
	}, done)
	w.requireAll()
}

// TestRotate_StartedRotationIgnoresCancellation cancels the context between the rename and
// the creation of the new file.
func TestRotate_StartedRotationIgnoresCancellation(t *testing.T) {
	w, clock := newWriter(t), testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	ctx, cancel := context.WithCancel(t.Context())
	r := w.rotator(clock, func(f files) files { return noted{f, func(string) { cancel() }} })
	w.write(10)
	res, err := r.Rotate(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, res.Rotated)
	w.write(10)
	info, err := os.Stat(w.path)
	require.NoError(t, err)
	require.NotZero(t, info.Size(), "the container must write to the new file")
	w.requireAll()
}
