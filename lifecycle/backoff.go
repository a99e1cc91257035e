package lifecycle

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

// Default delays, the same as the kubelet's.
const (
	// DefaultInitialBackoff is the delay before the second restart.
	DefaultInitialBackoff = 10 * time.Second
	// DefaultMaxBackoff is the longest delay.
	DefaultMaxBackoff = 5 * time.Minute
)

// BackoffConfig configures a [Backoff].
type BackoffConfig struct {
	// Initial is the delay before the second restart of a key. Default
	// [DefaultInitialBackoff] or Max, whichever is shorter.
	Initial time.Duration
	// Max is the longest delay. The delay of a key doubles with every restart.
	// If a key was idle for more than twice Max, its next delay is Initial. A
	// key is idle from its last start, or from the end of its last wait,
	// whichever is later. Max must be at least Initial. Default
	// [DefaultMaxBackoff] or Initial, whichever is longer.
	Max time.Duration
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
}

// Validate reports every problem with c, joined.
func (c BackoffConfig) Validate() error {
	var errs []error
	if c.Initial < 0 {
		errs = append(errs, fmt.Errorf("field Initial: %v is negative", c.Initial))
	}
	if c.Max < 0 {
		errs = append(errs, fmt.Errorf("field Max: %v is negative", c.Max))
	}
	if c.Max > 0 && c.Max < c.Initial {
		errs = append(errs, fmt.Errorf("field Max: %v is less than Initial, %v", c.Max, c.Initial))
	}
	return errors.Join(errs...)
}

func (c BackoffConfig) withDefaults() BackoffConfig {
	if c.Initial == 0 {
		c.Initial = DefaultInitialBackoff
		if c.Max > 0 {
			c.Initial = min(c.Initial, c.Max)
		}
	}
	if c.Max == 0 {
		c.Max = max(DefaultMaxBackoff, c.Initial)
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// Backoff computes when something that has ended, such as a container, may
// start again. Each key has its own delay. Create a Backoff with [NewBackoff].
// It is safe for concurrent use.
//
// A key identifies what backs off. Examples are a container of a pod in one
// version of its spec, and an image of a pod. The first call of [Backoff.Next]
// for a key stores the key. Later calls of Next, for any key, delete the keys
// that were idle for more than twice Max.
type Backoff struct {
	cfg BackoffConfig

	mu          sync.Mutex
	keys        map[string]*attempts
	lastExpired time.Time
}

// attempts is the state of one key.
type attempts struct {
	delay time.Duration
	// started is the time of the last call of Next.
	started time.Time
	// since is the end of the last run that the caller reported, on the
	// caller's clock. ended is the same time on the Backoff's own clock; see
	// endOf.
	since, ended time.Time
}

// NewBackoff returns an empty Backoff. The error reports every problem with
// cfg.
func NewBackoff(cfg BackoffConfig) (*Backoff, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: invalid back-off config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Backoff{cfg: cfg, keys: map[string]*attempts{}, lastExpired: cfg.Clock.Now()}, nil
}

// Until reports whether key must wait before its next start. The second argument
// is the time at which the key's last run ended. If the key must wait, Until
// returns the end of the wait and the total delay. A key need not wait if it
// has no state, if its last run was longer than twice Max, or if its wait is
// over.
//
// The end of the run may come from another clock, such as the runtime's. The
// Backoff compares this time with its own clock only once, in the first call
// with this time. After that, a step of the system clock neither shortens nor
// prolongs the wait. A time in the future counts as the current time. If a new
// time is earlier than the key's last start, the runtime's clock is behind. The
// time of the last start then replaces the new time.
func (b *Backoff) Until(key string, since time.Time) (until time.Time, delay time.Duration, waiting bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, a := b.cfg.Clock.Now(), b.keys[key]
	if a == nil || b.ranLong(a, a.endOf(since, now)) {
		return time.Time{}, 0, false
	}
	until = a.ended.Add(a.delay)
	if !now.Before(until) {
		return time.Time{}, 0, false
	}
	return until, a.delay, true
}

// Next records that key starts again now. The second argument is the time at
// which the key's last run ended. Next doubles the delay of key, up to Max. It
// sets the delay to Initial if key is unknown, if the last run of key was
// longer than twice Max, or if key was idle for longer than twice Max. Next
// returns the new delay, which applies after the run that starts now.
func (b *Backoff) Next(key string, since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	defer b.expire(now) // deferred: the reported end may show that key has waited until now and is not idle
	a := b.keys[key]
	switch {
	case a == nil:
		a = &attempts{delay: b.cfg.Initial}
		b.keys[key] = a
		a.endOf(since, now)
	case b.ranLong(a, a.endOf(since, now)), b.isIdle(a, now):
		a.delay = b.cfg.Initial
	default:
		a.delay = backoff.Next(a.delay, b.cfg.Initial, b.cfg.Max)
	}
	a.started = now
	return a.delay
}

// Delay returns how long key must wait after the end of the run that the last
// call of Next began. It returns 0 if key is unknown.
func (b *Backoff) Delay(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.keys[key]; a != nil {
		return a.delay
	}
	return 0
}

// Reset deletes the state of key.
func (b *Backoff) Reset(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}

// Len returns the number of keys that have state.
func (b *Backoff) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.keys)
}

// endOf converts the reported end of a run to the Backoff's own clock and
// records both times. The converted time has a monotonic reading, which the
// reported time does not have. endOf converts each end only once, because a
// second conversion would be wrong if the system clock was stepped after the
// first.
func (a *attempts) endOf(since, now time.Time) time.Time {
	if a.ended.IsZero() || !a.since.Equal(since) {
		isNew := since.After(a.since)
		a.since, a.ended = since, onOurClock(since, now)
		if isNew && a.ended.Before(a.started) {
			a.ended = a.started
		}
	}
	return a.ended
}

// last returns the time of the key's last start or the end of its last wait,
// whichever is later.
func (a *attempts) last() time.Time {
	if last := a.ended.Add(a.delay); last.After(a.started) {
		return last
	}
	return a.started
}

// onOurClock converts the wall-clock time t to the clock of now. The result has
// a monotonic reading if now has one. A time in the future counts as now.
func onOurClock(t, now time.Time) time.Time { return now.Add(-max(0, now.Sub(t))) }

// ranLong reports whether the run was long enough to reset the delay. The run
// began with the last call of Next and ended at the given time.
func (b *Backoff) ranLong(a *attempts, ended time.Time) bool {
	return ended.Sub(a.started) > b.idlePeriod()
}

// isIdle reports whether both the key's last start and its last wait are longer
// ago than the idle period. The delay of an idle key is reset. isIdle also
// works if the end of the last run was never reported.
func (b *Backoff) isIdle(a *attempts, now time.Time) bool { return now.Sub(a.last()) > b.idlePeriod() }

func (b *Backoff) idlePeriod() time.Duration { return 2 * min(b.cfg.Max, math.MaxInt64/2) }

// expire deletes idle keys, at most once per idle period. A key that waits is
// not idle.
func (b *Backoff) expire(now time.Time) {
	if now.Sub(b.lastExpired) <= b.idlePeriod() {
		return
	}
	b.lastExpired = now
	for key, a := range b.keys {
		if b.isIdle(a, now) {
			delete(b.keys, key)
		}
	}
}
