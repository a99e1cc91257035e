package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// EventType says what happened to a pod. The values are the kubelet's.
type EventType string

// Sandboxes count as containers here, as in the kubelet: a ready one runs, one
// that is not ready has died.
const (
	// ContainerStarted says that a container runs that did not.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied says that a container has exited, or has vanished without
	// having been seen to exit.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved says that a container is gone; it follows a ContainerDied.
	ContainerRemoved EventType = "ContainerRemoved"
	// ContainerChanged says that a container was created, or that the runtime
	// does not know its state. Nobody has to act on that, so as in the kubelet it
	// refreshes the cache and is shown to [Observer].Event, but is not delivered.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync says that the pod was inspected anew, on request or after a failure,
	// and that no container's state had changed.
	PodSync EventType = "PodSync"
)

// Event says that the handler should look at a pod.
type Event struct {
	PodUID types.UID
	Type   EventType
	// ContainerID is the CRI id of the container or sandbox, empty for PodSync.
	ContainerID string
}

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
