package pleg_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
)

// start runs r in the bubble until the returned function is called.
func start(t *testing.T, r *rig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		require.NoError(t, <-done)
	}
}

// await returns how long a read that is newer than now takes, and its result.
func await(t *testing.T, c *podcache.Cache, uid types.UID) (time.Duration, *podcache.Status, error) {
	t.Helper()
	asked := time.Now()
	status, err := c.GetNewerThan(t.Context(), uid, asked)
	return time.Since(asked), status, err
}

func TestRun_RelistsAtOnceAndThenEachPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		began := time.Now()
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) {
			c.Observer.RelistStart = func() { at = append(at, time.Since(began)) }
		})
		stop := start(t, r)
		require.ErrorIs(t, r.Run(t.Context()), pleg.ErrRunning)
		time.Sleep(2500 * time.Millisecond)
		stop()
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, at)
		stop = start(t, r)
		require.Len(t, at, 4, "a new Run must relist at once")
		stop()
	})
}

func TestRequestRelist_ServedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		r.node.container("a", "a1", runs)
		r.node.container("b", "b1", runs)
		stop := start(t, r)
		defer stop()
		time.Sleep(300 * time.Millisecond)
		r.take()
		r.node.container("a", "a1", exited)
		r.node.container("b", "b1", exited)
		lists := r.node.listed()
		now := time.Now()
		r.RequestRelist("a")
		r.RequestRelist("a")
		took, status, err := await(t, r.cache, "a")
		require.NoError(t, err)
		require.Zero(t, took)
		require.False(t, status.Running())
		synctest.Wait()
		require.LessOrEqual(t, r.node.listed()-lists, 2)
		require.Equal(t, []string{"a ContainerDied a1"}, r.take(), "only the requested pod must be relisted")
		require.False(t, isFresh(t, r.cache, "b", now))
		took, _, err = await(t, r.cache, "b")
		require.NoError(t, err)
		require.Equal(t, 700*time.Millisecond, took, "the request must not delay the next global relist")
		synctest.Wait()
		require.Equal(t, []string{"b ContainerDied b1"}, r.take())
	})
}

func TestRequestRelist_SkippedAfterAGlobalRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		r.node.container("a", "a1", runs)
		r.RequestRelist("a") // before Run
		stop := start(t, r)
		require.Equal(t, 1, r.node.listed())
		_, _, requests := r.Memory()
		require.Zero(t, requests)

		unblock := r.node.block("list")
		time.Sleep(1100 * time.Millisecond)
		r.RequestRelist("a") // during a global relist, whose list may be older than the change
		unblock()
		synctest.Wait()
		require.Equal(t, 3, r.node.listed())
		r.node.failLists(errRuntime)
		r.RequestRelist("a") // the failure of this relist is logged; the next global relist serves the request
		synctest.Wait()
		require.Equal(t, 4, r.node.listed())
		stop()
	})
}

// The request and the start of the list may be at the same time.
func TestRequestRelist_ServedIfMadeDuringAGlobalRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		unblock := r.node.block("list")
		stop := start(t, r)
		r.RequestRelist("a")
		unblock()
		synctest.Wait()
		require.Equal(t, 2, r.node.listed())
		stop()
	})
}

// Every failure may last as long as the runtime client's deadline.
func TestRequestRelist_DoesNotDelayTheGlobalRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []time.Duration
		began := time.Now()
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) {
			c.Runtime = slowLists{c.Runtime, 20 * time.Second}
			c.Observer.RelistEnd = func(pleg.Result, error) { ended = append(ended, time.Since(began)) }
		})
		r.node.failLists(errRuntime)
		stop := start(t, r)
		for i := range 10 { // during the first list
			r.RequestRelist(types.UID(fmt.Sprint(i)))
		}
		time.Sleep(65 * time.Second)
		stop()
		require.Equal(t, []time.Duration{20 * time.Second, 60 * time.Second}, ended[:2])
		_, _, requests := r.Memory()
		require.Equal(t, 10, requests, "no request may be lost")
	})
}

// In the kubelet, only the timeout of its CRI client limits a list.
func TestRelist_HangingListFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.ListTimeout = 5 * time.Second })
		r.node.container("a", "a1", runs)
		unblock := r.node.block("list")
		stop := start(t, r)
		time.Sleep(5*time.Second + time.Millisecond)
		require.ErrorIs(t, r.Healthy(), context.DeadlineExceeded)
		require.Equal(t, uint64(1), r.Stats().FailedRelists)
		time.Sleep(6 * time.Second)
		require.Equal(t, uint64(2), r.Stats().FailedRelists, "the list must be retried after Period")
		unblock()
		time.Sleep(time.Second)
		require.NoError(t, r.Healthy())
		require.Equal(t, []string{"a ContainerStarted a1"}, r.take())

		defer r.node.block("list")()
		require.ErrorIs(t, r.RelistPod(t.Context(), "a"), context.DeadlineExceeded)
		stop()
	})
}

// slowLists is a runtime with slow lists.
type slowLists struct {
	pleg.Runtime
	took time.Duration
}

func (s slowLists) ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	select {
	case <-time.After(s.took):
	case <-ctx.Done():
	}
	return s.Runtime.ListPodSandbox(ctx, f)
}

