package podmanager

import "context"

// Subscribe returns a channel that holds a message whenever something has changed
// since the last one was taken from it: a pod or a mirror pod was added, replaced or
// removed, or all were set. It says not what. Changes that come quickly are one
// message, and the one after the last of them is never missed, so a reader that asks
// the Manager again after each message ends up with what there is.
//
// The first message is there at once. A reader that is slow, or does not read at
// all, delays nobody. The channel is closed when ctx is done, or soon after.
func (m *Manager) Subscribe(ctx context.Context) <-chan struct{} { return m.changes.Subscribe(ctx) }
