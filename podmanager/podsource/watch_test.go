package podsource

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

func TestQuietAfter_Events(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		event fsnotify.Event
		want  time.Duration
	}{
		"written":              {fsnotify.Event{Name: "/m/a.yaml", Op: fsnotify.Write}, quietAfterWrite},
		"created":              {fsnotify.Event{Name: "/m/a.JSON", Op: fsnotify.Create}, quietAfterWrite},
		"mode changed":         {fsnotify.Event{Name: "/m/a.yml", Op: fsnotify.Chmod}, quietAfterWrite},
		"removed":              {fsnotify.Event{Name: "/m/a.yaml", Op: fsnotify.Remove}, quietAfterRemove},
		"moved away":           {fsnotify.Event{Name: "/m/a.yaml", Op: fsnotify.Rename}, quietAfterRemove},
		"link of a ConfigMap":  {fsnotify.Event{Name: "/m/..data", Op: fsnotify.Create}, quietAfterWrite},
		"the folder went":      {fsnotify.Event{Name: "/m", Op: fsnotify.Remove}, quietAfterRemove},
		"the folder came":      {fsnotify.Event{Name: "/m", Op: fsnotify.Create}, quietAfterWrite},
		"swap file":            {fsnotify.Event{Name: "/m/.a.yaml.swp", Op: fsnotify.Write}, 0},
		"hidden manifest":      {fsnotify.Event{Name: "/m/.a.yaml", Op: fsnotify.Write}, 0},
		"backup":               {fsnotify.Event{Name: "/m/a.yaml~", Op: fsnotify.Create}, 0},
		"other name":           {fsnotify.Event{Name: "/m/README.md", Op: fsnotify.Write}, 0},
		"beside the folder":    {fsnotify.Event{Name: "/a.yaml", Op: fsnotify.Write}, 0},
		"beside, similar name": {fsnotify.Event{Name: "/mm/a.yaml", Op: fsnotify.Write}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.event.Name = filepath.FromSlash(c.event.Name)
			require.Equal(t, c.want, quietAfter(c.event, filepath.FromSlash("/m")))
		})
	}
}

// A program that has created or truncated a file, or has written it up to the middle of a
// line, will probably continue to write.
func TestQuietAfter_IncompleteFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "a.yaml")
	for text, want := range map[string]time.Duration{
		"":                                 quietIncomplete,
		"kind: Po":                         quietIncomplete,
		"kind: Pod\nspec:\n  image: regis": quietIncomplete,
		"kind: Pod\n":                      quietAfterWrite,
		`{"kind": "Pod"}`:                  quietAfterWrite,
	} {
		for _, op := range []fsnotify.Op{fsnotify.Create, fsnotify.Write} {
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			require.Equal(t, want, quietAfter(fsnotify.Event{Name: path, Op: op}, folder), text)
		}
	}
	require.Equal(t, quietAfterWrite, quietAfter(fsnotify.Event{Name: folder, Op: fsnotify.Create}, folder), "a directory must not be treated as an incomplete file")
	require.NoError(t, os.Remove(path))
	require.Equal(t, quietAfterWrite, quietAfter(fsnotify.Event{Name: path, Op: fsnotify.Write}, folder), "the file was already removed")
}

// The number of watches of a machine is limited, and all programs share them.
func TestWatch_PollsAndRetriesWithoutAWatch(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	path, told, watches := t.TempDir(), make(chan int), make(chan error, 10)
	d, err := NewDirectory(DirectoryConfig{
		Path: path, NodeName: "n", Period: 10 * time.Millisecond,
		Logger:   slog.New(slog.NewTextHandler(&log, nil)),
		Observer: Observer{WatchChanged: func(err error) { watches <- err }},
	})
	require.NoError(t, err)
	tries := 0
	d.notify = func() (*fsnotify.Watcher, error) {
		if tries++; tries <= 3 {
			return nil, syscall.EMFILE
		}
		return fsnotify.NewWatcher()
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func(_ context.Context, pods []*corev1.Pod) { told <- len(pods) }) }()
	require.Zero(t, <-told)
	require.ErrorIs(t, <-watches, syscall.EMFILE)
	require.NoError(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(podWith("", "")), 0o600))
	require.Equal(t, 1, <-told)
	require.NoError(t, <-watches)
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, 1, strings.Count(log.String(), `msg="could not watch manifest folder, will poll it"`))
	require.Equal(t, 1, strings.Count(log.String(), `msg="watching manifest folder again"`))
}

// After an error of the watcher, a pass finds the lost changes.
func TestWatch_ErrorTriggersAPass(t *testing.T) {
	t.Parallel()
	passes := make(chan struct{}, 10)
	w := &watch{open: fsnotify.NewWatcher, path: t.TempDir(), trigger: func() { passes <- struct{}{} }, clock: clock.RealClock{}}
	require.NoError(t, w.watchFolder())
	w.watcher.Errors <- fsnotify.ErrEventOverflow
	<-passes
	require.True(t, w.replaced.Load())
	require.NoError(t, w.watchFolder())
	require.False(t, w.replaced.Load())
	w.stop()

	broken := &watch{open: func() (*fsnotify.Watcher, error) { return nil, errors.New("boom") }, path: "x"}
	require.EqualError(t, broken.watchFolder(), "boom")
	broken.stop()
}

// A write of another file does not shorten the delay after a removal.
func TestDebounce_WriteDoesNotShortenTheDelay(t *testing.T) {
	t.Parallel()
	c := testingclock.NewFakeClock(time.Unix(1e9, 0))
	p := debounce{clock: c}
	p.extend(quietAfterRemove)
	c.Step(time.Millisecond)
	p.extend(quietAfterWrite)
	c.Step(quietAfterRemove - 2*time.Millisecond)
	require.Empty(t, p.expired)
	c.Step(time.Millisecond)
	require.Len(t, p.expired, 1)
	p.stop()
	p.extend(quietAfterWrite) // restarts the delay
	c.Step(quietAfterWrite)
	require.Len(t, p.expired, 1)
	p.stop()
}

// A pass begins even if the folder changes all the time.
func TestWatch_MaxDelay(t *testing.T) {
	t.Parallel()
	passes := make(chan struct{}, 100)
	w := &watch{open: fsnotify.NewWatcher, path: t.TempDir(), trigger: func() { passes <- struct{}{} }, clock: clock.RealClock{}}
	require.NoError(t, w.watchFolder())
	begin := time.Now()
	for time.Since(begin) < 10*maxDelay && len(passes) == 0 {
		w.watcher.Events <- fsnotify.Event{Name: filepath.Join(w.path, "a.yaml"), Op: fsnotify.Write}
	}
	require.NotEmpty(t, passes)
	w.stop()
}

func TestDirectoryConfig_Period(t *testing.T) {
	t.Parallel()
	require.Equal(t, 20*time.Second, DirectoryConfig{}.period(true))
	require.Equal(t, time.Second, DirectoryConfig{}.period(false))
	require.Equal(t, time.Minute, DirectoryConfig{Period: time.Minute}.period(true))
	require.Equal(t, time.Minute, DirectoryConfig{Period: time.Minute}.period(false))
}
