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

// killed is a killer that sends the time of each call.
type killed chan time.Time

func (k killed) Kill(context.Context, *corev1.Pod, eviction.Eviction) error {
	k <- time.Now()
	return nil
}

// crossing is the result of one run. took is the time from when the test found the figure below
// its threshold to the call of the killer. late is the largest time between two measurements of
// the test, which measures every millisecond: it is the delay of the machine itself.
type crossing struct{ took, late time.Duration }

func (c crossing) String() string {
	return fmt.Sprintf("%.1f(%.1f)", c.took.Seconds()*1000, c.late.Seconds()*1000)
}

// way is how the eviction manager notices the crossing.
type way string

const (
	polling way = "polling"
	wakeUps way = "wake-ups"

	looks = 60_000
)

// slope describes a process that uses memory until a figure crosses its threshold.
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
	config := eviction.Config{
		Stats: p, Pods: func() []*corev1.Pod { return s.pods }, Killer: kills,
		Policy: eviction.Policy{Thresholds: []eviction.Threshold{s.threshold}, IgnoreLocalStorageLimits: true},
	}
	if w == wakeUps { // the run ends before the manager polls
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
	end := s.hog()
	c := lookOut(t, s.below, kills)
	end()
	cancel()
	require.NoError(t, <-done)
	return c
}

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
	for range looks { // a limit by number, because an emulated clock may jump by seconds
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
	require.Fail(t, "no kill", "crossed: %v", !crossed.IsZero())
	return c
}

// requireQuick prints the crossings and compares them with the target. It allows three times
// the delay of the machine: for the waker, the step and the kill.
func requireQuick(t *testing.T, all []crossing, figure time.Duration) {
	t.Helper()
	slices.SortFunc(all, func(a, b crossing) int { return int(a.took - b.took) })
	at := func(percent int) time.Duration {
		return all[(len(all)-1)*percent/100].took.Round(100 * time.Microsecond)
	}
	t.Logf("crossing to kill call, %d runs: min %v, median %v, p90 %v, max %v; each in ms (and the machine's own): %v",
		len(all), at(0), at(50), at(90), at(100), all)
	require.LessOrEqual(t, at(50), figure)
	for _, c := range all {
		require.LessOrEqual(t, c.took, figure+3*c.late)
	}
}
