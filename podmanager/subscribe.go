package podmanager

import "context"

// subscribers are those who want to be told of changes, each with a channel for one
// message: that there was one. The lock of the Manager guards them.
type subscribers map[chan struct{}]struct{}

// notify tells everybody who has not been told since they last listened.
func (s subscribers) notify() {
	for c := range s {
		select {
		case c <- struct{}{}:
		default: // the one that is waiting there stands for this change too
		}
	}
}

// Subscribe returns a channel that holds a message whenever something has changed
// since the last one was taken from it: a pod or a mirror pod was added, replaced or
// removed, or all were set. It says not what. Changes that come quickly are one
// message, and the one after the last of them is never missed, so a reader that asks
// the Manager again after each message ends up with what there is.
//
// The first message is there at once. A reader that is slow, or does not read at
// all, delays nobody. The channel is closed when ctx is done, or soon after.
func (m *Manager) Subscribe(ctx context.Context) <-chan struct{} {
	c := make(chan struct{}, 1)
	c <- struct{}{}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.readers == nil {
		m.readers = make(subscribers)
	}
	m.readers[c] = struct{}{}
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.readers, c)
		close(c)
	})
	return c
}
