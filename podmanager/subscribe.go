package podmanager

import "context"

// Subscribe returns a channel that receives a message after a change: a pod or a mirror
// pod was added, replaced or removed, or all pods were set. The message does not contain
// the change. Changes in quick succession may cause a single message, but a message
// always follows the last change. So a reader that reads from the Manager after each
// message has the current pods after the last message.
//
// The channel already has a first message when Subscribe returns. A reader that is slow
// or does not read delays no other caller. The channel is closed soon after ctx is done.
func (m *Manager) Subscribe(ctx context.Context) <-chan struct{} { return m.changes.Subscribe(ctx) }
