package podcache_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/podcache"
)

func TestOnWait_CalledWhenAReaderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, calls := podcache.New(), 0
		c.OnWait(func() {
			require.True(t, c.Waiting(), "OnWait must be called without a lock, and after the reader is registered")
			calls++
		})
		c.UpdateTime(at(1))
		_, err := c.GetNewerThan(t.Context(), "a", at(1))
		require.NoError(t, err)
		require.Zero(t, calls, "without a waiting reader, OnWait must not be called")
		require.False(t, c.Waiting())

		done := make(chan error, 1)
		go func() { _, err := c.GetNewerThan(t.Context(), "a", at(2)); done <- err }()
		synctest.Wait()
		require.Equal(t, 1, calls)
		require.True(t, c.Waiting())
		c.UpdateTime(at(2))
		require.NoError(t, <-done)
		require.False(t, c.Waiting())

		c.OnWait(nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, err := c.GetNewerThan(ctx, "b", at(3)); done <- err }()
		synctest.Wait()
		require.True(t, c.Waiting())
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.False(t, c.Waiting(), "a cancelled reader is removed")
		require.Equal(t, 1, calls)
	})
}
