package fakecri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Kill ends a running container from outside with an exit code, 137 for
// SIGKILL. Like all hooks it takes an object by its id, or by its name as in
// Call.Object, which stands for the newest object of that name; the error says
// that there is no such object, or that it does not run.
func (n *Node) Kill(ref string, exitCode int32) error {
	return n.onRunning(ref, func(c *container) { n.exit(c, exitCode) })
}

// OOMKill has the kernel kill a running container's main process for memory:
// exit code 137, reason OOMKilled.
func (n *Node) OOMKill(ref string) error {
	return n.onRunning(ref, func(c *container) {
		c.reason = reasonOOMKilled
		n.exit(c, exitKilled)
	})
}

// OOMKillChild has the kernel kill a child of a running container's main
// process. The container runs on, and has the reason OOMKilled from then on,
// whatever its exit code will be.
func (n *Node) OOMKillChild(ref string) error {
	return n.onRunning(ref, func(c *container) { c.reason = reasonOOMKilled })
}

// LoseTrack makes the state of a running container UNKNOWN, as when its shim
// does not answer. Stopping or removing it ends it with exit code 255.
func (n *Node) LoseTrack(ref string) error {
	return n.onRunning(ref, func(c *container) {
		n.timers.remove(c.end)
		c.state = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		c.exitCode, c.reason = exitUnknown, reasonUnknown
	})
}

func (n *Node) onRunning(ref string, act func(*container)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
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

// KillSandbox kills the shim of a sandbox: it is not ready, and what ran in it
// has ended with exit code 255. Its network stays until it is stopped.
func (n *Node) KillSandbox(ref string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	s := n.sandboxes.newest(ref)
	if s == nil {
		return fmt.Errorf("fakecri: no sandbox %q", ref)
	}
	n.stopSandbox(s, exitUnknown)
	return nil
}

// Vanish takes a container or a sandbox away as if it had never been, without
// an event. The containers of a sandbox that vanishes stay.
func (n *Node) Vanish(ref string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	defer n.broadcast()
	if c := n.containers.newest(ref); c != nil {
		// Who waits for its end has seen it.
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

// StepClock steps the node's wall clock, forward or back, as a time server
// does: what gets a timestamp from then on gets another, and what has one keeps
// it. Nothing happens earlier or later by it.
func (n *Node) StepClock(by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	n.skew += by
}

// Restart takes the runtime down and up again: calls that are under way and
// those of the given time fail with Unavailable, connections are cut, events
// that nobody has read are lost. Containers run on meanwhile; an end in that
// time is in the state afterwards, and in no event. A negative time is none.
func (n *Node) Restart(down time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	n.goDown(down)
}

// Reboot restarts the whole node. Afterwards no sandbox is ready or has an
// address, and what ran has ended with exit code 255 and reason Unknown.
func (n *Node) Reboot(down time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	n.goDown(down)
	n.now = n.upAt // when the runtime is up again it finds them ended
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

// goDown ends all calls under way and all connections.
func (n *Node) goDown(down time.Duration) {
	n.epoch++
	n.upAt = n.now.Add(max(down, 0))
	n.events = eventQueue{faults: n.events.faults} // what nobody has read is lost
	for c := range n.conns {
		// The client sees that it is gone; whether closing worked is no matter.
		_ = c.Conn.Close()
	}
	n.broadcast()
}
