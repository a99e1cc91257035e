package images

import (
	"context"
	"sync"
	"time"
)

// turn waits until one more pull may begin. The pull's end must be told by give.
func (m *Manager) turn(ctx context.Context) (give func(), err error) {
	give = func() {}
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}: // those who wait here are served in their order
			give = func() { <-m.slots }
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if m.rate == nil {
		return give, nil
	}
	wait := m.rate.take(m.cfg.Clock.Now())
	if wait <= 0 {
		return give, nil
	}
	timer := m.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return give, nil
	case <-ctx.Done():
		m.rate.giveBack()
		give()
		return nil, context.Cause(ctx)
	}
}

// bucket is a token bucket that lends: who takes what is not there yet waits for
// it.
type bucket struct {
	qps, burst float64

	mu     sync.Mutex
	tokens float64 // negative: lent
	filled time.Time
}

func newBucket(qps float64, burst int, now time.Time) *bucket {
	b := float64(max(burst, 1))
	return &bucket{qps: qps, burst: b, tokens: b, filled: now}
}

// take takes a token and returns how long to wait for it.
func (b *bucket) take(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if passed := now.Sub(b.filled); passed > 0 {
		b.tokens = min(b.burst, b.tokens+passed.Seconds()*b.qps)
		b.filled = now
	}
	b.tokens--
	if b.tokens >= 0 {
		return 0
	}
	// The longest wait is a year: a rate may be tiny.
	const year = 365 * 24 * time.Hour
	return time.Duration(min(-b.tokens/b.qps, year.Seconds()) * float64(time.Second))
}

// giveBack returns a token that was not used.
func (b *bucket) giveBack() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.burst, b.tokens+1)
}
