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

// Delays of the kubelet, and the defaults here.
const (
	// DefaultInitialBackoff is the delay before the second restart.
	DefaultInitialBackoff = 10 * time.Second
	// DefaultMaxBackoff is where doubling ends.
	DefaultMaxBackoff = 5 * time.Minute
)

// BackoffConfig configures a [Backoff].
type BackoffConfig struct {
	// Initial is the delay after the first start. Default
	// [DefaultInitialBackoff].
	Initial time.Duration
	// Max bounds the delay, which doubles with every start; a key that was
	// quiet for more than twice as long starts afresh. At least Initial, default
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

// Backoff answers, for each of many keys, whether what ended may start again.
// Make it with [NewBackoff]; all methods may be called by any number of
// goroutines.
//
// A key is whatever backs off on its own: a container of a pod in one version of
// its spec, an image of a pod. It costs memory from its first [Backoff.Next]
// until it was quiet for twice the maximum.
type Backoff struct {
	cfg BackoffConfig

	mu    sync.Mutex
	keys  map[string]*attempts
	swept time.Time
}

// attempts is what a Backoff remembers of one key.
type attempts struct {
	delay time.Duration
	// started is when Next was last called.
	started time.Time
	// since is the newest end that was reported, as it was reported, and ended
	// the same moment on our own clock: see endOf.
	since, ended time.Time
}

// NewBackoff returns a Backoff that knows no key. The error reports every
// problem with cfg.
func NewBackoff(cfg BackoffConfig) (*Backoff, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("lifecycle: invalid back-off config: %w", err)
	}
	cfg = cfg.withDefaults()
	return &Backoff{cfg: cfg, keys: map[string]*attempts{}, swept: cfg.Clock.Now()}, nil
}

// Until says whether key, whose last run ended at since, must wait with its next
// start, and if so until when and what the delay is as a whole. A key that was
// never started, was reset, or ran for more than twice the maximum need not
// wait, and neither need one whose wait is over.
//
// Since may come from another clock than ours, the runtime's. It is compared
// with ours once, when this end is first seen here; from then on a step of the
// system clock neither shortens nor prolongs the wait. An end in the future counts
// as now, and a new one before the key's last start as that start: the runtime's
// clock is behind.
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

// Next records a start of key after an end at since: the delay doubles, or
// begins anew where [Backoff.Until] says that nothing is remembered. It returns
// the delay from the next end on.
func (b *Backoff) Next(key string, since time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.cfg.Clock.Now()
	defer b.sweep(now) // not before: since may say that key waited until just now
	a := b.keys[key]
	switch {
	case a == nil:
		a = &attempts{delay: b.cfg.Initial}
		b.keys[key] = a
		a.endOf(since, now)
	case b.ranLong(a, a.endOf(since, now)), b.quietAt(a, now):
		a.delay = b.cfg.Initial
	default:
		a.delay = backoff.Next(a.delay, b.cfg.Initial, b.cfg.Max)
	}
	a.started = now
	return a.delay
}

// Delay returns how long key waits after its next end, 0 if it does not.
func (b *Backoff) Delay(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.keys[key]; a != nil {
		return a.delay
	}
	return 0
}

// Reset forgets key.
func (b *Backoff) Reset(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys, key)
}

// Len returns how many keys are remembered.
func (b *Backoff) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.keys)
}

// endOf returns since on our own clock. Now carries a monotonic reading and
// since does not, so the age is a matter of wall clocks, once for each end; what
// is kept is monotonic.
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

// last returns when the key last started or stopped waiting.
func (a *attempts) last() time.Time {
	if last := a.ended.Add(a.delay); last.After(a.started) {
		return last
	}
	return a.started
}

// onOurClock returns a time of the wall clock on now's, which may be monotonic;
// at the latest now.
func onOurClock(t, now time.Time) time.Time { return now.Add(-max(0, now.Sub(t))) }

// ranLong says whether the run that began with the last Next and ended at the
// given time was long enough to forgive what came before.
func (b *Backoff) ranLong(a *attempts, ended time.Time) bool { return ended.Sub(a.started) > b.quiet() }

// quietAt says whether the key has neither started nor waited for so long that it
// starts afresh, also where no end of its last run was ever reported.
func (b *Backoff) quietAt(a *attempts, now time.Time) bool { return now.Sub(a.last()) > b.quiet() }

func (b *Backoff) quiet() time.Duration { return 2 * min(b.cfg.Max, math.MaxInt64/2) }

// sweep forgets the keys that nobody asked for in a while, now and then. A key
// that waits is not quiet before its wait is over.
func (b *Backoff) sweep(now time.Time) {
	if now.Sub(b.swept) <= b.quiet() {
		return
	}
	b.swept = now
	for key, a := range b.keys {
		if b.quietAt(a, now) {
			delete(b.keys, key)
		}
	}
}
