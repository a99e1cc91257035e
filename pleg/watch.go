package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// watcher keeps one event per pod.
type watcher = coalesce.Queue[types.UID, Event]

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
	w := coalesce.New[types.UID](merge)
	g.mu.Lock()
	g.watchers[w] = struct{}{}
	g.mu.Unlock()
	out := make(chan Event)
	go func() {
		defer close(out)
		w.Pump(ctx, out)
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
		w.Add(e.PodUID, e)
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
