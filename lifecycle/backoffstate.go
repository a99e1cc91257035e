package lifecycle

import (
	"slices"
	"strings"
	"time"
)

// BackoffState is the state of one key of a [Backoff] in a form that can be
// serialized: its times are wall-clock times in UTC.
type BackoffState struct {
	// Key is the key.
	Key string `json:"key"`
	// Delay is how long the key waits after the end of the run that began at
	// Started.
	Delay time.Duration `json:"delay"`
	// Started is the time of the last start, and Ended is the last reported
	// end.
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
}

// Snapshot returns the state of every key that is not idle, sorted by key. A
// caller can save the states regularly and when the agent stops, and pass them
// to [Backoff.Restore] after the restart. The delay of a crash-looping
// container then does not begin again with Initial each time that the agent
// restarts.
func (b *Backoff) Snapshot() []BackoffState {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	all := make([]BackoffState, 0, len(b.keys))
	for key, a := range b.keys {
		if now.Sub(a.last()) <= b.idlePeriod() {
			all = append(all, BackoffState{Key: key, Delay: a.delay, Started: onWall(a.started), Ended: onWall(a.since)})
		}
	}
	slices.SortFunc(all, func(x, y BackoffState) int { return strings.Compare(x.Key, y.Key) })
	return all
}

// onWall removes the monotonic reading and converts t to UTC.
func onWall(t time.Time) time.Time { return t.UTC().Round(0) }

// Restore adds the keys of a snapshot. It ignores keys that already have state,
// and invalid states: a delay that is not positive, or an end that cannot be
// marshalled. A delay above the maximum becomes the maximum. Restore compares
// the times with the wall clock once; later steps of the clock do not change
// the waits. A time in the future counts as the current time.
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
