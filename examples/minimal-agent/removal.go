package main

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// removalsAtOnce bounds how many pods are removed at a time.
const removalsAtOnce = 8

// removals removes what is left of stopped pods, each in a goroutine of its own:
// one that the runtime holds up delays nobody.
type removals struct {
	removed func() // is called after each that succeeded
	slots   chan struct{}
	all     sync.WaitGroup

	mu    sync.Mutex
	going map[types.UID]bool
}

func newRemovals(removed func()) *removals {
	return &removals{removed: removed, slots: make(chan struct{}, removalsAtOnce), going: map[types.UID]bool{}}
}

// start calls remove for the pod, as soon as not too many others are at it. It
// never waits, and does nothing while the pod is being removed already.
func (r *removals) start(ctx context.Context, uid types.UID, remove func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.going[uid] {
		return
	}
	r.going[uid] = true
	r.all.Go(func() {
		err := r.inTurn(ctx, remove)
		r.mu.Lock()
		delete(r.going, uid)
		r.mu.Unlock()
		if err == nil {
			r.removed()
		}
	})
}

func (r *removals) inTurn(ctx context.Context, remove func(context.Context) error) error {
	select {
	case r.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-r.slots }()
	return remove(ctx)
}

// underWay says whether the pod is being removed. It can't come back until that
// is over: its log folder would be taken from under it.
func (r *removals) underWay(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.going[uid]
}

// wait returns when no removal is under way.
func (r *removals) wait() { r.all.Wait() }
