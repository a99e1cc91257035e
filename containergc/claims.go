package containergc

import (
	"context"
	"time"
)

// claim is the removal of a container or a sandbox by one pass.
type claim struct {
	ended chan struct{}
	gone  bool // set before ended is closed
}

// claimable reports whether passes must not remove an object at the same time. Files are
// removed at once.
func claimable(d *Decision) bool { return d.Kind == KindContainer || d.Kind == KindSandbox }

// patience is how long a pass waits for another that removes the same object, in real
// time.
const patience = 10 * time.Second

// claim reports whether another pass has removed an object, and if not, whether it is for
// the caller to remove.
func (m *Manager) claim(ctx context.Context, d *Decision) (gone, mine bool) {
	if !claimable(d) {
		return false, true
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m.mu.Lock()
		c := m.claims[d.ID]
		if c == nil {
			m.claims[d.ID] = &claim{ended: make(chan struct{})}
		}
		m.mu.Unlock()
		if c == nil {
			return false, true
		}
		select {
		case <-c.ended:
			if c.gone {
				return true, false
			}
		case <-ctx.Done():
			return false, false
		}
	}
}

// unclaim ends a claim. What was removed stays noted, because passes that are under way
// may have planned to remove it as well.
func (m *Manager) unclaim(d *Decision, removed bool) {
	if !claimable(d) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[d.ID]
	if c.gone = removed; !removed {
		delete(m.claims, d.ID)
	}
	close(c.ended)
}

// release ends a pass.
func (m *Manager) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passes--; m.passes == 0 {
		clear(m.claims)
	}
}