// In the kubelet, waiters of all other pods wait for the hanging pod.
func TestRun_HungPodsDoNotDelayOthers(t *testing.T) {
	for _, hung := range []int{1, 7, 8, 20} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, clock.RealClock{})
			r.node.container("a", "a1", runs)
			r.node.container("b", "b1", runs)
			stop := start(t, r)
			defer stop()
			time.Sleep(500 * time.Millisecond)
			for i := range hung {
				uid := types.UID(fmt.Sprintf("hung-%d", i))
				r.node.container(uid, string(uid), runs)
				defer r.node.block(string(uid))()
			}
			for second := range 60 {
				time.Sleep(time.Millisecond) // not at the time of a list
				took, status, err := await(t, r.cache, "b")
				require.NoError(t, err)
				require.LessOrEqual(t, took, time.Second, "read of an unchanged pod")
				require.Len(t, status.Containers, 1)
				took, _, err = await(t, r.cache, "nobody")
				require.NoError(t, err)
				require.LessOrEqual(t, took, time.Second, "read of an absent pod")
				if hung >= 8 && second < 30 {
					continue // all inspections hang until each has timed out once
				}
				time.Sleep(time.Millisecond) // not at the time of a list
				state := runs
				if status, _ := r.cache.Get("a"); status.Running() {
					state = exited
				}
				r.node.container("a", "a1", state)
				took, status, err = await(t, r.cache, "a")
				require.NoError(t, err)
				require.LessOrEqual(t, took, time.Second, "read of a changed pod in second %d", second)
				require.Equal(t, state, status.Containers[0].State)
			}
			require.NoError(t, r.Healthy())
			status, err := r.cache.Get("hung-0")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, status.Stale)
			require.Contains(t, r.take(), "hung-0 ContainerStarted hung-0")
		})
	}
}

// In the kubelet a read may return a listed pod without containers.
func TestRun_ListedPodIsNeverReadAsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		for _, id := range []string{"a1", "a2", "a3"} {
			r.node.container("a", id, runs)
		}
		unblock := r.node.block("a2")
		stop := start(t, r)
		defer stop()
		took, status, err := await(t, r.cache, "nobody")
		require.NoError(t, err)
		require.Zero(t, took)
		require.Empty(t, status.Containers)
		require.NoError(t, r.Healthy())
		done := make(chan int, 1)
		go func() {
			status, _ := r.cache.GetNewerThan(t.Context(), "a", time.Time{})
			done <- len(status.Containers)
		}()
		time.Sleep(5 * time.Second) // the global time of the cache advances meanwhile
		synctest.Wait()
		require.Empty(t, done)
		unblock()
		require.Equal(t, 3, <-done)
	})
}

func TestRun_ChangesDuringAnInspectionFollowIt(t *testing.T) {
	for name, test := range map[string]struct {
		do     func(*rig)
		events []string
		states int
	}{
		"nothing":                     {func(*rig) {}, []string{"a ContainerStarted a1"}, 1},
		"another container exits":     {func(r *rig) { r.node.container("a", "a2", exited) }, []string{"a ContainerStarted a1", "a ContainerDied a2"}, 2},
		"a reinspection is asked for": {func(r *rig) { r.RequestReinspect("a") }, []string{"a ContainerStarted a1", "a PodSync"}, 1},
		"the container is removed": {func(r *rig) { r.node.remove("a1") }, []string{
			"a ContainerStarted a1", "a ContainerDied a1", "a ContainerRemoved a1",
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, clock.RealClock{})
				r.node.container("a", "a1", runs)
				unblock := r.node.block("a1")
				defer start(t, r)()
				test.do(r)
				time.Sleep(2500 * time.Millisecond)
				require.Empty(t, r.take())
				asked := time.Now().Add(-500 * time.Millisecond) // older than the last list
				unblock()
				synctest.Wait()
				require.Equal(t, test.events, r.take())
				require.True(t, isFresh(t, r.cache, "a", asked), "the status must be fresh without another list")
				status, err := r.cache.Get("a")
				require.NoError(t, err)
				require.Len(t, status.Containers, test.states)
			})
		})
	}
}

func TestRun_CancelEndsHangingCalls(t *testing.T) {
	for _, key := range []string{"list", "a1"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, clock.RealClock{})
			r.node.container("a", "a1", runs)
			unblock := r.node.block(key)
			stop := start(t, r)
			began := time.Now()
			stop()
			require.Zero(t, time.Since(began))
			unblock()
			require.Empty(t, r.take())
			require.Equal(t, []string{"a ContainerStarted a1"}, r.relist(), "the next pass must deliver the event")
			require.NoError(t, r.Healthy())
		})
	}
}

func TestRelist_ConcurrentWithRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		r.node.container("a", "a1", runs)
		unblock := r.node.block("a1")
		stop := start(t, r)
		r.node.container("b", "b1", runs)
		require.Equal(t, []string{"b ContainerStarted b1"}, r.relist(), "a pass must wait only for its own inspections")
		unblock()
		synctest.Wait()
		require.Equal(t, []string{"a ContainerStarted a1"}, r.take())
		stop()
	})
}

func TestRun_LimitsInspections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.MaxInspections = 3 })
		for i := range 10 {
			uid := types.UID(fmt.Sprintf("p%d", i))
			r.node.container(uid, string(uid), runs)
			defer r.node.block(string(uid))()
		}
		stop := start(t, r)
		require.Len(t, r.node.takeAsked(), 3)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, r.node.takeAsked(), 3, "only the next three pods must be inspected, because the failed ones back off")
		stop()
		require.Empty(t, r.node.takeAsked(), "no inspection must start after ctx is done")
	})
}

func TestRun_LogsAnOutageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { c.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		r.node.failLists(errRuntime)
		stop := start(t, r)
		time.Sleep(10500 * time.Millisecond)
		r.node.failLists(nil)
		time.Sleep(10 * time.Second)
		stop()
		require.Equal(t, 1, strings.Count(out.String(), "relist of all pods failed"))
		require.Equal(t, 1, strings.Count(out.String(), "relist of all pods succeeded again"))
	})
}
