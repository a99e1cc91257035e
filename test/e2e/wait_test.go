//go:build e2e

package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// pollPeriod is how often a condition is polled. It is the precision of measurements by
// polling.
const pollPeriod = 50 * time.Millisecond

// condition checks once. It returns the observation, for the report, and whether the
// condition is true.
type condition func() (seen string, ok bool)

// poll calls cond until it is true or the timeout has elapsed, at least once. It returns the
// last observation.
func poll(timeout time.Duration, cond condition) (seen string, ok bool) {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		if seen, ok = cond(); ok {
			return seen, true
		}
		select {
		case <-deadline.C:
			return cond() // the previous call may have been slow: the condition may have become true meanwhile
		case <-tick.C:
		}
	}
}

// seldom returns a condition that calls cond at most once in every period, and returns the
// last result in between. It is for a server that polling would slow down.
func seldom(every time.Duration, cond condition) condition {
	var at time.Time
	var seen string
	var ok bool
	return func() (string, bool) {
		if time.Since(at) >= every {
			at = time.Now()
			seen, ok = cond()
		}
		return seen, ok
	}
}

// reasons is what failed tests waited for, by test name. The reasons are repeated at the end
// of the output, because a report may show only the end of the output.
var reasons sync.Map

// waitFor fails the test unless cond becomes true in time.
func waitFor(t *testing.T, timeout time.Duration, what string, cond condition) {
	t.Helper()
	if seen, ok := poll(timeout, cond); !ok {
		why := fmt.Sprintf("waited %v for %s; last seen: %s", timeout, what, seen)
		reasons.Store(t.Name(), why)
		t.Fatal(why)
	}
}

// stays fails the test as soon as cond is false, during d. It is for events that must not
// happen.
func stays(t *testing.T, d time.Duration, what string, cond condition) {
	t.Helper()
	seen, changed := poll(d, func() (string, bool) {
		seen, ok := cond()
		return seen, !ok
	})
	if changed {
		t.Fatalf("did not stay true: %s; observed: %s", what, seen)
	}
}

// stalls returns a function that reports how long this machine has left the test without a
// CPU since the call. Tests subtract this time before they check a time limit.
func stalls(t *testing.T) (total func() time.Duration) {
	t.Helper()
	const period, stall = 20 * time.Millisecond, 100 * time.Millisecond
	var (
		sum     atomic.Int64
		watcher sync.WaitGroup
	)
	done := make(chan struct{})
	watcher.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := time.Now()
			if late := now.Sub(last) - period; late > stall {
				sum.Add(int64(late))
			}
			last = now
		}
	})
	t.Cleanup(func() { close(done); watcher.Wait() })
	return func() time.Duration { return time.Duration(sum.Load()) }
}

// firstStatus returns the status of the pod's first container, or an empty status.
func firstStatus(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}
