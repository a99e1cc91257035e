package podsource_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

// watched is a running Directory that polls so rarely that only its watch detects
// changes.
type watched struct {
	t       *testing.T
	path    string
	told    chan string // each set of pods, as "name image, name image"
	watches chan error
	passes  atomic.Int32
	log     *syncBuffer
}

// syncBuffer is a buffer for concurrent use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newWatched(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{t: t, path: path, told: make(chan string, 100), watches: make(chan error, 100), log: &syncBuffer{}}
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{
		Path: path, NodeName: "n", Period: time.Hour,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		Observer: podsource.Observer{
			Loaded:       func(podsource.Result, error) { w.passes.Add(1) },
			WatchChanged: func(err error) { w.watches <- err },
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- d.Run(ctx, func(_ context.Context, pods []*corev1.Pod) {
			var list []string
			for _, pod := range pods {
				list = append(list, pod.Name+" "+pod.Spec.Containers[0].Image)
			}
			w.told <- strings.Join(list, ", ")
		})
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return w
}

func (w *watched) file(name string) string { return filepath.Join(w.path, name) }

func (w *watched) write(name, text string) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(w.file(name), []byte(text), 0o600))
}

func (w *watched) rename(from, to string) {
	w.t.Helper()
	require.NoError(w.t, os.Rename(w.file(from), w.file(to)))
}

// next returns the next delivered pods, and how long the delivery took.
func (w *watched) next() (told string, took time.Duration) {
	w.t.Helper()
	begin := time.Now()
	select {
	case told = <-w.told:
		return told, time.Since(begin)
	case <-time.After(time.Minute):
		require.FailNow(w.t, "no pods were delivered", w.log.String())
		return "", 0
	}
}

func (w *watched) requireNext(want string) {
	w.t.Helper()
	told, took := w.next()
	require.Equal(w.t, want, told)
	if took > 100*time.Millisecond { // longer than the target, because the machine is busy
		w.t.Logf("told after %v", took)
	}
}

// requireQuiet requires that nothing is delivered for some time.
func (w *watched) requireQuiet() {
	w.t.Helper()
	select {
	case told := <-w.told:
		require.FailNow(w.t, "unexpected delivery of pods", told)
	case <-time.After(300 * time.Millisecond):
	}
}

func (w *watched) requireWatch() error {
	w.t.Helper()
	select {
	case err := <-w.watches:
		return err
	case <-time.After(time.Minute):
		require.FailNow(w.t, "no log line about the watch")
		return nil
	}
}

func TestWatch_DetectsEditsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWatched(t, t.TempDir())
	w.requireNext("")
	require.NoError(t, w.requireWatch())
	w.write("a.yaml", yamlOf("a", "i:1"))
	w.requireNext("a-n i:1")
	w.write("a.yaml", yamlOf("a", "i:2"))
	w.requireNext("a-n i:2")

	w.write(".b.tmp", yamlOf("b", "i:1"))
	w.rename(".b.tmp", "b.yaml")
	w.requireNext("a-n i:2, b-n i:1")
	w.write(".b.tmp", yamlOf("b", "i:2"))
	w.rename(".b.tmp", "b.yaml")
	w.requireNext("a-n i:2, b-n i:2")

	require.NoError(t, os.Remove(w.file("a.yaml")))
	w.requireNext("b-n i:2")
	require.NoError(t, os.Remove(w.file("b.yaml")))
	require.NoError(t, os.Mkdir(w.file("b.yaml"), 0o700))
	w.requireNext("")
}

// An editor moves the file away, writes a new file and removes the old file. The source
// delivers neither the removal nor the empty file.
func TestWatch_SaveByAnEditorIsOneChange(t *testing.T) {
	t.Parallel()
	w := newWatched(t, t.TempDir())
	w.requireNext("")
	w.write("a.yaml", yamlOf("a", "i:0"))
	w.requireNext("a-n i:0")
	for i := range 5 {
		begin := time.Now()
		w.write(".a.yaml.swp", "swap")
		w.write("4913", "")
		require.NoError(t, os.Remove(w.file("4913")))
		w.rename("a.yaml", "a.yaml~")
		w.write("a.yaml", "")
		w.write("a.yaml", yamlOf("a", fmt.Sprintf("i:%d", i+1)))
		require.NoError(t, os.Remove(w.file("a.yaml~")))
		require.NoError(t, os.Remove(w.file(".a.yaml.swp")))
		slow, want := time.Since(begin) > 25*time.Millisecond, fmt.Sprintf("a-n i:%d", i+1)
		told, _ := w.next()
		for slow && told != want { // a slow editor: the Directory may deliver the pods before the editor has finished
			told, _ = w.next()
		}
		require.Equal(t, want, told)
	}
	w.requireQuiet()
}

func TestWatch_ManyFilesNeedFewPasses(t *testing.T) {
	t.Parallel()
	w := newWatched(t, t.TempDir())
	w.requireNext("")
	before, begin := w.passes.Load(), time.Now()
	for i := range 200 {
		w.write(fmt.Sprintf("f%d.yaml", i), yamlOf(fmt.Sprintf("p%d", i), "i:1"))
	}
	told := ""
	for strings.Count(told, "i:1") < 200 {
		told, _ = w.next()
	}
	// There are at least 5 ms without a change between two passes. On a busy machine, a
	// pass may follow each write of a file.
	require.Less(t, w.passes.Load()-before, max(100, int32(time.Since(begin)/(5*time.Millisecond))+2))
}

