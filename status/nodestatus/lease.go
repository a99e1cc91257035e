package nodestatus

import "time"

// maxTries is the number of consecutive failed calls after which the next call waits for
// one period.
const maxTries = 5

// Attempts records an agent's calls of one kind to the API server: patches of the node's status,
// or renewals of its lease.
type Attempts struct {
	// Last is when the last call ended. It is zero before the first call.
	Last time.Time
	// Failed is the number of failed calls since the last successful call.
	Failed int
}

// Next returns the time of the next call. After a successful call, and after each fifth
// consecutive failure, the next call is due one period later. After any other failure,
// and before the first call, it is due at once.
func (a Attempts) Next(period time.Duration) time.Time {
	if a.Last.IsZero() || a.Failed%maxTries != 0 {
		return a.Last
	}
	return a.Last.Add(period)
}

// RenewInterval returns the time between two renewals of a node's lease: a quarter of the
// lease's duration.
func RenewInterval(leaseDuration time.Duration) time.Duration { return leaseDuration / 4 }
