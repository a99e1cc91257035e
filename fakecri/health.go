package fakecri

import (
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SetHealthy makes a running container healthy or not from now on, whatever its
// Program.HealthyAfter says. It fails when the container does not run, or when a
// TCP port cannot be listened on again.
func (n *Node) SetHealthy(ref string, healthy bool) error {
	var err error
	missing := n.onRunning(ref, func(c *container) {
		c.health = &healthy
		err = n.tuneTCP(c)
	})
	if missing != nil {
		return missing
	}
	if err != nil {
		return fmt.Errorf("fakecri: container %q: %w", ref, err)
	}
	return nil
}

// healthy says whether a container is: it runs, for long enough, and nobody has
// said otherwise.
func (n *Node) healthy(c *container) bool {
	if !c.running() {
		return false
	}
	if c.health != nil {
		return *c.health
	}
	return n.age(c) >= c.program.HealthyAfter
}

// age returns for how long the program of a container has run, or did run. It
// is never negative, even if the clock stepped back.
func (n *Node) age(c *container) time.Duration {
	switch {
	case c.startedAt == 0:
		return 0
	case c.ran > 0:
		return c.ran
	case c.state == runtimeapi.ContainerState_CONTAINER_EXITED:
		// At a reboot, and without the nanoseconds that stamps add.
		return max(time.Duration(c.finishedAt-c.startedAt).Round(time.Microsecond), 0)
	}
	return max(n.now.Sub(c.began), 0)
}

// planLife plans what a program that has just started does by itself, besides
// its end: it is killed for memory, becomes healthy, writes to its log.
func (n *Node) planLife(c *container) {
	n.planOOM(c)
	if wait := c.program.HealthyAfter; wait > 0 && n.cfg.Listen != nil && len(c.program.Ports) > 0 {
		n.plan(n.now.Add(wait), func() {
			if err := n.tuneTCP(c); err != nil {
				n.cfg.Logger.Debug("container cannot listen", "container", c.object, "containerID", c.id, "err", err)
			}
		})
	}
	if c.program.LogInterval > 0 && n.cfg.WriteLogs && c.logPath != "" {
		n.planLog(c)
	}
}

// planOOM plans the kill of a running container at the moment at which its
// program takes more memory than its limit, in place of an earlier plan.
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

// planLog has the program write its lines again and again.
func (n *Node) planLog(c *container) {
	c.writes = n.plan(n.now.Add(c.program.LogInterval), func() {
		if !c.running() {
			return
		}
		if err := n.writeLog(c); err != nil {
			n.cfg.Logger.Debug("container cannot log", "container", c.object, "containerID", c.id, "err", err)
		}
		n.planLog(c)
	})
}
