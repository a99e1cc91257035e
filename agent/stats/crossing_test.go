//go:build linux && (cgroup2 || e2e)

package stats_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent/stats"
	"github.com/kubeparts/kubeparts/eviction"
)

// killed is a killer that sends the time of each call on the channel.
type killed chan time.Time

func (k killed) Kill(context.Context, *corev1.Pod, eviction.Eviction) error {
	k <- time.Now()
	return nil
}

// crossing is the result of one run. took is the time from the test's detection of the
// crossing to the call of the killer. late is the longest interval between two measurements
// of the test, which measures every millisecond: it is the delay of the machine itself. measuring is
// the duration of the longest measurement of the manager.
type crossing struct{ took, late, measuring time.Duration }

func (c crossing) String() string {
	return fmt.Sprintf("%.1f(%.1f,%.1f)", c.took.Seconds()*1000, c.late.Seconds()*1000, c.measuring.Seconds()*1000)
}

// way is the mechanism by which the eviction manager detects the crossing.
type way string

const (
	polling way = "polling"
	wakeUps way = "wake-ups"

	looks = 60_000
)

// slope describes a process that allocates memory until a figure crosses its threshold.
type slope struct {
	cfg       stats.Config
	pods      []*corev1.Pod
	threshold eviction.Threshold
	hog       func() (end func())
	below     func() bool
}

// cross makes the process cross the threshold.
func (s slope) cross(t *testing.T, w way) crossing {
	t.Helper()
	cfg := s.cfg
	watching := make(chan []string, 10)
	cfg.Observer.Watching = func(sources []string) { watching <- sources }
	p := newProvider(t, cfg)
	_, err := p.Refresh(t.Context())
	require.NoError(t, err)
	kills := make(killed, 100)
	timed := &timedStats{Stats: p}
	config := eviction.Config{
		Stats: timed, Pods: func() []*corev1.Pod { return s.pods }, Killer: kills,
		Policy: eviction.Policy{Thresholds: []eviction.Threshold{s.threshold}, IgnoreLocalStorageLimits: true},
	}
	if w == wakeUps { // in a run with wake-ups, the manager does not poll before the end
		config.Waker, config.MinInterval, config.MaxInterval = p, time.Hour, time.Hour
	}
	manager, err := eviction.New(config)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- manager.Run(ctx) }()
	if w == wakeUps {
		<-watching
	}
	require.Empty(t, kills, "the threshold is not met yet")
	end := s.hog()
	c := lookOut(t, s.below, kills)
	end()
	cancel()
	require.NoError(t, <-done)
	c.measuring = timed.longest
	return c
}

// timedStats records the duration of the longest measurement of the node or of pods. Only the goroutine
// of the manager calls it, and the test reads longest after the end of that goroutine.
type timedStats struct {
	eviction.Stats
	longest time.Duration
}

// Node measures the node.
func (s *timedStats) Node(ctx context.Context) (eviction.NodeStats, error) {
	defer s.record(time.Now())
	return s.Stats.Node(ctx)
}

// Pods measures pods.
func (s *timedStats) Pods(ctx context.Context, pods []*corev1.Pod) ([]eviction.PodStats, error) {
	defer s.record(time.Now())
	return s.Stats.Pods(ctx, pods)
}

func (s *timedStats) record(began time.Time) { s.longest = max(s.longest, time.Since(began)) }

func hard(signal eviction.Signal, quantity int64) eviction.Threshold {
	return eviction.Threshold{Signal: signal, Value: eviction.Value{Quantity: quantity}}
}

// lookOut measures until the killer is called.
func lookOut(t *testing.T, below func() bool, kills killed) (c crossing) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var crossed time.Time
	last := time.Now()
	for range looks { // a fixed number of measurements, because an emulated clock can jump by seconds
		select {
		case called := <-kills:
			if !crossed.IsZero() && called.After(crossed) {
				c.took = called.Sub(crossed)
			}
			return c
		case <-tick.C:
		}
		now := time.Now()
		late := now.Sub(last)
		if last = now; !crossed.IsZero() {
			c.late = max(c.late, late)
		} else if c.late = late; below() {
			crossed = time.Now()
		}
	}
	require.Fail(t, "the killer was not called", "crossed: %v", !crossed.IsZero())
	return c
}

// bound is the target, plus the duration of two measurements (the first has begun before the
// crossing, so it may not show it), plus three times the delay of the machine: for the wake-up, the
// evaluation and the kill.
func (c crossing) bound(figure time.Duration) time.Duration { return figure + 2*c.measuring + 3*c.late }

// crossTwentyTimes makes twenty crossings. It repeats one crossing that exceeds its bound, because the
// machine may delay the manager more than the test's own measurements.
func crossTwentyTimes(t *testing.T, figure time.Duration, cross func() crossing) (all []crossing) {
	t.Helper()
	for repeated := false; len(all) < 20; {
		c := cross()
		if c.took > c.bound(figure) && !repeated {
			repeated = true
			t.Logf("the crossing %v exceeds its bound and is repeated", c)
			continue
		}
		all = append(all, c)
	}
	return all
}

// requireQuick prints the crossings and compares them with the target and with their bounds.
func requireQuick(t *testing.T, all []crossing, figure time.Duration) {
	t.Helper()
	slices.SortFunc(all, func(a, b crossing) int { return int(a.took - b.took) })
	at := func(percent int) time.Duration {
		return all[(len(all)-1)*percent/100].took.Round(100 * time.Microsecond)
	}
	t.Logf("from the crossing to the kill, %d runs: min %v, median %v, p90 %v, max %v; all in ms, with the delay of the machine and the longest measurement: %v",
		len(all), at(0), at(50), at(90), at(100), all)
	require.LessOrEqual(t, at(50), figure)
	for _, c := range all {
		require.LessOrEqual(t, c.took, c.bound(figure))
	}
}
