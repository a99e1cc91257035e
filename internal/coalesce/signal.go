package coalesce

import (
	"context"
	"sync"
)

// Signal notifies any number of readers of a change. The notification has no content. The
// zero value is ready to use. All methods may be called concurrently, and while the
// caller holds locks.
type Signal struct {
	mu      sync.Mutex
	readers map[chan struct{}]struct{}
}

// Notify sends a message to each reader that has no unread message. It never blocks.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.readers {
		select {
		case c <- struct{}{}:
		default: // the unread message covers this change, too
		}
	}
}

// Subscribe returns a channel with one message. After the reader has received a message,
// the next call of Notify sends another message. The channel is closed soon after ctx is
// done.
func (s *Signal) Subscribe(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == nil {
		s.readers = map[chan struct{}]struct{}{}
	}
	s.readers[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.readers, c)
		close(c)
	})
	return c
}
