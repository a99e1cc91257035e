package imagegc

import (
	"slices"
	"time"
)

// defaultLeaseTTL is containerd's default. It is longer than any pull, and short enough
// for a lease whose owner has crashed.
const defaultLeaseTTL = 24 * time.Hour

// lease protects an image for an owner.
type lease struct {
	names   []string // normal forms of the reference, see refNames
	owner   string
	expires time.Time
}

// leasedBy returns the owners of the leases of an image, sorted, and when the last of
// these leases ends. The caller holds mu.
func (m *Manager) leasedBy(names []string, now time.Time) (owners []string, until time.Time) {
	for _, l := range m.leases {
		if now.Before(l.expires) && overlap(l.names, names) {
			owners = append(owners, l.owner)
			if l.expires.After(until) {
				until = l.expires
			}
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners), until
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// Acquire protects the image of a reference for the owner until release is called or ttl
// has passed; 0 or less means 24 h. The image need not exist yet. The reference may be a
// tag, a digest or an ID; each pass resolves it again. A second lease for the same
// reference and owner replaces the first lease. The release function of the first lease
// then does nothing. A release function may be called more than once.
//
// If the image is being deleted, Acquire waits until the deletion has ended, for at most
// two minutes. An image that exists after Acquire has returned is therefore not deleted
// during the lease. An Observer must not call Acquire, because an Observer must not block.
func (m *Manager) Acquire(ref, owner string, ttl time.Duration) (release func()) {
	if ttl <= 0 {
		ttl = defaultLeaseTTL
	}
	mine := &lease{names: refNames(ref), owner: owner, expires: m.cfg.Clock.Now().Add(ttl)}
	m.mu.Lock()
	m.dropLeases(func(l *lease) bool { return l.owner == owner && overlap(l.names, mine.names) })
	m.leases = append(m.leases, mine)
	d := m.deleting
	m.mu.Unlock()
	if d != nil && overlap(d.names, mine.names) {
		<-d.done
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.dropLeases(func(l *lease) bool { return l == mine })
	}
}

// dropLeases deletes the leases for which the function returns true. The caller holds mu.
func (m *Manager) dropLeases(over func(*lease) bool) { m.leases = slices.DeleteFunc(m.leases, over) }
