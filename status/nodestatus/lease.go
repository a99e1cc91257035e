package nodestatus

import "time"

// maxTries is how many calls in a row may fail before the next one waits.
const maxTries = 5

// Attempts are an agent's calls that report its node to the API server: patches of the status,
// or renewals of the lease.
type Attempts struct {
	// Last is when the last call ended. The zero time means that there was no call yet.
	Last time.Time
	// Failed is how many calls have failed since the last one that succeeded.
	Failed int
}

// Next returns when to call again: period after a call that succeeded and after each fifth that
// failed, at once after any other that failed, and at once if there was no call yet.
func (a Attempts) Next(period time.Duration) time.Time {
	if a.Last.IsZero() || a.Failed%maxTries != 0 {
		return a.Last
	}
	return a.Last.Add(period)
}

// RenewInterval returns how often the lease of a node is renewed: four times within its
// duration.
func RenewInterval(leaseDuration time.Duration) time.Duration { return leaseDuration / 4 }

// LeaseDue reports whether the lease of a node must be renewed now.
func LeaseDue(a Attempts, leaseDuration time.Duration, now time.Time) bool {
	return !now.Before(a.Next(RenewInterval(leaseDuration)))
}
