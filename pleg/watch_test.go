package pleg_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/pleg"
)

func TestWatch_OneEventPerPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, clock.RealClock{})
		ctx, cancel := context.WithCancel(t.Context())
		early := r.Watch(ctx)
		r.node.container("first", "f1", runs)
		r.relist()
		synctest.Wait() // the watcher's goroutine has already taken this event from the queue
		r.node.container("b", "b1", runs)
		r.relist()
		r.node.container("a", "a1", runs)
		r.node.container("b", "b2", runs)
		r.relist()
		r.node.container("c", "c1", runs)
		r.relist()
		late := r.Watch(ctx)
		r.node.container("b", "b3", runs)
		r.relist()
		r.node.container("c", "c1", exited)
		r.relist()
		for _, want := range []pleg.Event{
			{PodUID: "first", Type: pleg.ContainerStarted, ContainerID: "f1"},
			{PodUID: "b", Type: pleg.ContainerStarted},
			{PodUID: "a", Type: pleg.ContainerStarted, ContainerID: "a1"},
			{PodUID: "c", Type: pleg.PodSync},
		} {
			require.Equal(t, want, <-early)
		}
		require.Equal(t, pleg.Event{PodUID: "b", Type: pleg.ContainerStarted, ContainerID: "b3"}, <-late)
		require.Equal(t, pleg.Event{PodUID: "c", Type: pleg.ContainerDied, ContainerID: "c1"}, <-late)
		select {
		case e := <-early:
			t.Error(e)
		case e := <-late:
			t.Error(e)
		default:
		}
		r.node.container("d", "d1", runs)
		r.relist()
		synctest.Wait()
		cancel()
		for range early { // the channel may still contain the last event
		}
		for range late {
		}
		r.node.container("e", "e1", runs)
		r.relist() // no watcher exists any more
	})
}

// In the kubelet 1,000 of these 2,000 events are lost.
func TestWatch_SlowReaderMissesNoPod(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r := newRig(t, fakeClock())
	var watching sync.WaitGroup
	const pods = 500
	for range 3 {
		watch := r.Watch(ctx)
		watching.Go(func() {
			for seen := map[types.UID]bool{}; len(seen) < pods; {
				seen[(<-watch).PodUID] = true
			}
		})
	}
	for p := range pods {
		uid := types.UID(fmt.Sprintf("%03d", p))
		r.node.sandbox(uid, "s"+string(uid), ready)
		for i := range 3 {
			r.node.container(uid, fmt.Sprintf("%s-%d", uid, i), runs)
		}
	}
	require.Len(t, r.relist(), 4*pods)
	asleep := r.Watch(ctx)
	for range 10 { // a watcher that does not read must not delay other goroutines
		r.RequestReinspect("001")
		require.Len(t, r.relist(), 1)
	}
	require.Equal(t, pleg.Event{PodUID: "001", Type: pleg.PodSync}, <-asleep)
	require.Equal(t, uint64(4*pods+10), r.Stats().Events)
	watching.Wait()
	cancel()
	for range asleep { // until the channel is closed
	}
}
