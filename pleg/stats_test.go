package pleg_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/pleg"
)

func TestStats_Counters(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	require.Zero(t, r.Stats().RelistedAt)
	r.node.container("a", "a1", runs)
	r.node.container("b", "b1", runs)
	r.relist()
	require.NoError(t, r.RelistPod(t.Context(), "a"))
	require.Equal(t, pleg.Stats{
		Relists: 1, PodRelists: 1, Inspections: 2, Events: 2, Period: time.Second, RelistedAt: clk.Now(),
	}, r.Stats())

	r.node.fail("a1", errRuntime)
	r.node.fail("b1", errRuntime)
	r.node.container("a", "a1", exited)
	r.node.container("b", "b1", exited)
	_, err := r.Relist(t.Context())
	require.Error(t, err)
	require.Equal(t, pleg.Stats{
		Relists: 2, PodRelists: 1, Inspections: 4, FailedInspections: 2, Events: 4, FailedPods: 2, Period: time.Second, RelistedAt: clk.Now(),
	}, r.Stats())
	clk.Step(time.Second)
	_, err = r.Relist(t.Context())
	require.Error(t, err)
	require.Equal(t, 2, r.Stats().FailedPods, "each failed pod must count once")
	r.node.remove("b1")
	r.relist()
	require.Equal(t, 1, r.Stats().FailedPods, "a removed pod must not count")
	r.node.fail("a1", nil)
	clk.Step(time.Minute)
	r.relist()
	require.Zero(t, r.Stats().FailedPods)

	relisted := clk.Now()
	r.node.failLists(errRuntime)
	clk.Step(time.Second)
	_, err = r.Relist(t.Context())
	require.Error(t, err)
	require.Equal(t, relisted, r.Stats().RelistedAt, "the time must be that of the last successful relist")
	require.Equal(t, uint64(1), r.Stats().FailedRelists)
	require.ErrorIs(t, r.Stats().ListError, errRuntime)
}

func TestStats_ShowsAStuckRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		unblock := r.node.block("list")
		stop := start(t, r)
		time.Sleep(42 * time.Second)
		require.Equal(t, 42*time.Second, r.Stats().InProgress)
		unblock()
		synctest.Wait()
		require.Zero(t, r.Stats().InProgress)
		stop()
	})
}

// crowded is a runtime whose lists of all pods are too large for one message.
type crowded struct {
	*node
	full, breaks, broken atomic.Bool
}

func (c *crowded) ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if c.broken.Load() {
		return nil, errRuntime
	}
	if c.full.Load() && f.GetLabelSelector()[crilabels.PodUID] == "" {
		c.broken.Store(c.breaks.Load())
		return nil, fmt.Errorf("client: %w", grpcstatus.Error(codes.ResourceExhausted, "received message larger than max (17 vs. 16)"))
	}
	return c.node.ListContainers(ctx, f)
}

// If the list of all pods is too large for one message, the kubelet detects no changes.
func TestRun_TooLargeListDegradesToPodRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &crowded{}
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { rt.node = newNode(); c.Runtime = rt })
		r.node = rt.node
		const pods = 40
		for i := range pods {
			uid := types.UID(fmt.Sprintf("%02d", i))
			r.node.container(uid, "c"+string(uid), runs)
		}
		stop := start(t, r)
		time.Sleep(500 * time.Millisecond)
		require.Len(t, r.take(), pods)
		rt.full.Store(true)
		time.Sleep(time.Second)
		require.ErrorIs(t, r.Stats().ListError, pleg.ErrTooLarge)
		require.ErrorContains(t, r.Stats().ListError, "larger than max")

		r.node.container("07", "c07", exited)
		r.RequestRelist("07")
		synctest.Wait()
		require.Equal(t, []string{"07 ContainerDied c07"}, r.take(), "requests must be served")
		for i := range pods {
			uid := types.UID(fmt.Sprintf("%02d", i))
			r.node.container(uid, "c"+string(uid), exited)
			if i%2 == 0 {
				r.RequestRelist(uid) // many concurrent requests must be served, too
			}
		}
		synctest.Wait()
		require.Len(t, r.take(), pods/2)
		time.Sleep(3 * time.Second)
		require.Len(t, r.take(), pods/2-1, "the round must find the other changes")
		time.Sleep(3 * time.Minute)
		require.ErrorIs(t, r.Healthy(), pleg.ErrTooLarge)

		rt.full.Store(false)
		r.node.container("new", "n1", runs)
		time.Sleep(time.Second)
		synctest.Wait()
		require.NoError(t, r.Healthy())
		require.Equal(t, []string{"new ContainerStarted n1"}, r.take())
		rt.full.Store(true)
		rt.breaks.Store(true) // after the next list of all pods, every list fails
		before := r.Stats().PodRelists
		time.Sleep(time.Second)
		require.Equal(t, uint64(1), r.Stats().PodRelists-before, "the round must end at the first failure")
		time.Sleep(time.Second)
		require.ErrorIs(t, r.Stats().ListError, errRuntime)
		stop()
	})
}

// A request for a pod that the generator does not know yet must survive the failures of lists: as
// long as the list of all pods is too large, only this request can find the pod.
func TestRun_TooLargeListKeepsTheRequestsOfFailedRelists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &crowded{}
		r := newRig(t, clock.RealClock{}, func(c *pleg.Config) { rt.node = newNode(); c.Runtime = rt })
		r.node = rt.node
		stop := start(t, r)
		rt.full.Store(true)
		time.Sleep(1500 * time.Millisecond)
		require.ErrorIs(t, r.Stats().ListError, pleg.ErrTooLarge)
		rt.broken.Store(true)
		r.node.container("a", "a1", runs)
		r.node.container("b", "b1", runs)
		r.RequestRelist("a")
		r.RequestRelist("b")
		before := r.Stats()
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, r.Stats().ListError, errRuntime)
		require.Equal(t, uint64(10), r.Stats().FailedRelists-before.FailedRelists)
		require.Equal(t, uint64(1), r.Stats().PodRelists-before.PodRelists, "a runtime that fails must not get more requests")
		rt.broken.Store(false)
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"a ContainerStarted a1", "b ContainerStarted b1"}, r.take())
		stop()
	})
}

func TestLister_ReplacesTheRuntimeInGlobalRelists(t *testing.T) {
	lister := newNode()
	lister.container("a", "a1", runs)
	r := newRig(t, fakeClock(), func(c *pleg.Config) { c.Lister = lister })
	r.node.container("a", "a1", runs)
	r.node.container("b", "b1", runs)
	require.Equal(t, []string{"a ContainerStarted a1"}, r.relist())
	require.Zero(t, r.node.listed())
	require.NoError(t, r.RelistPod(t.Context(), "b"))
	require.Equal(t, []string{"b ContainerStarted b1"}, r.take(), "relists of single pods must still work")
}
