package lifecycle_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// in returns a deadline on the system clock, which is a fake clock in a bubble.
func in(d time.Duration) *lifecycle.Deadline { return lifecycle.NewDeadline(nil, time.Now().Add(d)) }

func TestDeadline_OnlyMovesEarlier(t *testing.T) {
	t.Parallel()
	d := lifecycle.NewDeadline(nil, epoch().Add(30*time.Second))
	require.Equal(t, 30*time.Second, d.Remaining(epoch()))
	require.False(t, d.Shorten(epoch().Add(31*time.Second)))
	require.False(t, d.Shorten(d.At()), "an equal deadline is not shorter")
	require.True(t, d.Shorten(epoch().Add(5*time.Second)))
	require.Equal(t, epoch().Add(5*time.Second), d.At())
	require.Equal(t, 5*time.Second, d.Remaining(epoch()))
	require.Zero(t, d.Remaining(epoch().Add(time.Hour)))
}

func TestDeadline_ContextEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), in(30*time.Second)
		require.Equal(t, 30*time.Second, d.Left())
		ctx, cancel := d.Context(t.Context())
		defer cancel()
		<-ctx.Done()
		require.Equal(t, 30*time.Second, time.Since(start))
		require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrDeadline)
		_, ok := ctx.Deadline()
		require.False(t, ok)
	})
}

func TestTerminate_ShorterSecondDeletion(t *testing.T) { // kubernetes#127339
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), in(time.Hour)
		ctx, cancel := d.Context(t.Context())
		defer cancel()
		time.Sleep(time.Second)
		d.Shorten(time.Now().Add(10 * time.Second))
		time.Sleep(time.Second)
		d.Shorten(time.Now().Add(5 * time.Second))
		d.Shorten(time.Now().Add(time.Minute)) // too late to have an effect
		<-ctx.Done()
		require.Equal(t, 7*time.Second, time.Since(start))
		late, cancelLate := d.Context(t.Context())
		defer cancelLate()
		<-late.Done()
		require.Equal(t, 7*time.Second, time.Since(start), "a context that is created after the deadline must be done at once")
	})
}

func TestDeadline_ContextAfterTheDeadlineIsDoneAtOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		ctx, cancel := in(0).Context(t.Context())
		require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrDeadline)
		cancel()
	}
}

func TestDeadline_CancelledContextLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := in(time.Hour).Context(t.Context())
		cancel()
		cancel()
		require.ErrorIs(t, context.Cause(ctx), context.Canceled)
		parent, stop := context.WithCancelCause(t.Context())
		ctx, cancel = in(time.Hour).Context(parent)
		defer cancel()
		stop(lifecycle.ErrContainerExited)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), lifecycle.ErrContainerExited)
	})
}

func TestDeadline_ConcurrentShorten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start, d := time.Now(), in(time.Hour)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { d.Shorten(start.Add(time.Duration(20-i) * time.Second)) })
			wg.Go(func() {
				ctx, cancel := d.Context(t.Context())
				defer cancel()
				<-ctx.Done()
			})
		}
		wg.Wait()
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestStopGrace_WholeSeconds(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration]int64{
		0: 2, -time.Hour: 2, time.Millisecond: 2, 2 * time.Second: 2, 2*time.Second + 1: 3,
		29999 * time.Millisecond: 30, 30 * time.Second: 30, 1<<63 - 1: 1<<31 - 1,
	} {
		require.Equal(t, want, lifecycle.StopSeconds(left), left)
		require.Equal(t, time.Duration(want)*time.Second, lifecycle.StopGrace(left), left)
		if left >= 0 && left < time.Hour {
			require.LessOrEqual(t, lifecycle.StopGrace(left), left+2*time.Second, "the stop timeout must be at most the remaining grace period plus 2 s")
		}
	}
}

