// Package backoff computes how long to wait after consecutive failures.
package backoff

import "time"

// Next returns the wait after another failure: twice the previous wait, but at least the
// duration first and at most the duration last. For the first failure, the previous wait
// must be zero.
func Next(previous, first, last time.Duration) time.Duration {
	if previous > last/2 { // twice previous might overflow
		return last
	}
	return min(max(first, 2*previous), last)
}

// After returns the wait after failures+1 consecutive failures: the same as that many
// calls of [Next].
func After(failures int, first, last time.Duration) time.Duration {
	wait := Next(0, first, last)
	for ; failures > 0 && wait < last; failures-- {
		wait = Next(wait, first, last)
	}
	return wait
}
