package pleg

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Watch returns a channel of the events from now on, for those who rather read than
// be called. There may be any number of watchers, none of which delays a pass, the
// handler or another.
//
// What a watcher has not read yet is kept as one event per pod, so that it needs no
// more memory than there are pods and nothing is lost: events of the same pod are
// merged, and what they differ in is left out. Two containers that started are a
// [ContainerStarted] without a ContainerID, a start and a death are a [PodSync]:
// look at that pod. Pods come in the order of their first event not read.
//
// The channel is closed when ctx is done, and a goroutine serves it until then.
func (g *Generator) Watch(ctx context.Context) <-chan Event {
	w := &watcher{pending: map[types.UID]Event{}, wake: make(chan struct{}, 1)}
	g.mu.Lock()
	g.watchers[w] = struct{}{}
	g.mu.Unlock()
	out := make(chan Event)
	go func() {
		defer close(out)
		w.pump(ctx, out)
		g.mu.Lock()
		delete(g.watchers, w)
		g.mu.Unlock()
	}()
	return out
}

// offer gives a delivered event to all watchers.
func (g *Generator) offer(e Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Events++
	for w := range g.watchers {
		w.add(e)
	}
}

// watcher is a queue with one event per pod.
type watcher struct {
	wake chan struct{} // capacity 1: the queue is no longer empty

	mu      sync.Mutex
	order   []types.UID
	pending map[types.UID]Event
}

func (w *watcher) add(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, ok := w.pending[e.PodUID]; ok {
		w.pending[e.PodUID] = merge(before, e)
		return
	}
	w.pending[e.PodUID] = e
	w.order = append(w.order, e.PodUID)
	notify(w.wake)
}

// next takes the first event of the queue.
func (w *watcher) next() (e Event, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return Event{}, false
	}
	uid := w.order[0]
	w.order = w.order[1:]
	e = w.pending[uid]
	delete(w.pending, uid)
	return e, true
}

// pump hands the events over until ctx is done.
func (w *watcher) pump(ctx context.Context, out chan<- Event) {
	for {
		e, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- e:
		case <-ctx.Done():
			return
		}
	}
}

// merge returns an event that says no more than is true of both.
func merge(a, b Event) Event {
	switch {
	case a.Type != b.Type:
		return Event{PodUID: a.PodUID, Type: PodSync}
	case a.ContainerID != b.ContainerID:
		return Event{PodUID: a.PodUID, Type: a.Type}
	default:
		return a
	}
}
