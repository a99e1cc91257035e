package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNext(t *testing.T) {
	t.Parallel()
	for previous, want := range map[time.Duration]time.Duration{0: 3, 1: 3, 2: 4, 3: 6, 10: 20, 12: 20, 30: 20, math.MaxInt64: 20} {
		require.Equal(t, want, backoff.Next(previous, 3, 20), previous)
	}
	require.Equal(t, time.Duration(math.MaxInt64), backoff.Next(math.MaxInt64/2+1, 1, math.MaxInt64))
	require.Equal(t, time.Duration(5), backoff.Next(0, 10, 5), "last is less than first")
}

func TestAfter(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{-1: 3, 0: 3, 1: 6, 2: 12, 3: 20, 4: 20, math.MaxInt: 20} {
		require.Equal(t, want, backoff.After(failures, 3, 20), failures)
	}
	require.Equal(t, time.Duration(math.MaxInt64), backoff.After(100, 1, math.MaxInt64))
	require.Equal(t, time.Duration(5), backoff.After(1, 10, 5), "last is less than first")
}
