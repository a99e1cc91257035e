package fakecri

import (
	"errors"
	"fmt"
	"time"
)

// EventFault describes a fault of the stream of container events (GetContainerEvents). Exactly
// one of Lose, Duplicate, Swap, Cut, Bare and Delay is required. The node applies the fault when
// an event occurs, not when it delivers the event, so that all subscribers get the same events.
type EventFault struct {
	// Object limits the fault to events about one container or sandbox. It is the ID of the
	// container or sandbox, or a name as in [Call].Object: "namespace/pod" or
	// "namespace/pod/container". Empty means all events.
	Object string
	// Times is the number of events to which the fault is applied. Zero means all events
	// until [Node.ClearFaults].
	Times int
	// Lose drops the event.
	Lose bool
	// Duplicate delivers the event twice.
	Duplicate bool
	// Swap delivers the event after the next event.
	Swap bool
	// Cut ends all streams with Unavailable instead of delivering the event. The event is
	// lost. Cut ignores and does not count events that occur while there is no subscriber.
	Cut bool
	// Bare delivers the event with its type, time and id only, without statuses.
	Bare bool
	// Delay is the time by which the node delays the event. Later events do not wait for it, and
	// may overtake it.
	Delay time.Duration
}

// eventFault is an active EventFault.
type eventFault struct {
	EventFault
	left int
}

// FailEvents activates faults of the event stream. If several faults match an event, the
// first is applied. To make the connection to the stream fail, use [Node.Fail] with
// GetContainerEvents. If a fault is invalid, FailEvents activates no fault and returns an
// error.
func (n *Node) FailEvents(faults ...EventFault) error {
	var errs []error
	for _, f := range faults {
		errs = append(errs, f.validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fakecri: invalid event fault: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	for _, f := range faults {
		n.events.faults = append(n.events.faults, &eventFault{f, f.Times})
	}
	return nil
}

func (f EventFault) validate() error {
	var errs []error
	if f.Times < 0 || f.Delay < 0 {
		errs = append(errs, errors.New("fields Times and Delay must not be negative"))
	}
	kinds := 0
	for _, set := range []bool{f.Lose, f.Duplicate, f.Swap, f.Cut, f.Bare, f.Delay != 0} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		errs = append(errs, fmt.Errorf("exactly one of the fields Lose, Duplicate, Swap, Cut, Bare and Delay is required, not %d", kinds))
	}
	return errors.Join(errs...)
}

// matchEvent returns the first active fault that matches an event, or nil. It counts one
// use of the fault.
func (n *Node) matchEvent(e event) *eventFault {
	for _, f := range n.events.faults {
		switch {
		case f.Times > 0 && f.left == 0, f.Cut && len(n.events.subscribers) == 0:
			continue
		case f.Object != "" && f.Object != e.id && f.Object != e.object(n):
			continue
		}
		f.left--
		return f
	}
	return nil
}

// object returns the name of the event's container or sandbox, as in Call.Object.
func (e event) object(n *Node) string {
	if e.id == e.pod.id {
		return e.pod.object
	}
	return n.objectName(e.id)
}

// emitFaulty queues an event after applying a matching fault.
func (n *Node) emitFaulty(e event) {
	f := n.matchEvent(e)
	switch {
	case f == nil:
	case f.Lose:
		return
	case f.Swap:
		n.events.held = append(n.events.held, e)
		return
	case f.Delay > 0:
		epoch := n.epoch
		n.plan(n.now.Add(f.Delay), func() {
			if n.epoch == epoch { // no restart has lost the event
				n.enqueue(e)
			}
		})
		return
	case f.Duplicate:
		n.enqueue(e)
	case f.Cut:
		e.cut = true
	case f.Bare:
		e.bare = true
	}
	n.enqueue(e)
	n.releaseHeld()
}

// releaseHeld queues the events of Swap faults.
func (n *Node) releaseHeld() {
	held := n.events.held
	n.events.held = nil
	for _, e := range held {
		n.enqueue(e)
	}
}
