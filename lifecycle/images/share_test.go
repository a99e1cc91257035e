package images_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// slow returns a registry whose pulls last for d.
func slow(d time.Duration) func(context.Context, string, *runtimeapi.AuthConfig) error {
	return func(ctx context.Context, _ string, _ *runtimeapi.AuthConfig) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
}

// live returns a Manager on the bubble's clock.
func live(t *testing.T, change func(*images.Config)) *set {
	t.Helper()
	return newSet(t, func(c *images.Config) {
		c.Clock = clock.RealClock{}
		if change != nil {
			change(c)
		}
	})
}

func TestEnsure_PullsOncePerSetOfCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, func(c *images.Config) {
			c.Objects = store{"default/key": secret("key", "docker.io", "me", "pass")}
		})
		s.node.registry = slow(time.Minute)
		var all sync.WaitGroup
		for _, p := range []*corev1.Pod{pod("a"), pod("b"), pod("c", "key"), pod("a")} {
			all.Go(func() {
				_, err := s.Ensure(t.Context(), images.Request{Pod: p, Image: "web:1"})
				require.NoError(t, err)
			})
		}
		all.Wait()
		require.ElementsMatch(t, []string{"web:1 as ", "web:1 as me"}, s.node.pulled(), "one pull for each set of credentials")
	})
}

func TestBackOff_SharedFailureCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, nil)
		s.node.registry = func(ctx context.Context, image string, auth *runtimeapi.AuthConfig) error {
			return errors.Join(slow(time.Minute)(ctx, image, auth), errors.New("no route"))
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
				require.Equal(t, images.ErrImagePull, refusal(t, err).Reason)
			})
		}
		all.Wait()
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
		require.Equal(t, time.Now().Add(10*time.Second), refusal(t, err).RetryAt)
	})
}

func TestEnsure_CancelledCallerDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, nil)
		s.node.registry = slow(time.Minute)
		first, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Ensure(first, images.Request{Pod: pod("a"), Image: "web:1"})
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		all.Go(func() {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("b"), Image: "web:1"})
			require.NoError(t, err)
		})
		synctest.Wait()
		cancel() // this caller has started the pull
		all.Wait()
		require.Len(t, s.node.pulled(), 1)
	})
}

func TestEnsure_LastCallerCancelsThePull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, nil)
		stopped := 0
		s.node.registry = func(ctx context.Context, _ string, _ *runtimeapi.AuthConfig) error {
			<-ctx.Done()
			stopped++
			return ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var all sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			all.Go(func() {
				_, err := s.Ensure(ctx, images.Request{Pod: pod(name), Image: "web:1"})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		all.Wait()
		require.Equal(t, 1, stopped, "the pull must stop when the last caller returns")
		s.node.registry = nil
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "web:1"})
		require.NoError(t, err)
	})
}

func TestPulled_CancelledPullHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled images.PullInfo
		s := live(t, func(c *images.Config) {
			c.MaxParallelPulls = 1
			c.Observer.Pulled = func(info images.PullInfo) {
				if info.Err != nil {
					cancelled = info
				}
			}
		})
		s.node.registry = slow(time.Minute)
		var first sync.WaitGroup
		first.Go(func() {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "a:1"})
			require.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := s.Ensure(ctx, images.Request{Pod: pod("b"), Image: "b:1"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		first.Wait()
		require.Equal(t, 10*time.Second, cancelled.Waited)
		require.Zero(t, cancelled.Took)
	})
}

func TestMaxParallelPulls_FurtherPullsWait(t *testing.T) {
	for name, tc := range map[string]struct {
		limit int
		took  time.Duration
	}{
		"one after the other": {1, 4 * time.Minute},
		"two at once":         {2, 2 * time.Minute},
		"all at once":         {0, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var waited time.Duration
				s := live(t, func(c *images.Config) {
					c.MaxParallelPulls = tc.limit
					c.Observer.Pulled = func(info images.PullInfo) {
						mu.Lock()
						defer mu.Unlock()
						require.Equal(t, time.Minute, info.Took)
						require.NoError(t, info.Err)
						require.EqualValues(t, 4096, info.SizeBytes)
						waited = max(waited, info.Waited)
					}
				})
				s.node.registry = slow(time.Minute)
				start := time.Now()
				var all sync.WaitGroup
				for _, image := range []string{"a:1", "b:1", "c:1", "d:1"} {
					all.Go(func() {
						_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: image})
						require.NoError(t, err)
					})
				}
				all.Wait()
				require.Equal(t, tc.took, time.Since(start))
				require.Equal(t, tc.took-time.Minute, waited)
			})
		})
	}
}

func TestEnsure_WaitForASlotIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, func(c *images.Config) { c.MaxParallelPulls = 1 })
		s.node.registry = slow(time.Hour)
		var all sync.WaitGroup
		all.Go(func() {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "a:1"})
			require.Equal(t, "ErrImagePull: the pull made no progress in 15m0s", refusal(t, err).Error())
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := s.Ensure(ctx, images.Request{Pod: pod("b"), Image: "b:1"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		all.Wait()
		require.Equal(t, []string{"a:1 as "}, s.node.pulled())
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := live(t, func(c *images.Config) { c.QPS, c.Burst = 0.5, 2 })
		start := time.Now()
		var at []time.Duration
		for _, image := range []string{"a:1", "b:1", "c:1", "d:1"} {
			_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: image})
			require.NoError(t, err)
			at = append(at, time.Since(start))
		}
		require.Equal(t, []time.Duration{0, 0, 2 * time.Second, 4 * time.Second}, at)

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Ensure(ctx, images.Request{Pod: pod("a"), Image: "e:1"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "f:1"})
		require.NoError(t, err)
		require.Equal(t, 6*time.Second, time.Since(start), "a cancelled caller must not delay the others")
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := live(t, func(c *images.Config) {
			c.ProgressDeadline = 10 * time.Minute
			c.Progress = func(context.Context) (uint64, error) {
				if time.Since(start) > 30*time.Minute {
					return 1 << 40, errors.New("no answer is no progress")
				}
				return uint64(time.Since(start)), nil
			}
		})
		s.node.registry = slow(24 * time.Minute)
		_, err := s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "a:1"})
		require.NoError(t, err, "a pull that makes progress may exceed the deadline")
		s.node.registry = slow(time.Hour)
		_, err = s.Ensure(t.Context(), images.Request{Pod: pod("a"), Image: "b:1"})
		require.Equal(t, "ErrImagePull: the pull made no progress in 10m0s", refusal(t, err).Error())
		require.InDelta(t, 40, time.Since(start).Minutes(), 5)
	})
}
