// Package backoff computes how long to wait after failures in a row.
package backoff

import "time"

// Next returns the wait after one more failure: twice the previous wait, at least first
// and at most last. The previous wait of a first failure is zero.
func Next(previous, first, last time.Duration) time.Duration {
	if previous > last/2 { // doubling it might overflow
		return last
	}
	return min(max(first, 2*previous), last)
}

// After returns the wait after one more failure than the given number.
func After(failures int, first, last time.Duration) time.Duration {
	wait := Next(0, first, last)
	for ; failures > 0 && wait < last; failures-- {
		wait = Next(wait, first, last)
	}
	return wait
}
