package lifecycle_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func epoch() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func newBackoff(tb testing.TB, cfg lifecycle.BackoffConfig) (*lifecycle.Backoff, *testingclock.FakeClock) {
	tb.Helper()
	clk := testingclock.NewFakeClock(epoch())
	cfg.Clock = clk
	b, err := lifecycle.NewBackoff(cfg)
	require.NoError(tb, err)
	return b, clk
}

func TestBackoff_ContainerThatCrashesAtOnce(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	var got []time.Duration
	for range 8 {
		ended := clk.Now()
		until, delay, waiting := b.Until("c", ended)
		if waiting {
			require.Equal(t, ended.Add(delay), until)
			clk.SetTime(until.Add(-1))
			_, _, waiting = b.Until("c", ended)
			require.True(t, waiting, "the wait must not end early")
			clk.SetTime(until)
			_, _, waiting = b.Until("c", ended)
			require.False(t, waiting, "the wait must end")
		}
		got = append(got, delay)
		require.Equal(t, b.Next("c", ended), b.Delay("c"))
	}
	require.Equal(t, []time.Duration{
		0, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
		5 * time.Minute, 5 * time.Minute,
	}, got)
}

func TestBackoff_IdleKeysAreReset(t *testing.T) {
	t.Parallel()
	for ran, want := range map[time.Duration]time.Duration{
		time.Minute:                   40 * time.Second,
		10 * time.Minute:              40 * time.Second,
		10*time.Minute + time.Second:  10 * time.Second,
		100 * time.Hour:               10 * time.Second,
		10*time.Minute - time.Second:  40 * time.Second,
		10*time.Minute + time.Hour/30: 10 * time.Second,
	} {
		b, clk := newBackoff(t, lifecycle.BackoffConfig{})
		b.Next("c", clk.Now())
		b.Next("c", clk.Now()) // 20s
		clk.Step(ran)
		ended := clk.Now()
		_, _, waiting := b.Until("c", ended)
		require.Equal(t, want != 10*time.Second, waiting, "after running for %v", ran)
		require.Equal(t, want, b.Next("c", ended), "after running for %v", ran)
	}
}

func TestBackoff_WaitCountsFromTheEnd(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	b.Next("c", clk.Now())
	ended := clk.Now()
	clk.Step(4 * time.Second)
	until, delay, waiting := b.Until("c", ended)
	require.True(t, waiting)
	require.Equal(t, 10*time.Second, delay)
	require.Equal(t, 6*time.Second, until.Sub(clk.Now()))
}

func TestBackoff_EndInTheFutureCountsAsNow(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	b.Next("c", clk.Now())
	ended := clk.Now().Add(time.Hour) // the clock was set back by an hour since
	until, _, waiting := b.Until("c", ended)
	require.True(t, waiting)
	require.Equal(t, clk.Now().Add(10*time.Second), until)
	clk.Step(10 * time.Second)
	_, _, waiting = b.Until("c", ended)
	require.False(t, waiting, "the wait must not last an hour")
}

// TestBackoff_RuntimeClockBehind checks the case that the reported ends are before the
// starts.
func TestBackoff_RuntimeClockBehind(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	starts := 0
	var ended time.Time
	for range 600 { // the container crashes at once, and is checked each second
		if _, _, waiting := b.Until("c", ended.Add(-time.Hour)); !waiting {
			starts++
			b.Next("c", ended.Add(-time.Hour))
			ended = clk.Now()
		}
		clk.Step(time.Second)
	}
	require.Equal(t, 6, starts, "starts after 0, 10, 30, 70, 150 and 310 seconds")

	clk.Step(time.Hour) // it ran long enough to reset its back-off
	ended = clk.Now().Add(-time.Hour)
	_, _, waiting := b.Until("c", ended)
	require.False(t, waiting)
	require.Equal(t, 10*time.Second, b.Next("c", ended))
}

// stopped is a clock that shows one time, monotonic reading included.
type stopped time.Time

func (c stopped) Now() time.Time                  { return time.Time(c) }
func (c stopped) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func TestBackoff_WaitIsMonotonicAlthoughReportedTimesAreNot(t *testing.T) {
	t.Parallel()
	base := time.Now() // with a monotonic reading
	b, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: stopped(base)})
	require.NoError(t, err)
	b.Next("c", base)
	reported := base.Round(0) // times from a runtime have no monotonic reading
	until, _, waiting := b.Until("c", reported)
	require.True(t, waiting)
	require.NotEqual(t, until.Round(0).String(), until.String(), "the end of the wait must have a monotonic reading")
}

func TestBackoff_ZeroEndIsLongAgo(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	b.Next("c", time.Time{})
	_, _, waiting := b.Until("c", time.Time{})
	require.False(t, waiting)
	require.Equal(t, 20*time.Second, b.Next("c", clk.Now()))
}

func TestBackoff_KeysAreIndependent(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{Initial: time.Second, Max: 3 * time.Second})
	for range 3 {
		b.Next("a", clk.Now())
	}
	b.Next("b", clk.Now())
	require.Equal(t, 3*time.Second, b.Delay("a"))
	require.Equal(t, time.Second, b.Delay("b"))
	b.Reset("a")
	b.Reset("unknown")
	require.Zero(t, b.Delay("a"))
	require.Equal(t, time.Second, b.Delay("b"))
	_, _, waiting := b.Until("a", clk.Now())
	require.False(t, waiting)
}

