package plan

import (
	"context"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (n *node) CreateContainer(_ context.Context, box string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := config.GetMetadata().GetName()
	attempt := config.GetMetadata().GetAttempt()
	n.log.starts = append(n.log.starts, start{name: name, attempt: attempt})
	if err := n.fail("CreateContainer " + name); err != nil {
		return "", err
	}
	return n.s.create(box, name, int(attempt), config.GetLinux().GetResources()).ID, nil
}

// create makes a container of the spec.
func (s *State) create(box, name string, attempt int, linux *runtimeapi.LinuxContainerResources) *Container {
	spec, _ := s.spec(name)
	id, made := s.next(name)
	c := &Container{
		ID: id, Name: name, Box: box, Attempt: attempt, From: *spec.DeepCopy(), State: created, Created: made,
		Linux: linux, Has: s.actuated(spec), Startup: NotProbed,
	}
	if c.From.StartupProbe == nil {
		c.Startup = Succeeded
	}
	s.Containers = append(s.Containers, c)
	s.Logs[name] = max(s.Logs[name], attempt+1)
	return c
}

func (n *node) StartContainer(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.s.container(id)
	if err := n.fail("StartContainer " + c.Name); err != nil {
		return err
	}
	c.State, c.Started = running, n.s.Now
	return nil
}

func (n *node) StopContainer(_ context.Context, id string, grace int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.s.container(id)
	n.log.kills[id] = kill{name: c.Name, message: n.log.message[c.Name], grace: grace}
	if err := n.fail("StopContainer"); err != nil {
		return err
	}
	n.s.end(c, 143, "Error")
	return nil
}

func (n *node) RemoveContainer(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.s.container(id)
	if c == nil {
		return fmt.Errorf("container %s does not exist", id)
	}
	n.log.removes = append(n.log.removes, id)
	if err := n.fail("RemoveContainer " + c.Name); err != nil {
		return err
	}
	n.s.remove(id)
	return nil
}

func (s *State) remove(id string) {
	s.Containers = slices.DeleteFunc(s.Containers, func(c *Container) bool { return c.ID == id })
}

func (n *node) UpdateContainerResources(_ context.Context, id string, res *runtimeapi.ContainerResources) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.s.container(id)
	if err := n.fail("UpdateContainerResources " + c.Name); err != nil {
		return err
	}
	n.log.updates = append(n.log.updates, update{id: id, res: res.GetLinux()})
	n.s.resize(c, res.GetLinux())
	return nil
}

// resize changes the resources of a container. Zero fields are not changed.
func (s *State) resize(c *Container, to *runtimeapi.LinuxContainerResources) {
	c.Linux = merged(c.Linux, to)
}

func merged(now, to *runtimeapi.LinuxContainerResources) *runtimeapi.LinuxContainerResources {
	next := &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: now.GetMemoryLimitInBytes(), CpuShares: now.GetCpuShares(), CpuQuota: now.GetCpuQuota(), CpuPeriod: now.GetCpuPeriod(),
	}
	set := func(field *int64, v int64) {
		if v != 0 {
			*field = v
		}
	}
	set(&next.MemoryLimitInBytes, to.GetMemoryLimitInBytes())
	set(&next.CpuShares, to.GetCpuShares())
	set(&next.CpuQuota, to.GetCpuQuota())
	set(&next.CpuPeriod, to.GetCpuPeriod())
	return next
}

func (n *node) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
