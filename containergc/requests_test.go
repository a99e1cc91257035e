package containergc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/fakecri"
)

func TestRequestPod_IsServedAtOnceAndNeverDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock = clock.RealClock{} })
		m := b.manager()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		const pods = 500
		for i := range pods {
			pod := fmt.Sprint("pod", i)
			b.dead(pod, "app", 0)
			b.dead(pod, "app", 1)
		}
		b.dead("other", "app", 0)
		b.dead("other", "app", 1)
		m.RequestPod("pod0")
		synctest.Wait()
		require.NotContains(t, b.left(), "pod0/app#0")
		require.Contains(t, b.left(), "pod1/app#0")
		for i := range pods {
			m.RequestPod(types.UID(fmt.Sprint("pod", i)))
			m.RequestPod("nobody")
		}
		require.NoError(t, b.Fail("ListPodSandbox", fakecri.Fault{Err: errors.New("busy"), Times: 1}))
		m.RequestPod("pod1")
		synctest.Wait()
		require.NoError(t, <-done)
		for i := range pods {
			require.False(t, slices.Contains(b.left(), fmt.Sprintf("pod%d/app#0", i)), "pod%d", i)
		}
		require.True(t, slices.Contains(b.left(), "other/app#0"), "a container of a pod that was not requested must be kept")
	})
}

// The status of a container is requested once in its life, also if requests for single pods
// trigger passes.
func TestRequestPod_KeepsExitTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock, c.Policy.MinAge = clock.RealClock{}, hour })
		m := b.manager()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		b.dead("web", "app", 0)
		for range 3 {
			m.RequestPod("web")
			synctest.Wait()
		}
		require.NoError(t, <-done)
		require.Len(t, b.calls("ContainerStatus"), 1)
	})
}

// restless is a bed in a bubble whose manager runs full passes only every ten hours.
type restless struct {
	*bed
	*containergc.Manager
	ready   atomic.Bool
	planned atomic.Pointer[func()]
}

// die lets a container exit, so that a request has something to remove.
func (r *restless) die() {
	r.dead("web", "app", 0)
	r.dead("web", "app", 1)
}

// run runs the manager during do and for one minute afterwards.
func (r *restless) run(do func(ctx context.Context)) {
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	synctest.Wait()
	do(ctx)
	require.NoError(r.t, <-done)
	require.NotContains(r.t, r.left(), "web/app#0")
}

// A request that a pass cannot serve is retried soon, whatever the Period is.
func TestRequestPod_IsRetriedUntilServed(t *testing.T) {
	for name, situation := range map[string]func(r *restless){
		"the first pass fails": func(r *restless) {
			r.die()
			require.NoError(r.t, r.Fail("ListContainers", fakecri.Fault{Err: errors.New("busy"), Times: 1}))
			r.RequestPod("web")
			r.run(func(context.Context) {})
		},
		"sources are not ready": func(r *restless) {
			r.run(func(context.Context) {
				r.die()
				r.ready.Store(false)
				r.RequestPod("web")
				synctest.Wait()
				r.ready.Store(true)
			})
		},
		"a pass is cancelled": func(r *restless) {
			r.run(func(ctx context.Context) {
				r.die()
				ctx, cancel := context.WithCancel(ctx)
				r.planned.Store(new(func() { cancel() }))
				r.RequestPod("web")
				require.ErrorIs(r.t, r.DeleteAllUnusedContainers(ctx), context.Canceled)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &restless{}
				r.ready.Store(true)
				r.bed = newBed(t, func(c *containergc.Config) {
					c.Clock, c.Period, c.SourcesReady = clock.RealClock{}, 10*hour, r.ready.Load
					c.Observer.Planned = func(containergc.Plan) {
						if f := r.planned.Load(); f != nil {
							(*f)()
						}
					}
				})
				r.Manager = r.manager()
				situation(r)
			})
		})
	}
}

// At the first pass of a new agent, its sources are not ready. The remaining objects of the
// previous agent must be removed soon after the sources are ready, not one Period later.
func TestRun_RetriesSoonWhileSourcesAreNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ready atomic.Bool
		b := newBed(t, func(c *containergc.Config) {
			c.Clock, c.Period, c.SourcesReady = clock.RealClock{}, 10*hour, ready.Load
		})
		b.dead("web", "app", 0)
		b.set("web", "gone")
		m := b.manager()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.Contains(t, b.left(), "web/app#0")
		ready.Store(true)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.NotContains(t, b.left(), "web/app#0")
		cancel()
		require.NoError(t, <-done)
	})
}

// A request for one pod does not affect other pods: their failed removals keep their
// back-off. A full pass deletes the back-off of objects that no longer exist.
func TestRequestPod_KeepsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(c *containergc.Config) { c.Clock = clock.RealClock{} })
		bad := b.dead("bad", "app", 0)
		b.set("bad", "gone")
		require.NoError(t, b.Fail("RemoveContainer", fakecri.Fault{Object: "ns/bad/app", Err: errors.New("device is busy")}))
		m := b.manager()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		require.Len(t, b.calls("RemoveContainer"), 1)
		require.Equal(t, 1, m.Failures())

		b.dead("web", "app", 0)
		b.dead("web", "app", 1)
		m.RequestPod("web")
		synctest.Wait()
		require.NotContains(t, b.left(), "web/app#0")
		m.RequestPod("bad")
		synctest.Wait()
		require.Len(t, b.calls("RemoveContainer"), 2, "the removal for the other pod must not be retried")
		require.Equal(t, 1, m.Failures())

		b.ClearFaults("")
		require.NoError(t, b.RemoveContainer(t.Context(), bad)) // by another client
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Zero(t, m.Failures(), "the back-off of removed objects must be deleted")
		require.NoError(t, <-done)
	})
}
