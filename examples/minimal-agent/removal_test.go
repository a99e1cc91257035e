package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestRemovalsAreFewAtATimeAndOnePerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed, atIt atomic.Int32
		gate := make(chan error)
		r := newRemovals(func() { removed.Add(1) }, slog.New(slog.DiscardHandler))
		for i := range removalsAtOnce + 3 {
			uid := types.UID(fmt.Sprint(i))
			for range 2 {
				r.start(t.Context(), &podcache.Status{UID: uid}, func(context.Context) error { atIt.Add(1); return <-gate })
			}
			require.True(t, r.underWay(uid))
		}
		synctest.Wait()
		require.EqualValues(t, removalsAtOnce, atIt.Load())

		gate <- errors.New("the runtime does not want to")
		synctest.Wait()
		require.EqualValues(t, removalsAtOnce+1, atIt.Load())
		require.Zero(t, removed.Load(), "a failure asks for no sweep: it would fail again at once")

		for range removalsAtOnce + 2 {
			gate <- nil
			synctest.Wait()
		}
		r.wait()
		require.EqualValues(t, removalsAtOnce+3, atIt.Load())
		require.EqualValues(t, removalsAtOnce+2, removed.Load())
		require.False(t, r.underWay("0"))
	})
}

func TestRemovalsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	r := newRemovals(func() { t.Error("nothing was removed") }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 * removalsAtOnce {
		r.start(ctx, &podcache.Status{UID: types.UID(fmt.Sprint(i))}, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}
	cancel()
	r.wait()
	require.False(t, r.underWay("0"))
	require.Empty(t, r.unfinished(), "what was interrupted has not failed")
}

// removalBed asks for the removal of a pod each second, as triggers do.
type removalBed struct {
	*removals
	log      bytes.Buffer
	begun    time.Time
	err      error
	attempts []time.Duration // since begun
}

func newRemovalBed() *removalBed {
	b := &removalBed{begun: time.Now()}
	b.removals = newRemovals(func() {}, slog.New(slog.NewTextHandler(&b.log, nil)))
	return b
}

func (b *removalBed) ask(t *testing.T, seconds int) {
	t.Helper()
	for range seconds {
		b.start(t.Context(), &podcache.Status{UID: "uid", Namespace: "ns", Name: "a"}, func(context.Context) error {
			b.attempts = append(b.attempts, time.Since(b.begun))
			return b.err
		})
		b.wait()
		time.Sleep(time.Second)
	}
}

// logged returns the lines since it was last called, without their times.
func (b *removalBed) logged() (lines []string) {
	for line := range strings.Lines(b.log.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		lines = append(lines, text)
	}
	b.log.Reset()
	return lines
}

func TestRemovals_BackOffAndTellAFailureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRemovalBed()
		b.err = errors.New("runc init")
		b.ask(t, 300)
		var want []time.Duration
		for _, s := range []int{0, 2, 6, 14, 30, 62, 122, 182, 242} {
			want = append(want, time.Duration(s)*time.Second)
		}
		require.Equal(t, want, b.attempts)
		require.Equal(t, []string{`level=ERROR msg="could not remove a pod, it will be tried again" podUID=uid pod=ns/a retryIn=2s err="runc init"`}, b.logged())
		require.Equal(t, []types.UID{"uid"}, b.unfinished())

		b.err = errors.New("busy")
		b.ask(t, 60)
		require.Equal(t, []string{`level=ERROR msg="could not remove a pod, it will be tried again" podUID=uid pod=ns/a retryIn=1m0s err=busy`}, b.logged())

		b.err = nil
		b.ask(t, 300)
		require.Equal(t, []string{`level=INFO msg="removed a pod that could not be removed before" podUID=uid pod=ns/a attempts=11`}, b.logged())
		require.Empty(t, b.unfinished())
		require.Empty(t, b.failed)

		b.err, b.attempts, b.begun = errors.New("runc init"), nil, time.Now()
		b.ask(t, 4)
		require.Len(t, b.attempts, 2, "it starts afresh")
		require.Len(t, b.logged(), 1)
		b.forget("uid")
		require.Empty(t, b.failed)
	})
}

