package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/loop"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_StepsAtOnceAndByInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		start, at := time.Now(), []time.Duration(nil)
		err := loop.New(clock.RealClock{}).Run(ctx, func(context.Context) time.Duration {
			at = append(at, time.Since(start))
			return time.Second
		})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, at)
	})
}

func TestRun_IntervalStartsAtTheEndOfAStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		start, at := time.Now(), []time.Duration(nil)
		err := loop.New(clock.RealClock{}).Run(ctx, func(context.Context) time.Duration {
			at = append(at, time.Since(start))
			time.Sleep(4 * time.Second) // the bubble's time
			return time.Second
		})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, 5 * time.Second, 10 * time.Second}, at)
	})
}

func TestTrigger_DuringAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l, passes, gate := loop.New(clock.RealClock{}), 0, make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- l.Run(ctx, func(context.Context) time.Duration {
				passes++
				<-gate
				return time.Hour
			})
		}()
		synctest.Wait()
		l.Trigger()
		l.Trigger()
		l.Trigger()
		close(gate)
		synctest.Wait()
		require.Equal(t, 2, passes)
		l.Trigger()
		synctest.Wait()
		require.Equal(t, 3, passes)
		cancel()
		require.NoError(t, <-done)
	})
}

func TestRun_RejectsASecondRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loop.New(clock.RealClock{})
		idle := func(context.Context) time.Duration { return time.Hour }
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, idle) }()
		synctest.Wait()
		require.ErrorIs(t, l.Run(t.Context(), idle), loop.ErrRunning)
		cancel()
		require.NoError(t, <-done)

		over, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.NoError(t, l.Run(over, idle))
	})
}

func TestRun_CancelledContextRunsNoStep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := loop.New(clock.RealClock{}).Run(ctx, func(context.Context) time.Duration {
		t.Error("a step ran after the cancellation")
		return 0
	})
	require.NoError(t, err)
}
