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
	// Initial is the delay after the first start. Default
	// [DefaultInitialBackoff].
	Initial time.Duration
	// Max is the longest delay. The delay doubles with every start. A key that
	// was idle for more than twice Max starts again with Initial. Max must be
	// at least Initial. Default [DefaultMaxBackoff] or Initial, whichever is
	// longer.
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

// Backoff computes, for each of many keys, when something that ended may start
// again. Create it with [NewBackoff]. It is safe for concurrent use.
//
// A key identifies one thing that backs off independently, for example a
// container of a pod in one version of its spec, or an image of a pod. A key
// uses memory from its first [Backoff.Next] until it was idle for twice the
// maximum.
type Backoff struct {
	cfg BackoffConfig

	mu          sync.Mutex
	keys        map[string]*attempts
	lastExpired time.Time
}

// attempts is the state of one key.
type attempts struct {
	delay time.Duration
	// started is when Next was last called.
	started time.Time
	// since is the newest end as the caller reported it. ended is the same time
	// on the Backoff's own clock; see endOf.
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

// Until reports whether key, whose last run ended at since, must wait before
// its next start. If so, it returns the end of the wait and the whole delay. A
// key need not wait if it was never started, was reset, ran for more than twice
// the maximum, or if its wait is over.
//
// The time since may come from another clock, such as the runtime's. It is
// compared with the Backoff's clock only once, in the first call with this
// value. After that, a step of the system clock neither shortens nor prolongs
// the wait. An end in the future counts as now. A new end that is earlier than
// the key's last start counts as that start, because then the runtime's clock
// is behind.
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

// Next records a start of key after an end at since. The delay doubles; it is
// reset to Initial if the key is unknown, ran for longer than twice the
// maximum, or was idle for longer than that. Next returns the delay that
// applies after the next end.
func (b *Backoff) Next(key string, since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	defer b.expire(now) // last: since may show that key waited until now
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

// Delay returns how long key must wait after its next end, 0 if it need not
// wait.
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

// endOf converts since to the Backoff's own clock and records it. now has a
// monotonic reading and since does not, so the wall clocks are compared once
// for each end. The recorded time is monotonic.
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

// last returns when the key last started or stopped waiting, whichever is
// later.
func (a *attempts) last() time.Time {
	if last := a.ended.Add(a.delay); last.After(a.started) {
		return last
	}
	return a.started
}

// onOurClock converts the wall-clock time t to the clock of now, which may be
// monotonic. It returns now if t is later.
func onOurClock(t, now time.Time) time.Time { return now.Add(-max(0, now.Sub(t))) }

// ranLong reports whether the run that began with the last Next and ended at
// the given time was long enough to reset the delay.
func (b *Backoff) ranLong(a *attempts, ended time.Time) bool {
	return ended.Sub(a.started) > b.idlePeriod()
}

// isIdle reports whether the key has neither started nor waited for so long
// that its delay is reset. It also works if the end of the last run was never
// reported.
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
