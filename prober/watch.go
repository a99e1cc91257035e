package prober

import (
	"context"
	"sync"
)

// Results returns a channel of the changes of results from now on. There may be
// any number of readers, none of which delays a probe or another.
//
// What a reader has not read yet is kept as one change per probe, the newest, so
// that it needs no more memory than there are probes, and ends up with what is.
// Probes come in the order of their first change not read. That a container has
// not been probed yet is no change, but that a new one is not ready is.
//
// The channel is closed when ctx is done, and a goroutine serves it until then.
func (m *Manager) Results(ctx context.Context) <-chan Change {
	w := &watcher{pending: map[Key]Change{}, wake: make(chan struct{}, 1)}
	m.mu.Lock()
	m.watchers[w] = struct{}{}
	m.mu.Unlock()
	out := make(chan Change)
	go func() {
		defer close(out)
		w.pump(ctx, out)
		m.mu.Lock()
		delete(m.watchers, w)
		m.mu.Unlock()
	}()
	return out
}

// publish tells all readers of p's result. It needs mu, so that changes keep their
// order.
func (m *Manager) publish(p *probe) {
	for w := range m.watchers {
		w.add(Change{Key: p.key(), ContainerID: p.id, Result: p.count.result})
	}
}

// watcher is a queue with one change per probe.
type watcher struct {
	wake chan struct{} // capacity 1: the queue is no longer empty

	mu      sync.Mutex
	order   []Key
	pending map[Key]Change
}

func (w *watcher) add(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.pending[c.Key]; !ok {
		w.order = append(w.order, c.Key)
	}
	w.pending[c.Key] = c
	select {
	case w.wake <- struct{}{}:
	default: // it has been told already
	}
}

// next takes the first change of the queue.
func (w *watcher) next() (c Change, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.order) == 0 {
		return Change{}, false
	}
	key := w.order[0]
	w.order = w.order[1:]
	c = w.pending[key]
	delete(w.pending, key)
	return c, true
}

// pump hands the changes over until ctx is done.
func (w *watcher) pump(ctx context.Context, out chan<- Change) {
	for {
		c, ok := w.next()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case out <- c:
		case <-ctx.Done():
			return
		}
	}
}
