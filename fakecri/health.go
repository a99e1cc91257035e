package fakecri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SetHealthy sets the health of a running container from now on. It overrides
// Program.HealthyAfter. It returns an error if the container does not run, or if the node
// cannot listen on a TCP port of the container again.
func (n *Node) SetHealthy(ref string, healthy bool) error {
	var err error
	missing := n.onRunning(ref, func(c *container) {
		c.health = &healthy
		err = n.updateTCP(c)
	})
	if missing != nil {
		return missing
	}
	if err != nil {
		return fmt.Errorf("fakecri: container %q: %w", ref, err)
	}
	return nil
}

// healthy reports whether a container is running and healthy. A running container is
// healthy if SetHealthy has set it healthy, or if SetHealthy was not called and the
// container has run for HealthyAfter.
func (n *Node) healthy(c *container) bool {
	if !c.running() {
		return false
	}
	if c.health != nil {
		return *c.health
	}
	return n.age(c) >= c.program.HealthyAfter
}

// age returns for how long the program of a container has been running, or how long it ran
// until it exited. The result is never negative, even if the clock was stepped back.
func (n *Node) age(c *container) time.Duration {
	switch {
	case c.startedAt == 0:
		return 0
	case c.ran > 0:
		return c.ran
	case c.state == runtimeapi.ContainerState_CONTAINER_EXITED:
		// The container exited at a reboot. Round, because stamp adds nanoseconds.
		return max(time.Duration(c.finishedAt-c.startedAt).Round(time.Microsecond), 0)
	}
	return max(n.now.Sub(c.began), 0)
}

// planLife schedules the OOM kill of a program that has just started, the opening of its
// TCP ports when it becomes healthy, and its next write to the log. It does not schedule
// the exit.
func (n *Node) planLife(c *container) {
	n.planOOM(c)
	if wait := c.program.HealthyAfter; wait > 0 && n.cfg.Listen != nil && len(c.program.Ports) > 0 {
		n.plan(n.now.Add(wait), func() {
			if err := n.updateTCP(c); err != nil {
				n.cfg.Logger.Debug("could not listen on container port", "container", c.object, "containerID", c.id, "err", err)
			}
		})
	}
	if c.program.LogInterval > 0 && n.cfg.WriteLogs && c.logPath != "" {
		n.planLog(c)
	}
}

// planOOM schedules the OOM kill of a running container for the time at which its program
// exceeds the memory limit. It replaces an earlier schedule.
func (n *Node) planOOM(c *container) {
	n.timers.remove(c.oom)
	limit := c.resources.GetLinux().GetMemoryLimitInBytes()
	if limit <= 0 || !c.running() {
		return
	}
	after, ok := c.program.Memory.exceeds(uint64(limit))
	if !ok {
		return
	}
	c.oom = n.plan(n.now.Add(max(after-n.age(c), 0)), func() {
		if c.running() {
			c.reason = reasonOOMKilled
			n.exit(c, exitKilled)
		}
	})
}

// planLog schedules the next write of the program's lines. Each write schedules the next
// write.
func (n *Node) planLog(c *container) {
	c.writes = n.plan(n.now.Add(c.program.LogInterval), func() {
		if !c.running() {
			return
		}
		if err := n.writeLog(c); err != nil {
			n.cfg.Logger.Debug("could not write container log", "container", c.object, "containerID", c.id, "err", err)
		}
		n.planLog(c)
	})
}
