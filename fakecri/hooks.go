package fakecri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kill ends a running container with an exit code, as if another process had killed it. The exit
// code of SIGKILL is 137. Kill finds the container by its id, or by its name as in Call.Object.
// If several containers have the name, Kill uses the newest. It returns an error if the container
// does not exist or does not run. All methods with a parameter ref find their object in this way.
func (n *Node) Kill(ref string, exitCode int32) error {
	return n.onRunning(ref, func(c *container) { n.exit(c, exitCode) })
}

// OOMKill simulates an OOM kill of a running container's main process: exit code 137,
// reason OOMKilled.
func (n *Node) OOMKill(ref string) error {
	return n.onRunning(ref, func(c *container) {
		c.reason = reasonOOMKilled
		n.exit(c, exitKilled)
	})
}

// OOMKillChild simulates an OOM kill of a child process in a running container. The container keeps
// running, and has the reason OOMKilled from then on, regardless of its later exit code.
func (n *Node) OOMKillChild(ref string) error {
	return n.onRunning(ref, func(c *container) { c.reason = reasonOOMKilled })
}

// SetUnknown sets the state of a running container to UNKNOWN, as if its shim did not respond. A
// stop or removal then ends the container with exit code 255.
func (n *Node) SetUnknown(ref string) error {
	return n.onRunning(ref, func(c *container) {
		n.timers.remove(c.end)
		c.state = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		c.exitCode, c.reason = exitUnknown, reasonUnknown
	})
}

func (n *Node) onRunning(ref string, act func(*container)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	c := n.containers.newest(ref)
	if c == nil {
		return fmt.Errorf("fakecri: no container %q", ref)
	}
	if !c.running() {
		return fmt.Errorf("fakecri: container %q is in %v state", ref, c.state)
	}
	act(c)
	n.broadcast()
	return nil
}

// KillSandbox kills the shim of a sandbox: the sandbox is not ready any more, and its running
// containers have exited with code 255. The network of the sandbox stays until the sandbox is
// stopped.
func (n *Node) KillSandbox(ref string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	s := n.sandboxes.newest(ref)
	if s == nil {
		return fmt.Errorf("fakecri: no sandbox %q", ref)
	}
	n.stopSandbox(s, exitUnknown)
	return nil
}

// RemoveSilently removes a container or a sandbox without an event, as if it had never existed. The
// containers of a removed sandbox stay.
func (n *Node) RemoveSilently(ref string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	defer n.broadcast()
	if c := n.containers.newest(ref); c != nil {
		// Calls that wait for the end of the container return.
		c.state = runtimeapi.ContainerState_CONTAINER_EXITED
		n.forgetContainer(c)
		return nil
	}
	if s := n.sandboxes.newest(ref); s != nil {
		s.ready = false
		n.dropNetwork(s)
		n.forgetSandbox(s)
		return nil
	}
	return fmt.Errorf("fakecri: no container or sandbox %q", ref)
}

// StepClock steps the node's wall clock forward or back, as time synchronisation does. Only later
// timestamps change. StepClock does not move scheduled changes.
func (n *Node) StepClock(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	n.skew += by
}

// Restart stops the runtime for the given time and starts it again. Calls in progress and calls
// during that time fail with Unavailable, connections are closed, and unread events are lost.
// Containers keep running. If a container exits during that time, its state shows the exit
// afterwards, but no event is sent. A negative time is treated as 0.
func (n *Node) Restart(down time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	n.goDown(down)
}

// Reboot restarts the whole node, which is down for the given time. Afterwards no sandbox
// is ready or has an address, and containers that ran have exited with code 255 and reason
// Unknown.
func (n *Node) Reboot(down time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.advance()
	n.goDown(down)
	n.now = n.upAt // the finish time is when the runtime is up again
	for _, c := range n.containers.order {
		if c.running() || c.state == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			n.timers.remove(c.end)
			c.state, c.exitCode = runtimeapi.ContainerState_CONTAINER_EXITED, exitUnknown
			c.reason, c.finishedAt = reasonUnknown, n.stamp()
		}
	}
	for _, s := range n.sandboxes.order {
		s.ready = false
		n.dropNetwork(s)
	}
}

// goDown ends all calls in progress and all connections.
func (n *Node) goDown(down time.Duration) {
	n.epoch++
	n.upAt = n.now.Add(max(down, 0))
	n.events = eventQueue{faults: n.events.faults} // unread events are lost
	for c := range n.conns {
		// Ignore the error: the connection is lost for the client in any case.
		_ = c.Conn.Close()
	}
	n.broadcast()
}