func TestSeconds(t *testing.T) {
	t.Parallel()
	const most = (1<<63 - 1) / time.Second * time.Second
	for n, want := range map[int64]time.Duration{
		-1 << 63: 0, -1: 0, 0: 0, 1: time.Second, 30: 30 * time.Second,
		int64(most / time.Second): most, int64(most/time.Second) + 1: most, 1<<63 - 1: most,
	} {
		require.Equal(t, want, lifecycle.Seconds(n), n)
	}
}

// TestDeadline_StateReportsMoves checks that a caller which stores the deadline can follow
// its changes.
func TestDeadline_StateReportsMoves(t *testing.T) {
	t.Parallel()
	d := lifecycle.NewDeadline(nil, epoch().Add(time.Minute))
	at, moved := d.State()
	require.Equal(t, epoch().Add(time.Minute), at)
	require.False(t, d.Shorten(epoch().Add(time.Hour)))
	select {
	case <-moved:
		t.Fatal("the deadline has not moved")
	default:
	}
	require.True(t, d.Shorten(epoch().Add(time.Second)))
	<-moved
	at, moved = d.State()
	require.Equal(t, epoch().Add(time.Second), at)
	require.NotNil(t, moved)
}

// Upstream's TestKillContainerGracePeriod.
func TestKillGrace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                  string
		deletion, spec, probe *int64
		noProbe               bool
		want                  time.Duration
	}{
		{name: "nothing is set", want: 2 * time.Second},
		{name: "the probe's grace period is ignored if the pod has none", probe: new(int64(20)), want: 2 * time.Second},
		{name: "the pod's grace period", spec: new(int64(10)), want: 10 * time.Second},
		{name: "the probe has no grace period", spec: new(int64(10)), want: 10 * time.Second},
		{name: "the probe's grace period is longer", spec: new(int64(10)), probe: new(int64(20)), want: 20 * time.Second},
		{name: "the probe's grace period is shorter", spec: new(int64(10)), probe: new(int64(5)), want: 5 * time.Second},
		{name: "the container is not killed because of a probe", spec: new(int64(10)), probe: new(int64(20)), noProbe: true, want: 10 * time.Second},
		{name: "the deletion overrides the pod's grace period", deletion: new(int64(30)), spec: new(int64(10)), want: 30 * time.Second},
		{name: "the deletion overrides the probe's grace period", deletion: new(int64(30)), spec: new(int64(10)), probe: new(int64(20)), want: 30 * time.Second},
		{name: "the deletion overrides a longer grace period of the probe", deletion: new(int64(5)), spec: new(int64(10)), probe: new(int64(20)), want: 5 * time.Second},
		{name: "never less than the minimum", deletion: new(int64(0)), spec: new(int64(10)), want: 2 * time.Second},
		{name: "a grace period that overflows", spec: new(int64(1<<63 - 1)), want: (1<<63 - 1) / time.Second * time.Second},
		{name: "a negative grace period", spec: new(int64(-1 << 63)), want: 2 * time.Second},
	} {
		pod := &corev1.Pod{}
		pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds = tt.deletion, tt.spec
		probe := &corev1.Probe{TerminationGracePeriodSeconds: tt.probe}
		if tt.noProbe {
			probe = nil
		}
		require.Equal(t, tt.want, lifecycle.KillGrace(pod, probe), tt.name)
	}
}

func TestResumedDeadline_NoSecondGracePeriodAfterARestart(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{}
	now := epoch()
	require.Equal(t, now.Add(30*time.Second), lifecycle.ResumedDeadline(pod, now, 30*time.Second))
	for after, want := range map[time.Duration]time.Duration{
		time.Hour: 30 * time.Second, 12 * time.Second: 12 * time.Second, 0: 0, -time.Hour: 0,
	} {
		pod.DeletionTimestamp = new(metav1.NewTime(now.Add(after)))
		require.Equal(t, now.Add(want), lifecycle.ResumedDeadline(pod, now, 30*time.Second), after)
	}
}
