//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
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

// stays polls cond for the time d, and fails the test as soon as cond is false. It is for
// events that must not happen.
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

// stalls returns a function that reports how long this machine has left the tests without a
// CPU or without its disk since the call. Tests subtract this time before they check a time
// limit.
func stalls(t *testing.T) (total func() time.Duration) {
	t.Helper()
	cpu, disk := bed.stalls.cpu.Load(), bed.stalls.disk.Load()
	return func() time.Duration {
		return time.Duration(max(bed.stalls.cpu.Load()-cpu, bed.stalls.disk.Load()-disk))
	}
}

// stallWatch adds up the time that this machine leaves the tests without a CPU, and the time
// that it needs for writes that are usually fast. A stalled disk delays the runtime, but no
// process that only computes.
type stallWatch struct {
	cpu, disk atomic.Int64 // nanoseconds
	file      *os.File
	done      chan struct{}
	watchers  sync.WaitGroup
}

// watchStalls starts to watch this machine. It writes to a file in dir.
func watchStalls(dir string) (*stallWatch, error) {
	file, err := os.Create(filepath.Join(dir, "stalls"))
	if err != nil {
		return nil, err
	}
	w := &stallWatch{file: file, done: make(chan struct{})}
	w.watchers.Go(func() { w.watch(&w.cpu, 20*time.Millisecond, 50*time.Millisecond, func() {}) })
	w.watchers.Go(func() { w.watch(&w.disk, 250*time.Millisecond, 100*time.Millisecond, w.write) })
	return w, nil
}

// watch calls do again and again, with a pause of the period in between. If a pause and a call
// take longer than usual, watch adds the delay to sum.
func (w *stallWatch) watch(sum *atomic.Int64, period, usual time.Duration, do func()) {
	pause := time.NewTimer(period)
	defer pause.Stop()
	for last := time.Now(); ; {
		select {
		case <-w.done:
			return
		case <-pause.C:
		}
		do()
		now := time.Now()
		if late := now.Sub(last) - period; late > usual {
			sum.Add(int64(late))
		}
		last = now
		pause.Reset(period)
	}
}

// write writes a byte to the disk. It ignores errors, because only the duration is of interest.
func (w *stallWatch) write() {
	_, _ = w.file.WriteAt([]byte{0}, 0)
	_ = w.file.Sync()
}

// close ends the watch and prints the results.
func (w *stallWatch) close() error {
	close(w.done)
	w.watchers.Wait()
	fmt.Printf("the machine left the tests without a CPU for %v and without its disk for %v\n",
		time.Duration(w.cpu.Load()).Round(time.Millisecond), time.Duration(w.disk.Load()).Round(time.Millisecond))
	return w.file.Close()
}

// firstStatus returns the status of the pod's first container, or an empty status.
func firstStatus(pod *corev1.Pod) corev1.ContainerStatus {
	if len(pod.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return pod.Status.ContainerStatuses[0]
}
