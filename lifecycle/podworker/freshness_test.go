package podworker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

func TestSync_NeedsAStatusNewerThanTheLastSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.update(podworker.Create, newPod("a"))
		first := time.Now()
		time.Sleep(5 * time.Second)
		b.update(podworker.Sync, newPod("a"))
		require.True(t, b.cache.asked[0].IsZero())
		require.True(t, b.cache.asked[1].After(first))
		require.True(t, b.cache.asked[1].Before(time.Now()))
	})
}

// In a bubble, a sync and the previous relist may have the same time. The next sync must not
// use that relist, because it would repeat the same actions.
func TestFreshness_ClockThatStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []int
		cache := podcache.New()
		s := &syncer{on: map[string]func(context.Context, podworker.SyncRequest) (bool, error){
			"sync": func(_ context.Context, req podworker.SyncRequest) (bool, error) {
				seen = append(seen, len(req.Status.Containers))
				return false, nil
			},
		}}
		w, err := podworker.New(podworker.Config{Syncer: s, Cache: cache})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()

		cache.UpdateTime(time.Now())
		for _, why := range []podworker.UpdateType{podworker.Create, podworker.Sync} {
			w.UpdatePod(podworker.Update{Type: why, Pod: newPod("a")})
			synctest.Wait()
		}
		require.Equal(t, []int{0}, seen)
		time.Sleep(time.Second)
		cache.Set("a", running("a"), nil, time.Now())
		synctest.Wait()
		require.Equal(t, []int{0, 1}, seen)
		cancel()
		require.NoError(t, <-done)
	})
}

// Containers of an earlier pod with the same UID must not count as containers of the new pod.
func TestSync_NewPodWithSameUIDSeesTheEndOfThePrevious(t *testing.T) {
	for name, first := range map[string]podworker.Update{
		"a pod":                      {Type: podworker.Kill, Pod: newPod("a")},
		"what only the runtime knew": {Type: podworker.Kill, Running: running("a")},
	} {
		inBubble(t, func(b *bed) {
			b.UpdatePod(first)
			synctest.Wait()
			ended := time.Now()
			time.Sleep(time.Second)
			b.SyncKnownPods(desired())
			b.update(podworker.Create, newPod("a"))
			require.Equal(t, "sync a", b.sync.calls[len(b.sync.calls)-1], name)
			require.Equal(t, ended.Add(1), b.cache.asked[len(b.cache.asked)-1], name)
			b.update(podworker.Kill, newPod("a"))
			for range 3 {
				b.SyncKnownPods(desired())
			}
			require.Zero(t, b.Past(), name)
		})
	}
}

func TestSync_CacheErrorFailsTheSync(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.cache.set(func(c *instant) { c.err = errors.New("cannot inspect") })
		b.update(podworker.Create, newPod("a"))
		require.Empty(t, b.sync.log())
		require.EqualError(t, b.turns[0].Err, "read the state of the pod in the runtime: cannot inspect")
		unknown, ok := errors.AsType[*podworker.StatusError](b.turns[0].Err)
		require.True(t, ok)
		require.EqualError(t, errors.Unwrap(unknown), "cannot inspect")
		b.cache.set(func(c *instant) { c.err = nil })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"sync a"}, b.sync.log())
	})
}

// A pod must be killed even if the runtime does not respond.
func TestKillPod_CacheIsNeverFresh(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.cache.set(func(c *instant) { c.hangs = true; c.pods["a"] = running("a") })
		b.update(podworker.Create, newPod("a"))
		time.Sleep(time.Hour)
		require.Empty(t, b.sync.log(), "no container must start from an outdated status")
		killed := b.kill(newPod("a"), podworker.KillOptions{})
		requireUnreported(t, killed)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		requireKilled(t, killed)
		require.Equal(t, []string{"terminating a"}, b.sync.log())
		require.True(t, b.sync.last().Status.Stale)
		require.Len(t, b.sync.last().Status.Containers, 1)
		require.False(t, b.cache.pods["a"].Stale, "the shared status must not be modified")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"terminated a"}, b.sync.log())
	})
}

func TestKillOrphans_SyncGetsTheStatusOfTheCaller(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.cache.set(func(c *instant) { c.err = errors.New("cannot inspect") })
		s := running("a")
		b.UpdatePod(podworker.Update{Type: podworker.Kill, Running: s})
		synctest.Wait()
		require.Equal(t, []string{"runtime a"}, b.sync.log())
		require.Equal(t, s.Containers, b.sync.last().Status.Containers)
		require.True(t, b.sync.last().Status.Stale)
	})
}

// emptyHanded is a cache that returns nil statuses.
type emptyHanded struct{}

func (emptyHanded) Get(types.UID) (*podcache.Status, error) { return nil, nil }
func (emptyHanded) Known(types.UID) bool                    { return true }
func (emptyHanded) GetNewerThan(context.Context, types.UID, time.Time) (*podcache.Status, error) {
	return nil, nil
}

func TestSync_NilStatusFromTheCacheIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &syncer{on: map[string]func(context.Context, podworker.SyncRequest) (bool, error){}}
		w, err := podworker.New(podworker.Config{Syncer: s, Cache: emptyHanded{}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		w.UpdatePod(podworker.Update{Type: podworker.Create, Pod: newPod("a")})
		synctest.Wait()
		require.Empty(t, s.log())
		require.NoError(t, w.KillPod(t.Context(), newPod("a"), podworker.KillOptions{}))
		synctest.Wait()
		require.Equal(t, []string{"terminating a", "terminated a"}, s.log())
		cancel()
		require.NoError(t, <-done)
	})
}
