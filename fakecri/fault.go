package fakecri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Call is a CRI call as it came in.
type Call struct {
	// Method is the name of the CRI method, such as StopContainer.
	Method string
	// ID is the id of the container or sandbox in the call, empty if there is
	// none.
	ID string
	// Object says what the call is about: "namespace/pod" for a sandbox,
	// "namespace/pod/container" for a container, the image's name as given for
	// an image; empty for a list, and for an id that the node does not know.
	Object string
}

// String returns the method and the object, which are the same in every run.
func (c Call) String() string {
	switch {
	case c.Object != "":
		return c.Method + " " + c.Object
	case c.ID != "":
		return c.Method + " ?"
	}
	return c.Method
}

// Calls returns the calls so far, in the order in which they came in, those
// that failed included. It is empty unless Config.Record is set.
func (n *Node) Calls() []Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// Fault is something that goes wrong with calls. It takes effect before the
// call does: a call that fails has changed nothing.
type Fault struct {
	// Object limits the fault to calls about one object, given by its id or as
	// in Call.Object. Empty: all calls of the method.
	Object string
	// Times is how many calls it hits. Zero: all, until [Node.Heal].
	Times int
	// Err is what the call returns; over gRPC an error that is not a gRPC
	// status arrives with code Unknown. Nil: the call goes on, late.
	Err error
	// Delay is how long the call takes before that, on the node's clock.
	Delay time.Duration
	// Hang keeps the call until its context ends, the runtime restarts, or
	// [Node.Heal], after which it goes on as if nothing had been.
	Hang bool
}

// fault is a Fault in force.
type fault struct {
	Fault
	method string
	left   int
	healed bool
}

// methods returns the methods that a fault can hit: all that can be called on
// the node, which are all of the CRI but the streamed lists.
func methods() map[string]bool {
	known := map[string]bool{"GetContainerEvents": true}
	for _, m := range slices.Concat(runtimeapi.RuntimeService_ServiceDesc.Methods, runtimeapi.ImageService_ServiceDesc.Methods) {
		known[m.MethodName] = true
	}
	return known
}

// Fail makes calls of a method fail, take time or hang; the empty method stands
// for all. Of several faults that fit a call the first one hits it. A fault
// that can never hit anything or does nothing is refused.
func (n *Node) Fail(method string, f Fault) error {
	var errs []error
	if method != "" && !n.methods[method] {
		errs = append(errs, fmt.Errorf("there is no method %q", method))
	}
	if f.Times < 0 || f.Delay < 0 {
		errs = append(errs, errors.New("fields Times and Delay must not be negative"))
	}
	if f.Err == nil && f.Delay == 0 && !f.Hang {
		errs = append(errs, errors.New("one of the fields Err, Delay and Hang is required"))
	}
	if f.Hang && (f.Delay != 0 || f.Err != nil) {
		errs = append(errs, errors.New("field Hang excludes Delay and Err"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fakecri: invalid fault: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, &fault{Fault: f, method: method, left: f.Times})
	return nil
}

// Heal takes away the faults that were given for a method, or all of them for
// the empty method. Calls that are held up by them go on.
func (n *Node) Heal(method string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = slices.DeleteFunc(n.faults, func(f *fault) bool {
		if method == "" || f.method == method {
			f.healed = true
		}
		return f.healed
	})
	n.broadcast()
}

// hit returns the first fault in force that fits the call, and counts it.
func (n *Node) hit(call Call) *fault {
	for _, f := range n.faults {
		spent := f.Times > 0 && f.left == 0
		if spent || f.method != "" && f.method != call.Method {
			continue
		}
		if f.Object != "" && f.Object != call.Object && f.Object != call.ID {
			continue
		}
		f.left--
		return f
	}
	return nil
}

// suffer lets a call suffer its fault, if there is one.
func (n *Node) suffer(ctx context.Context, call Call) error {
	f := n.hit(call)
	if f == nil {
		return nil
	}
	over := f.Delay == 0 && !f.Hang
	if f.Delay > 0 {
		alarm := n.plan(n.now.Add(f.Delay), func() { over = true })
		defer n.timers.remove(alarm)
	}
	if err := n.await(ctx, func() bool { return over || f.healed }); err != nil {
		return err
	}
	if f.healed {
		return nil
	}
	return f.Err
}
