package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// EventType is the kind of a change of a pod. The values are the kubelet's.
type EventType string

// Sandboxes count as containers here, as in the kubelet: a ready sandbox is running, a
// sandbox that is not ready has died.
const (
	// ContainerStarted means that a container has started to run.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied means that a container has exited, or has disappeared before the
	// generator saw it exited.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved means that a container no longer exists. It follows a ContainerDied.
	ContainerRemoved EventType = "ContainerRemoved"
	// ContainerChanged means that a container was created, or that the runtime
	// does not know its state. As in the kubelet, it updates the cache and is passed to
	// [Observer].Event, but it is not delivered, because no action is needed.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync means that the pod was inspected again, on request or after a failure,
	// and that no container's state has changed.
	PodSync EventType = "PodSync"
)

// Event reports a change of a pod, which the handler should sync.
type Event struct {
	PodUID types.UID
	Type   EventType
	// ContainerID is the CRI ID of the container or sandbox, empty for PodSync.
	ContainerID string
}

// watcher is a queue with one event per pod.
type watcher = coalesce.Queue[types.UID, Event]

// Watch returns a channel of the events from now on, as an alternative to the handler.
// There may be any number of watchers. A watcher does not delay a pass, the handler or
// another watcher.
//
// Unread events of a watcher are merged into one event per pod, so its memory is limited
// by the number of pods and no pod with changes is missed. Fields in which the merged
// events differ are not set: the starts of two containers become a [ContainerStarted]
// without a ContainerID, and a start and a death become a [PodSync]. Pods are
// in the order of their first unread event.
//
// The channel is closed when ctx is done. One goroutine per watcher runs until then.
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

// notifyWatchers adds a delivered event to the queues of all watchers.
func (g *Generator) notifyWatchers(e Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Events++
	for w := range g.watchers {
		w.Add(e.PodUID, e)
	}
}

// merge returns an event with what a and b have in common.
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
