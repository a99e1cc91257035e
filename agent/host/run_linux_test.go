package host_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/eviction"
)

// openFiles returns the files below root that this process has open.
func openFiles(tb testing.TB, root string) (open []string) {
	tb.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	require.NoError(tb, err)
	for _, fd := range fds {
		// A file may be closed during the loop.
		if name, err := os.Readlink(fd); err == nil && strings.HasPrefix(name, root) {
			open = append(open, name)
		}
	}
	return open
}

func TestRun_ClosesTheFilesAtItsEnd(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.Empty(b, openFiles(b, b.root))
		b.look()
		require.NotEmpty(b, openFiles(b, b.root))
		b.stop()
		synctest.Wait()
		require.Empty(b, openFiles(b, b.root))

		const closed = "host: statistics are not available any more: the host's Run has returned"
		_, err := b.host.Stats.Node(b.Context())
		require.EqualError(b, err, closed)
		_, err = b.host.Stats.Pods(b.Context(), nil)
		require.EqualError(b, err, closed)
		_, err = b.host.Stats.Summary(b.Context(), nil)
		require.EqualError(b, err, closed)
		require.EqualError(b, b.host.Waker.Watch(b.Context(), nil, nil), closed)
		require.EqualError(b, b.host.Run(b.Context()), closed)
		require.Empty(b, openFiles(b, b.root))
	})
}

func TestRun_LaterMeasurementClosesTheFiles(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.runtime.answer(3*time.Second, nil)
		done := make(chan error)
		go func() {
			_, err := b.host.Stats.Summary(b.Context(), nil)
			done <- err
		}()
		synctest.Wait()
		b.stop()
		synctest.Wait()
		require.Len(b, b.ended, 1, "Run must not wait for the runtime")
		require.NotEmpty(b, openFiles(b, b.root))
		require.NoError(b, <-done)
		require.Empty(b, openFiles(b, b.root))
	})
}

func TestRun_RunsOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		require.EqualError(b, b.host.Run(b.Context()), "host: refresh statistics: already running")
		b.look()
	})
}

func TestWaker_WatchesUntilItsContextIsDone(t *testing.T) {
	root := newMachine(t)
	h := local(t, root, host.LocalConfig{Root: root})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := h.Waker.Watch(ctx, func() []eviction.Level { return nil }, func(string) {})
	if err != nil { // the fake machine has no pressure stall information
		require.ErrorContains(t, err, root)
	}
}

func TestImageFS_NeedsImages(t *testing.T) {
	require.Nil(t, local(t, newMachine(t), host.LocalConfig{}).ImageFS)

	root := newMachine(t)
	h := local(t, root, host.LocalConfig{Images: imagesAt(root)})
	usage, err := h.ImageFS.Usage(t.Context())
	require.NoError(t, err)
	require.Positive(t, usage.CapacityBytes)
}

// imagesAt is a runtime that stores its images in a directory.
type imagesAt string

func (i imagesAt) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: string(i)},
	}}}, nil
}
