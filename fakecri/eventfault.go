package fakecri

import (
	"errors"
	"fmt"
	"time"
)

// EventFault is something that goes wrong with events, as plain data. Exactly
// one of Lose, Twice, Swap, Cut, Bare and Delay is required. It hits an event
// when that happens, for all who read.
type EventFault struct {
	// Object limits the fault to events about one container or sandbox, given
	// by its id or as in Call.Object. Empty: all events.
	Object string
	// Times is how many events it hits. Zero: all, until [Node.Heal].
	Times int
	// Lose makes the event never come.
	Lose bool
	// Twice makes it come twice.
	Twice bool
	// Swap makes it come after the event that follows it.
	Swap bool
	// Cut ends all streams with Unavailable where the event should come, which
	// is lost. It waits for a time when somebody reads.
	Cut bool
	// Bare leaves of the event its kind, its time and the id: no statuses.
	Bare bool
	// Delay is how much later the event comes. Those after it do not wait.
	Delay time.Duration
}

// eventFault is an EventFault in force.
type eventFault struct {
	EventFault
	left int
}

// FailEvents makes events get lost, come twice, late, in another order or
// without their content, or end the stream. Of several faults that fit an event
// the first one hits it. What connecting to the stream meets is a [Fault] of
// GetContainerEvents. A fault that does nothing is refused, and with it all
// others of the list.
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
	n.settle()
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
	for _, set := range []bool{f.Lose, f.Twice, f.Swap, f.Cut, f.Bare, f.Delay != 0} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		errs = append(errs, fmt.Errorf("exactly one of the fields Lose, Twice, Swap, Cut, Bare and Delay is required, not %d", kinds))
	}
	return errors.Join(errs...)
}

// hitEvent returns the first fault in force that fits an event, and counts it.
func (n *Node) hitEvent(e event) *eventFault {
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

// object names what an event is about, which may be gone already.
func (e event) object(n *Node) string {
	if e.id == e.pod.id {
		return e.pod.object
	}
	return n.objectName(e.id)
}

// emitFaulty queues an event, or what a fault makes of it.
func (n *Node) emitFaulty(e event) {
	f := n.hitEvent(e)
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
			if n.epoch == epoch { // otherwise a restart has lost it
				n.enqueue(e)
			}
		})
		return
	case f.Twice:
		n.enqueue(e)
	case f.Cut:
		e.cut = true
	case f.Bare:
		e.bare = true
	}
	n.enqueue(e)
	n.release()
}

// release queues the events that waited for another.
func (n *Node) release() {
	held := n.events.held
	n.events.held = nil
	for _, e := range held {
		n.enqueue(e)
	}
}
