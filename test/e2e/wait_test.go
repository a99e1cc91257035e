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

// pollPeriod is how often a condition is looked at. It is the precision of what
// the tests measure by looking.
const pollPeriod = 50 * time.Millisecond

// condition looks once. It returns what it saw, for the report, and whether that
// is what is waited for.
type condition func() (seen string, ok bool)

// poll looks until cond is satisfied or the time is over, at once and at least
// once. It returns what was seen last.
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
			return cond() // a look may take long: what has become true meanwhile counts
		case <-tick.C:
		}
	}
}

// seldom looks only once in that time, at something that is busy, and takes what it
// saw for what there is until then.
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

// reasons say what the failed tests waited for, by their names. They are repeated after
// the output of the agent, of which a report may show the end only.
var reasons sync.Map

// waitFor fails the test unless cond is satisfied in time.
func waitFor(t *testing.T, timeout time.Duration, what string, cond condition) {
	t.Helper()
	if seen, ok := poll(timeout, cond); !ok {
		why := fmt.Sprintf("waited %v for %s; last seen: %s", timeout, what, seen)
		reasons.Store(t.Name(), why)
		t.Fatal(why)
	}
}

// stays fails the test as soon as cond is not satisfied, for as long as d. It is
// for what must not happen: there is no event to wait for.
func stays(t *testing.T, d time.Duration, what string, cond condition) {
	t.Helper()
	seen, changed := poll(d, func() (string, bool) {
		seen, ok := cond()
		return seen, !ok
	})
	if changed {
		t.Fatalf("did not stay so: %s; seen: %s", what, seen)
	}
}

// stalls adds up for how long this machine left the test without a processor, from now
// on: a bound is one for a machine that goes on.
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

// firstStatus is the status of the pod's first container, empty as long as it has none.
func firstStatus(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}
