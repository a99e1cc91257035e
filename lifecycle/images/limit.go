package images

import (
	"context"
	"sync"
	"time"
)

// acquireSlot waits until another pull may start. The caller must call release
// when the pull has ended.
func (m *Manager) acquireSlot(ctx context.Context) (release func(), err error) {
	release = func() {}
	if m.slots != nil {
		select {
		case m.slots <- struct{}{}: // served in order of arrival
			release = func() { <-m.slots }
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if m.rate == nil {
		return release, nil
	}
	wait := m.rate.take(m.cfg.Clock.Now())
	if wait <= 0 {
		return release, nil
	}
	timer := m.cfg.Clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return release, nil
	case <-ctx.Done():
		m.rate.returnToken()
		release()
		return nil, context.Cause(ctx)
	}
}

// bucket is a token bucket that can be overdrawn: a caller can take a token
// that is not available yet, and must then wait for it.
type bucket struct {
	qps, burst float64

	mu     sync.Mutex
	tokens float64 // negative if callers wait for tokens
	filled time.Time
}

func newBucket(qps float64, burst int, now time.Time) *bucket {
	b := float64(max(burst, 1))
	return &bucket{qps: qps, burst: b, tokens: b, filled: now}
}

// take takes a token and returns how long the caller must wait for the token.
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
	// Limit the wait to a year: with a tiny rate, the Duration would overflow.
	const year = 365 * 24 * time.Hour
	return time.Duration(min(-b.tokens/b.qps, year.Seconds()) * float64(time.Second))
}

// returnToken returns an unused token.
func (b *bucket) returnToken() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.burst, b.tokens+1)
}
