package fakecri

import (
	"context"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// eventRetention is how long containerd keeps events while no client reads them.
const eventRetention = 5 * time.Minute

// event is a container event. The node creates its message when a client reads the event,
// because most events are never read and a message needs kilobytes.
type event struct {
	id        string
	kind      runtimeapi.ContainerEventType
	createdAt int64
	queuedAt  time.Time
	pod       *sandbox
	podGone   bool
	condition condition
	lives     []pastLife
	bare, cut bool // see EventFault; if cut is set, this is the end of the stream and not an event
}

// pastLife is a container with its state at the time of an event.
type pastLife struct {
	c *container
	life
}

// eventQueue holds the unread events of each subscriber. While there is no subscriber,
// backlog holds the events for the next subscriber.
type eventQueue struct {
	subscribers []*subscriber
	backlog     []event
	faults      []*eventFault
	held        []event // events that are sent after the next event
}

type subscriber struct{ pending []event }

// emit queues an event about the container or sandbox with the given id. Like containerd's
// events, the event contains the current state of the whole pod.
func (n *Node) emit(id string, pod *sandbox, kind runtimeapi.ContainerEventType, at int64) {
	n.broadcast()
	if n.down() {
		return // a runtime that is down never sends this event
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

// enqueue adds an event to the queue of each subscriber, or to the backlog if there are no
// subscribers.
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
	clear(q.backlog[:old]) // release the objects that these events point to
	q.backlog = q.backlog[old:]
}

// GetContainerEvents sends events to containerEventsCh until ctx ends or the runtime
// restarts, and returns the cause as an error. If there was no subscriber before, the
// subscriber also gets the unread events of the previous five minutes. The callback may be
// nil. It is called once, before the first event, with a nil client, because a call of the
// Go interface has no gRPC client.
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

// subscribe delivers events one by one, without the lock, until ctx ends, a delivery fails,
// a fault cuts the stream or the runtime restarts.
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
		// A restart during the delivery of an event also ends the stream.
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
		msg := n.message(sub.pending[0])
		n.mu.Unlock()
		err := deliver(msg)
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

// removeSubscriber removes a subscriber. If no other subscriber exists, it keeps the unread
// events for the next subscriber. It does nothing if a restart has removed the subscriber
// already.
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

// message returns the CRI message of an event.
func (n *Node) message(e event) *runtimeapi.ContainerEventResponse {
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
