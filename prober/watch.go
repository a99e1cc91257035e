package prober

import (
	"context"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// watcher keeps one change per probe.
type watcher = coalesce.Queue[Key, Change]

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
	w := coalesce.New[Key](func(_, now Change) Change { return now })
	m.mu.Lock()
	m.watchers[w] = struct{}{}
	m.mu.Unlock()
	out := make(chan Change)
	go func() {
		defer close(out)
		w.Pump(ctx, out)
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
		w.Add(p.key(), Change{Key: p.key(), ContainerID: p.id, Result: p.count.result})
	}
}
