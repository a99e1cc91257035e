package podmanager_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podmanager"
)

// told receives a notification if one is pending, and reports whether there was one.
func told(c <-chan struct{}) bool {
	select {
	case _, ok := <-c:
		return ok
	default:
		return false
	}
}

func TestSubscribe_EveryKindOfChangeNotifies(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	c := m.Subscribe(t.Context())
	require.True(t, told(c), "there must be an initial notification")
	require.False(t, told(c))
	pod, mirror := staticPod("a", "u1"), mirrorPod("a", "m1", "u1")
	edited := staticPod("a", "u1")
	turned := mirrorPod("a", "u1", "u0")
	for _, change := range []func(){
		func() { m.AddPod(pod) },
		func() { m.AddPod(mirror) },
		func() { m.UpdatePod(edited) },
		func() { m.UpdatePod(turned) },
		func() { m.RemovePod(pod) },
		func() { m.RemovePod(mirror) },
		func() { m.SetPods([]*corev1.Pod{pod}) },
	} {
		change()
		require.True(t, told(c))
		require.False(t, told(c))
	}
	m.UpdatePod(pod) // the same object
	m.RemovePod(staticPod("b", "u2"))
	require.False(t, told(c), "an update with the same object must not be notified")
}

func TestSubscribe_CoalescesWithoutBlocking(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	first, second := m.Subscribe(t.Context()), m.Subscribe(t.Context())
	for range 100 {
		m.AddPod(staticPod("a", "u1"))
	}
	for _, c := range []<-chan struct{}{first, second} {
		require.True(t, told(c))
		require.False(t, told(c))
	}
	m.RemovePod(staticPod("a", "u1"))
	require.True(t, told(first))
	require.True(t, told(second))
}

func TestSubscribe_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := podmanager.New()
		ctx, cancel := context.WithCancel(t.Context())
		ended, other := m.Subscribe(ctx), m.Subscribe(t.Context())
		cancel()
		synctest.Wait()
		m.AddPod(staticPod("a", "u1"))
		<-ended
		_, open := <-ended
		require.False(t, open)
		require.True(t, told(other))

		over := m.Subscribe(ctx)
		synctest.Wait()
		<-over
		_, open = <-over
		require.False(t, open, "the channel must be closed if the context is already done")
	})
}

// For any interleaving of writes and reads, a reader that reads the pods after each
// notification has read the final pods in the end.
func TestSubscribe_NeverMissesTheLastChange(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	last := staticPod("last", "last")
	var wg sync.WaitGroup
	for range 4 {
		c := m.Subscribe(t.Context())
		wg.Go(func() {
			for range c {
				if _, ok := m.GetPodByUID("last"); ok {
					return
				}
			}
			t.Error("the channel was closed before the last notification")
		})
	}
	for range 1000 {
		m.AddPod(staticPod("a", "u1"))
	}
	m.AddPod(last)
	wg.Wait()
}