func TestBackoff_IdleKeysExpireButNotWaitingOnes(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	for i := range 100 {
		b.Next(fmt.Sprint("quiet", i), clk.Now())
	}
	for range 6 {
		b.Next("slow", clk.Now()) // 5m
	}
	clk.Step(9 * time.Minute)
	ended := clk.Now()
	_, _, waiting := b.Until("slow", ended)
	require.True(t, waiting)
	clk.Step(4 * time.Minute) // 13 minutes after its last start
	b.Next("other", clk.Now())
	require.Equal(t, 2, b.Len(), "only slow and other must be left")
	_, _, waiting = b.Until("slow", ended)
	require.True(t, waiting, "the deletion of old entries must not end the wait")
}

// A runtime may lose a container before the agent has observed the container's
// end. Then only an end from before the container's start is known.
func TestBackoff_IdleKeyWithoutEndIsReset(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	ended := clk.Now()
	clk.Step(5 * time.Minute)
	require.Equal(t, 10*time.Second, b.Next("a", ended))
	clk.Step(6 * time.Minute)
	b.Next("other", clk.Now()) // deletes all entries that are inactive now
	clk.Step(4*time.Minute + time.Second)
	require.Equal(t, 10*time.Second, b.Next("a", ended))
	clk.Step(10 * time.Minute)
	require.Equal(t, 20*time.Second, b.Next("a", ended))
}

// The end of a wait makes a key active even if Until was not called before the
// next start.
func TestBackoff_NewEndMakesKeyActive(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	require.Equal(t, 10*time.Second, b.Next("a", clk.Now()))
	clk.Step(5 * time.Minute)
	ended := clk.Now()
	clk.Step(5*time.Minute + 15*time.Second)
	require.Equal(t, 20*time.Second, b.Next("a", ended))
}

func TestBackoff_DelayDoesNotOverflow(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{Initial: math.MaxInt64 / 3, Max: math.MaxInt64 / 2})
	for range 5 {
		require.Positive(t, b.Next("c", clk.Now()))
	}
	require.EqualValues(t, math.MaxInt64/2, b.Delay("c"))

	b, clk = newBackoff(t, lifecycle.BackoffConfig{Max: math.MaxInt64}) // the delay doubles without a maximum
	b.Next("c", clk.Now())
	require.Equal(t, 20*time.Second, b.Next("c", clk.Now()))
	_, _, waiting := b.Until("c", clk.Now())
	require.True(t, waiting)
}

func TestBackoffConfig_ProblemsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Initial: -1, Max: -2})
	require.EqualError(t, err, "lifecycle: invalid back-off config: field Initial: -1ns is negative\nfield Max: -2ns is negative")
	_, err = lifecycle.NewBackoff(lifecycle.BackoffConfig{Initial: 2, Max: 1})
	require.ErrorContains(t, err, "less than Initial")
	for cfg, want := range map[lifecycle.BackoffConfig][2]time.Duration{
		{}:                        {10 * time.Second, 5 * time.Minute},
		{Max: time.Second}:        {time.Second, time.Second},
		{Initial: time.Hour}:      {time.Hour, time.Hour},
		{Initial: time.Second}:    {time.Second, 5 * time.Minute},
		{Initial: 1000, Max: 9e9}: {1000, 9 * time.Second},
	} {
		b, clk := newBackoff(t, cfg)
		require.Equal(t, want[0], b.Next("c", clk.Now()))
		for range 40 {
			b.Next("c", clk.Now())
		}
		require.Equal(t, want[1], b.Delay("c"))
	}
	b, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	require.NoError(t, err)
	require.Zero(t, b.Len())
}

// TestBackoff_AgainstTheKubeletsRule compares random histories with a simple implementation
// of the rule, on a clock that does not step.
func TestBackoff_AgainstTheKubeletsRule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b, clk := newBackoff(t, lifecycle.BackoffConfig{})
		var delay time.Duration
		var started time.Time
		for range 60 {
			clk.Step(time.Duration(rng.Int64N(int64(15 * time.Minute)))) // the container runs
			ended := clk.Now()
			clk.Step(time.Duration(rng.Int64N(int64(6 * time.Minute)))) // Until is not called
			if delay > 0 && ended.Sub(started) > 10*time.Minute {
				delay = 0
			}
			_, _, waiting := b.Until("c", ended)
			require.Equal(t, clk.Since(ended) < delay, waiting, "seed %d", seed)
			if !waiting {
				delay = min(max(2*delay, 10*time.Second), 5*time.Minute)
				started = clk.Now()
				require.Equal(t, delay, b.Next("c", ended), "seed %d", seed)
			}
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	b, clk := newBackoff(t, lifecycle.BackoffConfig{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			key := fmt.Sprint(i % 3)
			for range 200 {
				b.Until(key, clk.Now())
				b.Next(key, clk.Now())
				b.Delay(key)
				b.Reset(key)
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.Len())
}

func TestCrashLoopMessage(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1234"}}
	require.Equal(t, "back-off 2m40s restarting failed container=main pod=web_shop(1234)",
		lifecycle.CrashLoopMessage(160*time.Second, "main", pod))
	require.Equal(t, "CrashLoopBackOff", lifecycle.CrashLoopBackOff)
	require.Equal(t, "ImagePullBackOff", lifecycle.ImagePullBackOff)
}

func BenchmarkUntil(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			backoff, clk := newBackoff(b, lifecycle.BackoffConfig{})
			for i := range n {
				backoff.Next(fmt.Sprint(i), clk.Now())
			}
			ended := clk.Now()
			b.ReportAllocs()
			for b.Loop() {
				backoff.Until("0", ended)
			}
		})
	}
}
