package podrunner

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// podLocks has a lock for each pod. It costs memory for those that are held or waited for.
type podLocks struct {
	mu   sync.Mutex
	pods map[types.UID]*podLock
}

type podLock struct {
	held  chan struct{} // has room for one holder
	users int           // that hold it or wait for it, under podLocks.mu
}

func newPodLocks() *podLocks { return &podLocks{pods: map[types.UID]*podLock{}} }

// lock waits until nobody else holds the pod's lock, at most until ctx is done.
func (l *podLocks) lock(ctx context.Context, uid types.UID) (unlock func(), err error) {
	l.mu.Lock()
	p := l.pods[uid]
	if p == nil {
		p = &podLock{held: make(chan struct{}, 1)}
		l.pods[uid] = p
	}
	p.users++
	l.mu.Unlock()
	select {
	case p.held <- struct{}{}:
		return func() { <-p.held; l.leave(uid, p) }, nil
	case <-ctx.Done():
		l.leave(uid, p)
		return nil, ctx.Err()
	}
}

func (l *podLocks) leave(uid types.UID, p *podLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(l.pods, uid)
	}
}
