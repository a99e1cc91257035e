package imagegc

import (
	"slices"
	"time"
)

// defaultLeaseTTL is containerd's: long enough for any pull, short enough for an
// owner who has died.
const defaultLeaseTTL = 24 * time.Hour

// lease keeps an image for an owner.
type lease struct {
	owner   string
	expires time.Time
}

// leases are those in force, by the names of images. Manager.mu guards them.
type leases map[string][]*lease

// add puts a lease under all names in which the reference may be listed, and takes
// the owner's last one away.
func (l leases) add(ref, owner string, expires time.Time) *lease {
	mine := &lease{owner: owner, expires: expires}
	for _, name := range refNames(ref) {
		l[name] = append(slices.DeleteFunc(l[name], func(other *lease) bool { return other.owner == owner }), mine)
	}
	return mine
}

// remove takes a lease away that may be gone.
func (l leases) remove(ref string, mine *lease) {
	for _, name := range refNames(ref) {
		l.keep(name, func(other *lease) bool { return other != mine })
	}
}

func (l leases) keep(name string, wanted func(*lease) bool) {
	left := slices.DeleteFunc(l[name], func(other *lease) bool { return !wanted(other) })
	if len(left) == 0 {
		delete(l, name)
		return
	}
	l[name] = left
}

// expire forgets leases that are over.
func (l leases) expire(now time.Time) {
	for name := range l {
		l.keep(name, func(other *lease) bool { return now.Before(other.expires) })
	}
}

// of returns the owners of the leases of an image, in order, and when the last of
// them ends.
func (l leases) of(names []string, now time.Time) (owners []string, until time.Time) {
	if len(l) == 0 {
		return nil, until
	}
	for _, name := range names {
		for _, lease := range l[name] {
			if !now.Before(lease.expires) {
				continue
			}
			owners = append(owners, lease.owner)
			if lease.expires.After(until) {
				until = lease.expires
			}
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners), until
}

// Acquire keeps the image of a reference, which need not be there yet, for the
// owner until release is called or ttl is over; 0 or less stands for 24 h. The
// reference may be a tag, a digest or an id; what it stands for is looked up by each
// pass. Acquired again by the same owner it lasts from then on, and what the former
// release says no longer counts. Release may be called more than once.
//
// If a deletion of the image is under way, Acquire returns when that is over, which
// takes no longer than RemoveTimeout: whoever looks for the image after that, finds
// it if and only if it stays. Hence it must not be called by an Observer.
func (m *Manager) Acquire(ref, owner string, ttl time.Duration) (release func()) {
	if ttl <= 0 {
		ttl = defaultLeaseTTL
	}
	names := refNames(ref)
	m.mu.Lock()
	mine := m.leases.add(ref, owner, m.cfg.Clock.Now().Add(ttl))
	var wait []<-chan struct{}
	for _, d := range m.deleting {
		if slices.ContainsFunc(d.names, func(name string) bool { return slices.Contains(names, name) }) {
			wait = append(wait, d.done)
		}
	}
	m.mu.Unlock()
	for _, done := range wait {
		<-done
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.leases.remove(ref, mine)
	}
}
