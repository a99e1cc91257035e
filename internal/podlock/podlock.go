// Package podlock implements a set of locks with one lock for each pod.
package podlock

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Locks has a lock for each pod. A lock uses memory only while a caller holds the lock or
// waits for the lock. The zero value is ready to use. A Locks must not be copied.
type Locks struct {
	mu   sync.Mutex
	pods map[types.UID]*lock
}

type lock struct {
	held  chan struct{} // capacity 1: full while the lock is held
	users int           // number of callers that hold the lock or wait for the lock, guarded by Locks.mu
}

// Lock acquires the pod's lock and returns a function that releases the lock. It waits
// while another caller holds the lock. If ctx is done during the wait, Lock returns the
// error of ctx.
func (l *Locks) Lock(ctx context.Context, uid types.UID) (unlock func(), err error) {
	p := l.enter(uid)
	select {
	case p.held <- struct{}{}:
		return func() { <-p.held; l.leave(uid, p) }, nil
	case <-ctx.Done():
		l.leave(uid, p)
		return nil, ctx.Err()
	}
}

func (l *Locks) enter(uid types.UID) *lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pods[uid]
	if p == nil {
		if l.pods == nil {
			l.pods = map[types.UID]*lock{}
		}
		p = &lock{held: make(chan struct{}, 1)}
		l.pods[uid] = p
	}
	p.users++
	return p
}

func (l *Locks) leave(uid types.UID, p *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.pods, uid)
	}
}

// Len returns the number of pods whose lock is in memory.
func (l *Locks) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods)
}
