package pleg_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"
)

func TestRelistPod(t *testing.T) {
	clk := fakeClock()
	r := newRig(t, clk)
	r.node.container("a", "a1", runs)
	r.node.container("b", "b1", runs)
	r.relist()
	clk.Step(time.Second)
	r.node.container("a", "a1", exited)
	r.node.container("b", "b1", exited)
	require.NoError(t, r.RelistPod(t.Context(), "a"))
	require.Equal(t, []string{"a ContainerDied a1"}, r.take())
	require.True(t, isFresh(t, r.cache, "a", clk.Now()))
	require.False(t, isFresh(t, r.cache, "b", clk.Now()))

	require.NoError(t, r.RelistPod(t.Context(), "nobody"))
	require.True(t, isFresh(t, r.cache, "nobody", clk.Now()), "the pod must be known to be absent")
	clk.Step(time.Second)
	require.NoError(t, r.RelistPod(t.Context(), "a"))
	require.Empty(t, r.take())
	require.True(t, isFresh(t, r.cache, "a", clk.Now()), "the pod must be known to be unchanged")
	require.Equal(t, []string{"b ContainerDied b1"}, r.relist(), "each change must be reported once")

	r.node.container("new", "n1", runs)
	require.NoError(t, r.RelistPod(t.Context(), "new"))
	require.Equal(t, []string{"new ContainerStarted n1"}, r.take())
	r.node.remove("n1")
	require.NoError(t, r.RelistPod(t.Context(), "new"))
	require.Equal(t, []string{"new ContainerDied n1", "new ContainerRemoved n1"}, r.take())
	require.NoError(t, r.RelistPod(t.Context(), "new"))
	require.Empty(t, r.relist())
	records, dirty, _ := r.Memory()
	require.Equal(t, []int{2, 0}, []int{records, dirty})

	r.node.failLists(errRuntime)
	require.ErrorIs(t, r.RelistPod(t.Context(), "a"), errRuntime)
}

func TestRelistPod_WaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		defer r.node.block("list")()
		defer start(t, r)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, r.RelistPod(ctx, "a"), context.DeadlineExceeded)
		_, err := r.Relist(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestRelistPod_GlobalRelistFindsAMissedPod(t *testing.T) {
	r := newRig(t, fakeClock())
	r.node.container("a", "a1", runs)
	r.relist()
	r.node.remove("a1")
	require.NoError(t, r.RelistPod(t.Context(), "a"))
	r.take()
	r.node.container("a", "a1", runs) // the previous global list contained it too
	require.Equal(t, []string{"a ContainerStarted a1"}, r.relist())
}
