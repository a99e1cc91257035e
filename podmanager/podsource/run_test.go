package podsource_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podmanager/podsource"
)

func TestRun_DeliversTheFirstSetAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "manifests")
		var mu sync.Mutex // for the race detector, which ignores the order by the bubble's time
		var told []string
		var passes, added, gone int
		d, err := podsource.NewDirectory(podsource.DirectoryConfig{
			Path: path, NodeName: "n", PollOnly: true,
			Observer: podsource.Observer{
				Loaded: func(podsource.Result, error) {
					mu.Lock()
					defer mu.Unlock()
					passes++
				},
				ProblemsChanged: func(a, g []podsource.Problem) {
					mu.Lock()
					defer mu.Unlock()
					added, gone = added+len(a), gone+len(g)
				},
			},
		})
		require.NoError(t, err)
		set := func(_ context.Context, pods []*corev1.Pod) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, names(pods))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx, set) }()
		after := func(pause time.Duration, check func()) {
			time.Sleep(pause) // the bubble's time
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			check()
		}

		after(2500*time.Millisecond, func() {
			require.Equal(t, 3, passes)
			require.Empty(t, told, "a directory that was never read must not deliver pods")
			require.Equal(t, 1, added)
		})
		require.NoError(t, os.Mkdir(path, 0o700))
		after(time.Second, func() {
			require.Equal(t, []string{""}, told, "an empty directory must deliver an empty list")
			require.Equal(t, 1, gone)
		})
		for _, name := range []string{"a", "b"} {
			require.NoError(t, os.WriteFile(filepath.Join(path, name+".yaml"), []byte(yamlOf(name, "i:1")), 0o600))
		}
		d.Trigger()
		after(0, func() { require.Equal(t, []string{"", "a-n b-n"}, told) })
		after(10*time.Second, func() { require.Len(t, told, 2) })
		require.NoError(t, os.Rename(filepath.Join(path, "a.yaml"), filepath.Join(path, "z.yaml")))
		after(10*time.Second, func() { require.Len(t, told, 2, "the same pods in another order must not be delivered") })
		require.NoError(t, os.Remove(filepath.Join(path, "b.yaml")))
		after(time.Second, func() { require.Equal(t, []string{"", "a-n b-n", "a-n"}, told) })

		require.ErrorIs(t, d.Run(t.Context(), set), podsource.ErrRunning)
		cancel()
		require.NoError(t, <-done)
	})
}

func names(pods []*corev1.Pod) string {
	var list []string
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return strings.Join(list, " ")
}

func TestRun_LogsEachProblemTwice(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	var log bytes.Buffer
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{
		Path: path, NodeName: "n", Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	file := filepath.Join(path, "a.yaml")
	require.NoError(t, os.WriteFile(file, []byte("[]"), 0o600))
	for range 3 {
		_, err = d.Load(t.Context())
		require.NoError(t, err)
	}
	require.NoError(t, os.Remove(file))
	for range 3 {
		_, err = d.Load(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), `level=WARN msg="could not use a manifest, will use its last valid version if there is one" file=`+file+` document=1 err="must be an object of kind Pod, not a list"`)
	require.Contains(t, log.String(), `level=INFO msg="a problem with a manifest was resolved" file=`+file+` document=1`)
}

func TestRun_DeliversNothingAfterItEnds(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(yamlOf("a", "i:1")), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: path, NodeName: "n"})
	require.NoError(t, err)
	cancel()
	require.NoError(t, d.Run(ctx, func(context.Context, []*corev1.Pod) { t.Error("told") }))
}

func TestRun_EachRunDeliversTheFirstSet(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(path, "a.yaml"), []byte(yamlOf("a", "i:1")), 0o600))
	var told []string
	stop := make(chan struct{}, 1)
	d, err := podsource.NewDirectory(podsource.DirectoryConfig{Path: path, NodeName: "n"})
	require.NoError(t, err)
	set := func(_ context.Context, pods []*corev1.Pod) {
		told = append(told, names(pods))
		stop <- struct{}{}
	}
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx, set) }()
		<-stop
		cancel()
		require.NoError(t, <-done)
	}
	require.Equal(t, []string{"a-n", "a-n"}, told, "after a restart, the pods must be delivered again")
}
