package podsource

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// changedBed is a Directory over a folder with two manifests, which one pass has read.
type changedBed struct {
	*Directory
	t     *testing.T
	path  string
	clock *testingclock.FakeClock
}

func newChangedBed(t *testing.T) changedBed {
	t.Helper()
	b := changedBed{t: t, path: t.TempDir(), clock: testingclock.NewFakeClock(time.Unix(1e9, 0))}
	b.write("a.yaml", podWith("", ""))
	b.write("b.yaml", "not a manifest")
	var err error
	b.Directory, err = NewDirectory(DirectoryConfig{Path: b.path, NodeName: "n", Clock: b.clock})
	require.NoError(t, err)
	b.requireRead(2)
	return b
}

func (b changedBed) write(name, text string) {
	b.t.Helper()
	require.NoError(b.t, os.WriteFile(filepath.Join(b.path, name), []byte(text), 0o600))
}

// requireRead runs a pass after changes of the given files, and requires the number of files
// that it opens. Files that were written less than two seconds ago are opened in every pass
// that includes them.
func (b changedBed) requireRead(files int, changed ...string) Result {
	b.t.Helper()
	res, _, err := b.load(b.t.Context(), changed)
	require.NoError(b.t, err)
	require.Equal(b.t, files, res.FilesRead)
	return res
}

func TestDirectory_ReadsOnlyChangedFiles(t *testing.T) {
	t.Parallel()
	b := newChangedBed(t)
	require.Len(t, b.Problems(), 1)
	b.write("c.yaml", podWith("", ""))
	b.write("b.yaml", "")
	res := b.requireRead(1, "c.yaml")
	require.Len(t, res.Problems, 2, "c.yaml defines the same pod as a.yaml, and b.yaml must not be read again")
	require.ErrorContains(t, res.Problems[0], "b.yaml: ")
	require.ErrorContains(t, res.Problems[1], "already defined in "+filepath.Join(b.path, "a.yaml"))
	require.NoError(t, os.Remove(filepath.Join(b.path, "a.yaml")))
	require.Len(t, b.requireRead(2, "a.yaml").Pods, 1, "the pod must be that of c.yaml")
}

func TestDirectory_ReadsAllFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(changedBed)
		files   int
	}{
		"after the period":          {func(b changedBed) { b.clock.Step(20 * time.Second) }, 2},
		"on request":                {func(b changedBed) { b.Trigger() }, 2},
		"after a removal":           {func(b changedBed) { require.NoError(b.t, os.Remove(filepath.Join(b.path, "b.yaml"))) }, 1},
		"if the new file is a link": {func(b changedBed) { b.replaceByLink() }, 2},
		"if a manifest is a link": {func(b changedBed) {
			require.NoError(b.t, os.Symlink("a.yaml", filepath.Join(b.path, "c.yaml")))
			b.requireRead(3)
		}, 3},
		"after a pass that failed": {func(b changedBed) {
			away := b.path + ".away"
			require.NoError(b.t, os.Rename(b.path, away))
			_, _, err := b.load(b.t.Context(), []string{"b.yaml"})
			require.ErrorContains(b.t, err, "folder cannot be read")
			require.NoError(b.t, os.Rename(away, b.path))
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newChangedBed(t)
			b.requireRead(1, "b.yaml")
			c.prepare(b)
			require.Len(t, b.requireRead(c.files, "b.yaml").Pods, 1)
		})
	}
}

func (b changedBed) replaceByLink() {
	path := filepath.Join(b.path, "b.yaml")
	require.NoError(b.t, os.Remove(path))
	require.NoError(b.t, os.Symlink("a.yaml", path))
}

// A pass over changed files keeps the pods if the folder has disappeared.
func TestDirectory_ChangedFileInAMissingFolder(t *testing.T) {
	t.Parallel()
	b := newChangedBed(t)
	require.NoError(t, os.RemoveAll(b.path))
	res, _, err := b.load(t.Context(), []string{"a.yaml"})
	require.ErrorContains(t, err, "folder cannot be read")
	require.Len(t, res.Pods, 1)
}

func TestDirectory_CancelledPassOverChangedFiles(t *testing.T) {
	t.Parallel()
	b := newChangedBed(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, os.Remove(filepath.Join(b.path, "b.yaml")))
	res, _, err := b.load(ctx, []string{"a.yaml"})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, res.Problems, 1)
}

func TestWatch_ChangedFiles(t *testing.T) {
	t.Parallel()
	passes := make(chan struct{}, 10)
	w := &watch{open: fsnotify.NewWatcher, path: t.TempDir(), trigger: func() { passes <- struct{}{} }, clock: clock.RealClock{}}
	require.NoError(t, w.watchFolder())
	require.Empty(t, w.changedFiles(), "the watch has just started")
	send := func(names ...string) {
		for _, name := range names {
			w.watcher.Events <- fsnotify.Event{Name: filepath.Join(w.path, name), Op: fsnotify.Write}
		}
	}
	send("a.yaml", "README")
	<-passes
	require.NoError(t, w.watchFolder())
	require.Equal(t, []string{"a.yaml"}, w.changedFiles())
	require.Empty(t, w.changedFiles())
	send("a.yaml")
	<-passes
	send("b.yaml")
	<-passes
	require.ElementsMatch(t, []string{"a.yaml", "b.yaml"}, w.changedFiles())
	for _, name := range []string{"..data", "."} { // a mounted ConfigMap, and the folder itself
		send("a.yaml", name)
		<-passes
		require.NoError(t, w.watchFolder())
		require.Empty(t, w.changedFiles(), name)
	}
	send("a.yaml")
	w.watcher.Errors <- fsnotify.ErrEventOverflow
	<-passes
	require.Empty(t, w.changedFiles())
	w.stop()
}
