package lifecycle

import (
	"slices"
	"strings"
	"time"
)

// BackoffState is what a [Backoff] remembers of one key, in a form that outlives
// the process: its times are those of the wall clock in UTC, and it marshals.
type BackoffState struct {
	// Key is the key.
	Key string `json:"key"`
	// Delay is how long the key waits after an end.
	Delay time.Duration `json:"delay"`
	// Started is when it last started, Ended the newest end that was reported.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// Snapshot returns the state of every key that is not quiet, by key. Write it down
// now and then, at the latest when the agent stops, and give it to
// [Backoff.Restore] in the next one: then a container that crashes all the time
// does not start its back-off anew with every restart of the agent.
func (b *Backoff) Snapshot() []BackoffState {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	all := make([]BackoffState, 0, len(b.keys))
	for key, a := range b.keys {
		if now.Sub(a.last()) <= b.quiet() {
			all = append(all, BackoffState{Key: key, Delay: a.delay, Started: onWall(a.started), Ended: onWall(a.since)})
		}
	}
	slices.SortFunc(all, func(x, y BackoffState) int { return strings.Compare(x.Key, y.Key) })
	return all
}

// onWall strips what means nothing elsewhere, the monotonic reading and the zone.
func onWall(t time.Time) time.Time { return t.UTC().Round(0) }

// Restore takes up a snapshot. A key that is known already stays as it is, and a
// state that can't be (a delay that is not positive, an end that could not be written
// again) is passed over; a delay is at most the maximum. How long ago something was
// is a matter of wall clocks, once, now; a time in the future counts as now.
func (b *Backoff) Restore(states []BackoffState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	for _, s := range states {
		if _, err := onWall(s.Ended).MarshalText(); err != nil || b.keys[s.Key] != nil || s.Delay <= 0 {
			continue
		}
		a := &attempts{delay: min(s.Delay, b.cfg.Max), started: onOurClock(s.Started, now)}
		a.endOf(s.Ended, now)
		b.keys[s.Key] = a
	}
}
