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

// Call is a recorded CRI call.
type Call struct {
	// Method is the name of the CRI method, such as StopContainer.
	Method string
	// ID is the id of the container or sandbox in the request. It is empty if the request has no id.
	ID string
	// Object is the object of the call: "namespace/pod" for a sandbox,
	// "namespace/pod/container" for a container, the name in the request for an image. It
	// is empty for a list, and for an unknown id.
	Object string
}

// String returns the method and the object, which are the same in every run. For an unknown id,
// "?" replaces the object.
func (c Call) String() string {
	switch {
	case c.Object != "":
		return c.Method + " " + c.Object
	case c.ID != "":
		return c.Method + " ?"
	}
	return c.Method
}

// Calls returns all calls so far in the order of their arrival, including failed calls. The
// result is empty unless Config.Record is set.
func (n *Node) Calls() []Call {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// Fault is a fault of CRI calls, as plain data. The node applies all fields except Answer before
// it executes the call, so a call that fails has changed nothing.
type Fault struct {
	// Object limits the fault to calls about one object, identified by its id or as in
	// Call.Object. Empty means all calls of the method.
	Object string
	// Times is the number of calls to which the fault is applied. Zero means all calls
	// until [Node.ClearFaults].
	Times int
	// Err is the error that the call returns; over gRPC an error that is not a gRPC status has
	// code Unknown. If Err is nil, the call continues after Delay.
	Err error
	// Delay is the time before the call fails or continues, on the node's clock.
	Delay time.Duration
	// Hang blocks the call until its context ends, the runtime restarts, or [Node.ClearFaults] is
	// called. After ClearFaults the call continues normally.
	Hang bool
	// IgnoreContext makes Delay and Hang continue after the call's context has ended, like a
	// client that ignores its context. Over gRPC, IgnoreContext has no effect, because the client
	// ends the call.
	IgnoreContext bool
	// Answer changes the response of a successful call.
	Answer Answer
}

// fault is an active Fault.
type fault struct {
	Fault
	method string
	left   int
	healed bool
	stale  snapshot
}

// methods returns the methods that a fault can have: all methods of the CRI.
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

// aboutObjects reports whether calls of a method are about one object.
func aboutObjects(method string) bool {
	switch method {
	case "Version", "Status", "RuntimeConfig", "UpdateRuntimeConfig", "ImageFsInfo", "GetContainerEvents":
		return false
	}
	return !strings.HasPrefix(method, "List") && !strings.HasPrefix(method, "Stream")
}

// Fail activates faults for the calls of a method; the empty method means all methods. If several
// faults match a call, the first is applied, so a list of faults with Times defines the results
// of successive calls. If a fault is invalid, for example because it can never match or has no
// effect, Fail activates no fault and returns an error.
func (n *Node) Fail(method string, faults ...Fault) error {
	var errs []error
	if method != "" && !n.methods[method] {
		errs = append(errs, fmt.Errorf("unknown CRI method %q", method))
	}
	for _, f := range faults {
		errs = append(errs, f.validate(method))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fakecri: invalid fault: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
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

// validate returns all problems with f as a fault of method, which must exist or be empty.
func (f Fault) validate(method string) error {
	var errs []error
	check := func(bad bool, text string) {
		if bad {
			errs = append(errs, errors.New(text))
		}
	}
	changes := !f.Answer.isZero()
	check(f.Times < 0 || f.Delay < 0, "fields Times and Delay must not be negative")
	check(f.Err == nil && f.Delay == 0 && !f.Hang && !changes, "one of the fields Err, Delay, Hang and Answer is required")
	check(f.Hang && (f.Delay != 0 || f.Err != nil || changes), "field Hang excludes Delay, Err and Answer")
	check(f.Err != nil && changes, "field Err excludes Answer: a failed call has no response")
	check(f.IgnoreContext && f.Delay == 0 && !f.Hang, "field IgnoreContext needs Delay or Hang")
	check(f.Object != "" && method != "" && !aboutObjects(method), "field Object: calls of "+method+" have no object")
	if changes {
		errs = append(errs, f.Answer.validate(method))
	}
	return errors.Join(errs...)
}

// ClearFaults removes the faults of a method, or all faults for the empty method. For the method
// GetContainerEvents, it also removes the faults of [Node.FailEvents]. If a removed fault has
// blocked a call, the call continues. If a removed EventFault with Swap has held back an event, the
// node sends the event.
func (n *Node) ClearFaults(method string) {
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
		n.releaseHeld()
	}
	n.broadcast()
}

// match returns the first active fault that matches the call, or nil. It counts one use of the
// fault.
func (n *Node) match(call Call) *fault {
	for _, f := range n.faults {
		used := f.Times > 0 && f.left == 0
		if used || f.method != "" && f.method != call.Method {
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

// applyFault applies the first matching fault to a call. If the fault changes the response,
// applyFault sets n.answer to the fault; n.answer is valid until the lock is released.
func (n *Node) applyFault(ctx context.Context, call Call) error {
	n.answer = nil
	f := n.match(call)
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
	n.answer = nil // another call may have set it during the wait
	if f.healed {
		return nil
	}
	if !f.Answer.isZero() {
		n.answer = f
	}
	return f.Err
}
