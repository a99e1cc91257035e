package prober

import (
	"context"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// watcher is a queue with one change per probe.
type watcher = coalesce.Queue[Key, Change]

// Results returns a channel that delivers the changes of results after the call. There may
// be any number of readers. A reader does not delay a probe or another reader.
//
// For each reader, the Manager keeps only the newest unread change of a probe, so the
// memory of a reader is limited by the number of probes. The channel delivers changes in
// order, except that a newer change takes the place of the probe's unread change. A result
// that becomes Unknown is not a change. The initial Failure of the readiness probe of a new
// container is a change.
//
// The channel is closed when ctx is done. One goroutine per reader runs until then.
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

// publish sends p's result to all readers. The caller holds mu, so that changes stay in
// order.
func (m *Manager) publish(p *probe) {
	for w := range m.watchers {
		w.Add(p.key(), Change{Key: p.key(), ContainerID: p.id, Result: p.count.result})
	}
}
