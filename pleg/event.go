package pleg

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// EventType is the kind of a change of a pod. The values are the kubelet's.
type EventType string

// Sandboxes count as containers here, as in the kubelet: a ready sandbox counts as running,
// a sandbox that is not ready counts as dead.
const (
	// ContainerStarted means that a container has started to run.
	ContainerStarted EventType = "ContainerStarted"
	// ContainerDied means that a container has exited, or was removed before a list
	// contained it as exited.
	ContainerDied EventType = "ContainerDied"
	// ContainerRemoved means that a container no longer exists. It follows the
	// ContainerDied of the same container.
	ContainerRemoved EventType = "ContainerRemoved"
	// ContainerChanged means that a container was created, or that the runtime does not
	// know its state. As in the kubelet, the generator updates the cache and calls
	// [Observer].Event, but does not deliver the event, because no action is needed.
	ContainerChanged EventType = "ContainerChanged"
	// PodSync means that the pod was inspected again and that no container has started,
	// died or been removed. The cause is a request, an earlier inspection that failed, or
	// a status that contradicted the list. A channel of [Generator.Watch] also delivers a
	// PodSync in place of merged events of different types.
	PodSync EventType = "PodSync"
)

// Event reports a change of a pod, so that the agent can sync the pod.
type Event struct {
	PodUID types.UID
	Type   EventType
	// ContainerID is the CRI ID of the container or sandbox. It is empty for a PodSync and
	// for merged events of several containers.
	ContainerID string
}

// watcher is a queue with one event per pod.
type watcher = coalesce.Queue[types.UID, Event]

// Watch returns a channel of the events that occur after the call, as an alternative to the
// handler. There may be any number of watchers. A watcher does not delay a pass, the
// handler or another watcher.
//
// For each watcher, the unread events of a pod are merged into one event. The memory of a
// watcher is thus limited by the number of pods, and the watcher misses no changed pod.
// Fields in which the merged events differ are not set: the starts of two containers become
// a [ContainerStarted] without a ContainerID, and a start and a death become a [PodSync].
// The channel returns pods in the order of their first unread event.
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

// merge merges two events of a pod. If their types differ, the result is a PodSync without a
// ContainerID. If only the ContainerIDs differ, the result has no ContainerID.
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