func TestRemovals_HurryAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRemovalBed()
		b.err = errors.New("runc init")
		b.ask(t, 100)
		b.logged()
		tried := len(b.attempts)
		b.hurry()
		b.ask(t, 1)
		require.Len(t, b.attempts, tried+1)
		require.Len(t, b.logged(), 1)
	})
}

// TestRemovalThatTheRuntimeRefuses: the agent was restarted, so that no worker gives back
// what the pod had.
func TestRemovalThatTheRuntimeRefuses(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	dir, root := t.TempDir(), t.TempDir()
	args := []string{"--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root}
	manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1", "    volumeMounts: [{name: v, mountPath: /v}]\n", "  volumes: [{name: v, emptyDir: {}}]\n"))
	first := start(t, args...)
	await(t, "a runs", func() bool { return first.phase(t, "a") == corev1.PodRunning })
	folder := filepath.Join(root, "pods", string(first.pods(t)["a-node1"].UID))
	require.DirExists(t, filepath.Join(folder, "volumes"))
	require.NoError(t, first.stop())

	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	for _, call := range []string{"RemoveContainer", "RemovePodSandbox"} {
		require.NoError(t, node.Fail(call, fakecri.Fault{Err: errors.New("a runc init is left")}))
	}
	second := start(t, args...)
	isThere := func(path string) bool { _, err := os.Stat(path); return err == nil }
	await(t, "the pod's volumes are gone", func() bool { return !isThere(filepath.Join(folder, "volumes")) })
	told := func(text string) int {
		_, stderr := second.printed()
		return strings.Count(stderr, text)
	}
	await(t, "the failure is told", func() bool { return told("could not remove a pod") == 1 })
	require.Zero(t, second.removed("a"))
	require.True(t, isThere(folder))

	node.Heal("")
	await(t, "a is gone", func() bool { return second.removed("a") == 1 && !isThere(folder) })
	await(t, "that is told", func() bool { return told("removed a pod that could not be removed before") == 1 })
	require.NoError(t, second.stop())
	require.Equal(t, 1, told("could not remove a pod"))
}

// TestPodThatNeverBeganLeavesNothing: nothing of it is ever seen at the runtime, so that
// its files are removed because it left, twice here, for the manifest comes back.
func TestPodThatNeverBeganLeavesNothing(t *testing.T) {
	t.Parallel()
	node, endpoint := serveRuntime(t)
	require.NoError(t, node.Fail("RunPodSandbox", fakecri.Fault{Err: errors.New("no network")}))
	dir, root := t.TempDir(), t.TempDir()
	a := start(t, "--cri-endpoint", endpoint, "--manifests", dir, "--root-dir", root)
	logs := func() []string {
		found, err := filepath.Glob(filepath.Join(root, "logs/pods/*"))
		require.NoError(t, err)
		return found
	}
	for range 2 {
		manifest(t, dir, "a.yaml", podYAML("a", "demo/web:1"))
		await(t, "it has a folder for its logs", func() bool { return len(logs()) == 1 })
		require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
		await(t, "the folder is gone", func() bool { return len(logs()) == 0 })
	}
	require.NoError(t, a.stop())
}

// TestFound_StatusWithoutLabels: a runtime may answer wrongly once, and the answer stays in
// the cache for as long as the lists show no change.
func TestFound_StatusWithoutLabels(t *testing.T) {
	t.Parallel()
	a := &agent{cache: podcache.New()}
	a.cache.Set("uid", &podcache.Status{UID: "uid", Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "s"}}}, nil, time.Now())
	require.Len(t, a.found(), 1, "the lists are of this agent's pods")
	a.opts.takeOver = true
	require.Empty(t, a.found(), "it may be a stranger's")
}
