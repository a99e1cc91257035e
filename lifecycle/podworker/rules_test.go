package podworker_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

func TestDelay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	in := func(d time.Duration) error {
		return &podworker.RetryError{At: now.Add(d), Err: errors.New("back-off")}
	}
	plain, network := errors.New("no"), &podworker.TransientError{Err: errors.New("network not ready")}
	for _, tt := range []struct {
		name      string
		err       error
		want, max time.Duration // without jitter, and with maximum jitter
	}{
		{"no error", nil, time.Minute, 90 * time.Second},
		{"failed", plain, 10 * time.Second, 15 * time.Second},
		{"the error requests a time", in(33 * time.Second), 33 * time.Second, 33 * time.Second},
		{"a wrapped error requests a time", fmt.Errorf("c: %w", in(33*time.Second)), 33 * time.Second, 33 * time.Second},
		{"the earliest of several times", errors.Join(in(20*time.Second), in(15*time.Second), in(40*time.Second)), 15 * time.Second, 15 * time.Second},
		{"deep", fmt.Errorf("a: %w", errors.Join(fmt.Errorf("b: %w", errors.Join(in(7*time.Second))), in(9*time.Second))), 7 * time.Second, 7 * time.Second},
		{"a time that has passed", in(-time.Second), time.Second, time.Second},
		{"now", in(0), time.Second, time.Second},
		{"too late", in(time.Hour), time.Minute, time.Minute},
		{"a time and another error", errors.Join(in(33*time.Second), plain), 10 * time.Second, 15 * time.Second},
		{"a sooner time and another error", errors.Join(plain, in(3*time.Second)), 3 * time.Second, 3 * time.Second},
		{"the network", network, time.Second, 1500 * time.Millisecond},
		{"the network, wrapped", fmt.Errorf("c: %w", errors.Join(network)), time.Second, 1500 * time.Millisecond},
		{"the network and a time", errors.Join(in(33*time.Second), network), time.Second, 1500 * time.Millisecond},
		{"the network and another error", errors.Join(plain, network), time.Second, 1500 * time.Millisecond},
		{"an error that wraps nothing", &wrapper{}, 10 * time.Second, 15 * time.Second},
		{"a time without an error", &podworker.RetryError{At: now.Add(2 * time.Second)}, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, podworker.Delay(tt.err, now, 0))
			require.Equal(t, tt.max, podworker.Delay(tt.err, now, 1))
		})
	}
}

func TestDelay_DoesNotOverflow(t *testing.T) {
	t.Parallel()
	w := podworker.Config{ResyncPeriod: math.MaxInt64, BackoffPeriod: math.MaxInt64, TransientPeriod: math.MaxInt64}
	for _, err := range []error{nil, errors.New("no"), &podworker.TransientError{}} {
		require.Equal(t, time.Duration(math.MaxInt64), w.Delay(err, time.Time{}, 1))
	}
}

// wrapper is an error whose Unwrap returns nil.
type wrapper struct{}

func (*wrapper) Error() string { return "no" }
func (*wrapper) Unwrap() error { return nil }

func TestErrorTexts(t *testing.T) {
	t.Parallel()
	inner := errors.New("inner")
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	require.EqualError(t, &podworker.RetryError{At: at, Err: inner}, "inner")
	require.EqualError(t, &podworker.RetryError{At: at}, "retry at 2026-01-01T00:00:00Z")
	require.ErrorIs(t, &podworker.RetryError{Err: inner}, inner)
	require.EqualError(t, &podworker.TransientError{Err: inner}, "inner")
	require.EqualError(t, &podworker.TransientError{}, "not ready yet")
	require.ErrorIs(t, &podworker.TransientError{Err: inner}, inner)
}

func TestGrace(t *testing.T) {
	t.Parallel()
	pod := func(spec, deletion int64) *corev1.Pod {
		p := &corev1.Pod{}
		if spec >= 0 {
			p.Spec.TerminationGracePeriodSeconds = &spec
		}
		if deletion >= 0 {
			p.DeletionGracePeriodSeconds = &deletion
		}
		return p
	}
	const none = -1
	s := func(n float64) *time.Duration { return new(time.Duration(n * float64(time.Second))) }
	for _, tt := range []struct {
		name     string
		before   float64
		pod      *corev1.Pod
		override *time.Duration
		want     time.Duration
	}{
		{"from the spec", 0, pod(10, none), nil, 10 * time.Second},
		{"from nowhere", 0, pod(none, none), nil, 30 * time.Second},
		{"without a spec", 0, nil, nil, time.Second},
		{"deletion beats the spec, though longer", 0, pod(10, 20), nil, 20 * time.Second},
		{"override beats the spec, though longer", 0, pod(10, none), s(20), 20 * time.Second},
		{"the shorter of deletion and override", 0, pod(10, 5), s(7), 5 * time.Second},
		{"the shorter of override and deletion", 0, pod(10, 7), s(5), 5 * time.Second},
		{"never longer than before", 3, pod(10, 20), s(20), 3 * time.Second},
		{"shorter than before", 30, pod(30, none), s(2), 2 * time.Second},
		{"the spec does not count a second time", 30, pod(2, none), nil, 30 * time.Second},
		{"a deletion grace period of 0 becomes 1", 0, pod(10, 0), nil, time.Second},
		{"a grace period of 0 in the spec becomes 1", 0, pod(0, none), nil, time.Second},
		{"a negative override becomes 1", 0, pod(10, none), s(-5), time.Second},
		{"fractions are dropped", 0, pod(10, none), s(2.9), 2 * time.Second},
		{"a fraction of a second becomes 1", 0, pod(10, none), s(0.2), time.Second},
		{"longer than the maximum duration", 0, pod(math.MaxInt64, none), nil, math.MaxInt64 / time.Second * time.Second},
		{"a negative spec", 0, &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(-3))}}, nil, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, podworker.Grace(*s(tt.before), tt.pod, tt.override))
		})
	}
}