func TestWatch_NoPassesWithoutChanges(t *testing.T) {
	t.Parallel()
	w := newWatched(t, t.TempDir())
	w.write("a.yaml", yamlOf("a", "i:1"))
	for told := ""; told == ""; {
		told, _ = w.next()
	}
	w.requireQuiet()
	before := w.passes.Load()
	// Neither other files nor reading a manifest cause a pass.
	w.write(".swap", "x")
	w.write("notes.md", "x")
	require.NoError(t, os.WriteFile(filepath.Dir(w.path)+"/beside.yaml", []byte("x"), 0o600))
	_, err := os.ReadFile(w.file("a.yaml"))
	require.NoError(t, err)
	w.requireQuiet()
	require.Equal(t, before, w.passes.Load())
}

func TestWatch_FolderRemovedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "manifests")
	require.NoError(t, os.Mkdir(path, 0o700))
	w := newWatched(t, path)
	w.requireNext("")
	for i := range 5 { // the new folder may have the inode number of the old folder
		w.write("a.yaml", yamlOf("a", fmt.Sprintf("i:%d", i)))
		w.requireNext(fmt.Sprintf("a-n i:%d", i))
		noticed := w.foldersGone()
		require.NoError(t, os.RemoveAll(path))
		if i%2 == 0 {
			w.waitFolderGone(noticed)
		}
		require.NoError(t, os.Mkdir(path, 0o700))
		w.write("a.yaml", yamlOf("a", fmt.Sprintf("i:%d", i)))
		w.write("b.yaml", yamlOf("b", fmt.Sprintf("i:%d", i)))
		for told := ""; told != fmt.Sprintf("a-n i:%d, b-n i:%d", i, i); {
			told, _ = w.next()
		}
		require.NoError(t, os.Remove(w.file("b.yaml")))
		w.requireNext(fmt.Sprintf("a-n i:%d", i))
	}
}

// foldersGone returns how often the Directory has logged that its directory does not exist.
func (w *watched) foldersGone() int { return strings.Count(w.log.String(), "folder cannot be read") }

// waitFolderGone waits until the Directory has logged once more that its directory does not
// exist. Otherwise the directory could be replaced between two passes, which another test
// checks.
func (w *watched) waitFolderGone(before int) {
	w.t.Helper()
	for range 200 {
		if w.foldersGone() > before {
			return
		}
		select {
		case told := <-w.told: // the files were removed before the folder
			require.Empty(w.t, told)
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.FailNow(w.t, "the removal of the directory was not detected", w.log.String())
}

func TestWatch_FolderReplaced(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	path, next := filepath.Join(above, "manifests"), filepath.Join(above, "next")
	for image, dir := range map[string]string{"i:1": path, "i:2": next} {
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yamlOf("a", image)), 0o600))
	}
	w := newWatched(t, path)
	w.requireNext("a-n i:1")
	require.NoError(t, os.Rename(path, filepath.Join(above, "old")))
	require.NoError(t, os.Rename(next, path))
	w.requireNext("a-n i:2")
	require.NoError(t, os.WriteFile(filepath.Join(above, "old", "a.yaml"), []byte(yamlOf("a", "i:9")), 0o600))
	w.write("a.yaml", yamlOf("a", "i:3"))
	w.requireNext("a-n i:3")
}

func TestWatch_FolderCreatedLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "manifests")
	w := newWatched(t, path)
	require.NoError(t, w.requireWatch(), "the parent directory must be watched")
	for !strings.Contains(w.log.String(), "folder cannot be read") { // the watch starts before the first pass
		runtime.Gosched()
	}
	require.NoError(t, os.Mkdir(path, 0o700))
	w.write("a.yaml", yamlOf("a", "i:1"))
	told := ""
	for told == "" { // a pass may have read the folder before the file was written
		told, _ = w.next()
	}
	require.Equal(t, "a-n i:1", told)
	require.Equal(t, 1, strings.Count(w.log.String(), "folder cannot be read"))
}

func TestWatch_MissingParentIsPolled(t *testing.T) {
	t.Parallel()
	w := newWatched(t, filepath.Join(t.TempDir(), "not", "there"))
	require.ErrorIs(t, w.requireWatch(), os.ErrNotExist)
	require.Equal(t, 1, strings.Count(w.log.String(), "could not watch manifest folder, will poll it"))
}

// A mounted ConfigMap switches one link, whose name is hidden.
func TestWatch_SwitchedLinks(t *testing.T) {
	t.Parallel()
	w := newWatched(t, t.TempDir())
	w.requireNext("")
	for _, version := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(w.file("..v"+version), 0o700))
		w.write(filepath.Join("..v"+version, "a.yaml"), yamlOf("a", "i:"+version))
	}
	require.NoError(t, os.Symlink("..v1", w.file("..data")))
	require.NoError(t, os.Symlink(filepath.Join("..data", "a.yaml"), w.file("a.yaml")))
	w.requireNext("a-n i:1")
	require.NoError(t, os.Symlink("..v2", w.file("..tmp")))
	w.rename("..tmp", "..data")
	w.requireNext("a-n i:2")
}

func TestWatch_FolderLinkChanged(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	path := filepath.Join(above, "current")
	for _, version := range []string{"1", "2"} {
		dir := filepath.Join(above, "v"+version)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(yamlOf("a", "i:"+version)), 0o600))
	}
	require.NoError(t, os.Symlink("v1", path))
	w := newWatched(t, path)
	w.requireNext("a-n i:1")
	require.NoError(t, os.Symlink("v2", path+".tmp"))
	require.NoError(t, os.Rename(path+".tmp", path))
	w.requireNext("a-n i:2")
	w.write("a.yaml", yamlOf("a", "i:3"))
	w.requireNext("a-n i:3")
}
