package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

func TestRemovalsAreFewAtATimeAndOnePerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed, atIt atomic.Int32
		gate := make(chan error)
		r := newRemovals(func() { removed.Add(1) })
		for i := range removalsAtOnce + 3 {
			uid := types.UID(fmt.Sprint(i))
			for range 2 {
				r.start(t.Context(), uid, func(context.Context) error { atIt.Add(1); return <-gate })
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
	r := newRemovals(func() { t.Error("nothing was removed") })
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 2 * removalsAtOnce {
		r.start(ctx, types.UID(fmt.Sprint(i)), func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	}
	cancel()
	r.wait()
	require.False(t, r.underWay("0"))
}
