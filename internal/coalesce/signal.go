package coalesce

import (
	"context"
	"sync"
)

// Signal notifies any number of readers that something has changed, and not what. The zero
// value is ready to use; its methods are safe for concurrent use and may be called under
// locks of the caller.
type Signal struct {
	mu      sync.Mutex
	readers map[chan struct{}]struct{}
}

// Notify puts a message into the channel of each reader that does not hold one. It never
// waits.
func (s *Signal) Notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.readers {
		select {
		case c <- struct{}{}:
		default: // the message that waits there stands for this change too
		}
	}
}

// Subscribe returns a channel that holds a message whenever Notify was called since the last
// message was taken, and one at the beginning. It is closed when ctx is done, or soon after.
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
