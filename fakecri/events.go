package fakecri

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventRetention is how long containerd keeps events that nobody reads.
const eventRetention = 5 * time.Minute

// event is a container event before it is written out, which is done when it is
// read: most are never read, and a written one takes kilobytes.
type event struct {
	id        string
	kind      runtimeapi.ContainerEventType
	createdAt int64
	queuedAt  time.Time
	pod       *sandbox
	podGone   bool
	condition condition
	lives     []pastLife
	bare, cut bool // see EventFault; a cut is no event, but the end of the stream
}

// pastLife is a container as it was when something happened in its pod.
type pastLife struct {
	c *container
	life
}

// eventQueue holds for each subscriber what it has not read yet, and when there
// is none what the next one will get.
type eventQueue struct {
	subscribers []*subscriber
	backlog     []event
	faults      []*eventFault
	held        []event // wait for the next event, to come after it
}

type subscriber struct{ pending []event }

// emit queues an event about the container or sandbox of the given id. Like
// containerd's it carries the whole pod as it is now.
func (n *Node) emit(id string, pod *sandbox, kind runtimeapi.ContainerEventType, at int64) {
	n.broadcast()
	if n.down() {
		return // a runtime that is not there sees nothing, and does not catch up
	}
	_, there := n.sandboxes.byID[pod.id]
	e := event{
		id: id, kind: kind, createdAt: at,
		pod: pod, podGone: !there, condition: pod.condition,
		lives: make([]pastLife, len(pod.containers)),
	}
	for i, c := range pod.containers {
		e.lives[i] = pastLife{c, c.life}
	}
	n.emitFaulty(e)
}

// enqueue gives an event to all who read, or keeps it for the next one who does.
func (n *Node) enqueue(e event) {
	q := &n.events
	e.queuedAt = n.now
	if len(q.subscribers) == 0 {
		q.backlog = append(q.backlog, e)
		n.expireEvents()
	}
	for _, s := range q.subscribers {
		s.pending = append(s.pending, e)
	}
}

func (n *Node) expireEvents() {
	q := &n.events
	old := 0
	for old < len(q.backlog) && n.now.Sub(q.backlog[old].queuedAt) > eventRetention {
		old++
	}
	clear(q.backlog[:old]) // to let go of what they point to
	q.backlog = q.backlog[old:]
}

// GetContainerEvents sends events to containerEventsCh until ctx ends or the
// runtime restarts, and returns why. The first of several subscribers gets
// what happened in the five minutes before. The callback, if there is one, is
// called once before the first event with a nil client: over the Go interface
// there is none.
func (n *Node) GetContainerEvents(ctx context.Context, containerEventsCh chan *runtimeapi.ContainerEventResponse, connectionEstablishedCallback func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	established := func() {
		if connectionEstablishedCallback != nil {
			connectionEstablishedCallback(nil)
		}
	}
	return n.subscribe(ctx, established, func(e *runtimeapi.ContainerEventResponse) error {
		select {
		case containerEventsCh <- e:
			return nil
		case <-ctx.Done():
			return contextError(ctx)
		}
	})
}

// subscribe delivers events one by one, without the lock, until ctx ends,
// deliver fails or the runtime restarts.
func (n *Node) subscribe(ctx context.Context, established func(), deliver func(*runtimeapi.ContainerEventResponse) error) error {
	if err := n.enter(ctx, "GetContainerEvents", "", ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	epoch, sub := n.epoch, n.addSubscriber()
	defer n.removeSubscriber(sub)
	n.mu.Unlock()
	established()
	n.mu.Lock()
	for {
		// A restart while an event was delivered ends the stream as well.
		if n.epoch != epoch {
			return errUnavailable()
		}
		if err := n.await(ctx, func() bool { return len(sub.pending) > 0 }); err != nil {
			return err
		}
		if sub.pending[0].cut {
			sub.pending = sub.pending[1:]
			return errUnavailable()
		}
		message := n.write(sub.pending[0])
		n.mu.Unlock()
		err := deliver(message)
		n.mu.Lock()
		if err != nil {
			return err
		}
		sub.pending[0] = event{}
		sub.pending = sub.pending[1:]
	}
}

func (n *Node) addSubscriber() *subscriber {
	n.expireEvents()
	q := &n.events
	sub := &subscriber{pending: q.backlog}
	q.backlog = nil
	q.subscribers = append(q.subscribers, sub)
	return sub
}

// removeSubscriber leaves what the last subscriber did not read to the next. A
// subscriber from before a restart is not there any more.
func (n *Node) removeSubscriber(sub *subscriber) {
	q := &n.events
	i := slices.Index(q.subscribers, sub)
	if i < 0 {
		return
	}
	q.subscribers = slices.Delete(q.subscribers, i, i+1)
	if len(q.subscribers) == 0 {
		q.backlog = sub.pending
	}
}

// write makes the message of an event.
func (n *Node) write(e event) *runtimeapi.ContainerEventResponse {
	if e.bare {
		return &runtimeapi.ContainerEventResponse{ContainerId: e.id, ContainerEventType: e.kind, CreatedAt: e.createdAt}
	}
	out := &runtimeapi.ContainerEventResponse{
		ContainerId: e.id, ContainerEventType: e.kind, CreatedAt: e.createdAt,
		ContainersStatuses: make([]*runtimeapi.ContainerStatus, len(e.lives)),
	}
	if !e.podGone {
		out.PodSandboxStatus = e.pod.status(e.condition)
	}
	for i, l := range e.lives {
		out.ContainersStatuses[i] = n.status(l.c, l.life)
	}
	return out
}
