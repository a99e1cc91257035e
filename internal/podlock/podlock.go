// Package podlock has a lock for each pod.
package podlock

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Locks has a lock for each pod, which costs memory only while somebody holds it or waits
// for it. The zero value is ready to use; a Locks must not be copied.
type Locks struct {
	mu   sync.Mutex
	pods map[types.UID]*lock
}

type lock struct {
	held  chan struct{} // has room for one holder
	users int           // that hold it or wait for it, under Locks.mu
}

// Lock waits until nobody else holds the pod's lock, at most until ctx is done; then it
// returns ctx's error.
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

// Len returns how many pods have a lock in memory.
func (l *Locks) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pods)
}
