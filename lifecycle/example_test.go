package lifecycle_test

import (
	"fmt"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// A container that crashes as soon as it starts.
func Example() {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	const key = "pod-uid/main/spec-hash"
	for range 4 {
		ended := clock.Now()
		if until, delay, waiting := backoff.Until(key, ended); waiting {
			fmt.Println("CrashLoopBackOff:", delay)
			clock.SetTime(until)
		}
		fmt.Println(clock.Now().Format(time.TimeOnly), "start")
		backoff.Next(key, ended)
	}
	// Output:
	// 12:00:00 start
	// CrashLoopBackOff: 10s
	// 12:00:10 start
	// CrashLoopBackOff: 20s
	// 12:00:30 start
	// CrashLoopBackOff: 40s
	// 12:01:10 start
}
