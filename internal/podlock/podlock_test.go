package podlock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/podlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLock_OneHolderAPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var locks podlock.Locks
		unlock, err := locks.Lock(t.Context(), "a")
		require.NoError(t, err)
		unlockOther, err := locks.Lock(t.Context(), "b")
		require.NoError(t, err, "another pod must not wait")
		unlockOther()

		holds, impatient := false, make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := locks.Lock(ctx, "a")
			impatient <- err
		}()
		done := make(chan struct{})
		go func() {
			defer close(done)
			unlock, err := locks.Lock(t.Context(), "a")
			if err == nil {
				holds = true
				unlock()
			}
		}()
		synctest.Wait()
		require.False(t, holds)
		cancel()
		require.ErrorIs(t, <-impatient, context.Canceled)

		unlock()
		<-done
		require.True(t, holds)
		require.Zero(t, locks.Len())
	})
}
