package fakecri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
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

// Fault is something that goes wrong with calls, as plain data. But for Answer
// it takes effect before the call does: a call that fails has changed nothing.
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
	// IgnoreContext makes Delay and Hang go on when the call's context has
	// ended, as in a client that does not look at it. Over gRPC it changes
	// nothing, because there the client ends the call.
	IgnoreContext bool
	// Answer is what becomes of the answer of a call that succeeds.
	Answer Answer
}

// fault is a Fault in force.
type fault struct {
	Fault
	method string
	left   int
	healed bool
	stale  snapshot
}

// methods returns the methods that a fault can hit: all of the CRI.
func methods() map[string]bool {
	known := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range service.Methods {
			known[m.MethodName] = true
		}
		for _, s := range service.Streams {
			known[s.StreamName] = true
		}
	}
	return known
}

// aboutObjects says whether calls of a method are about one object.
func aboutObjects(method string) bool {
	switch method {
	case "Version", "Status", "RuntimeConfig", "UpdateRuntimeConfig", "ImageFsInfo", "GetContainerEvents":
		return false
	}
	return !strings.HasPrefix(method, "List") && !strings.HasPrefix(method, "Stream")
}

// Fail makes calls of a method fail, take time, hang or answer wrongly; the
// empty method stands for all. Of several faults that fit a call the first one
// hits it: a list of faults with Times is what becomes of one call after the
// other. A fault that can never hit anything or does nothing is refused, and
// with it all others of the list.
func (n *Node) Fail(method string, faults ...Fault) error {
	var errs []error
	if method != "" && !n.methods[method] {
		errs = append(errs, fmt.Errorf("there is no method %q", method))
	}
	for _, f := range faults {
		errs = append(errs, f.validate(method))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fakecri: invalid fault: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	for _, f := range faults {
		f.Answer = f.Answer.clone()
		in := &fault{Fault: f, method: method, left: f.Times}
		if f.Answer.Stale {
			in.stale = n.snapshot(method)
		}
		n.faults = append(n.faults, in)
	}
	return nil
}

// validate reports what is wrong with f for a method that is there.
func (f Fault) validate(method string) error {
	var errs []error
	refuse := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	spoils := !f.Answer.isZero()
	refuse(f.Times < 0 || f.Delay < 0, "fields Times and Delay must not be negative")
	refuse(f.Err == nil && f.Delay == 0 && !f.Hang && !spoils, "one of the fields Err, Delay, Hang and Answer is required")
	refuse(f.Hang && (f.Delay != 0 || f.Err != nil || spoils), "field Hang excludes Delay, Err and Answer")
	refuse(f.Err != nil && spoils, "field Err excludes Answer: there is none")
	refuse(f.IgnoreContext && f.Delay == 0 && !f.Hang, "field IgnoreContext needs Delay or Hang")
	refuse(f.Object != "" && method != "" && !aboutObjects(method), "field Object: calls of "+method+" are about no object")
	if spoils {
		errs = append(errs, f.Answer.validate(method))
	}
	return errors.Join(errs...)
}

// Heal takes away the faults that were given for a method, or all of them for
// the empty method; those of [Node.FailEvents] belong to GetContainerEvents.
// Calls and events that are held up by them go on.
func (n *Node) Heal(method string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = slices.DeleteFunc(n.faults, func(f *fault) bool {
		if method == "" || f.method == method {
			f.healed = true
		}
		return f.healed
	})
	if method == "" || method == "GetContainerEvents" {
		n.events.faults = nil
		n.release()
	}
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

// suffer lets a call suffer its fault, if there is one. What becomes of its
// answer is in n.answer until the lock is given up.
func (n *Node) suffer(ctx context.Context, call Call) error {
	n.answer = nil
	f := n.hit(call)
	if f == nil {
		return nil
	}
	over := f.Delay == 0 && !f.Hang
	if f.Delay > 0 {
		alarm := n.plan(n.now.Add(f.Delay), func() { over = true })
		defer n.timers.remove(alarm)
	}
	if f.IgnoreContext && !isRemote(ctx) {
		ctx = context.WithoutCancel(ctx)
	}
	if err := n.await(ctx, func() bool { return over || f.healed }); err != nil {
		return err
	}
	n.answer = nil // of a call that came in meanwhile
	if f.healed {
		return nil
	}
	if !f.Answer.isZero() {
		n.answer = f
	}
	return f.Err
}
