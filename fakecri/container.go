package fakecri

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is one container. The fields above the embedded struct life never change.
type container struct {
	id, name, object string
	seq              uint64
	pod              *sandbox
	config           *runtimeapi.ContainerConfig // the node's own copy
	imageID, logPath string
	program          *Program
	createdAt        int64
	life
	end      *timer    // the exit of the program, if it is scheduled
	oom      *timer    // the OOM kill, if it is scheduled
	writes   *timer    // the next write to the log
	began    time.Time // startedAt, without steps of the wall clock
	ran      time.Duration
	health   *bool // set by SetHealthy; nil if it was not called
	termSent bool  // SIGTERM was sent; the node sends it only once
}

// life is the part of a container's status that changes. Events contain copies of it.
type life struct {
	state                 runtimeapi.ContainerState
	startedAt, finishedAt int64
	exitCode              int32
	reason, message       string
	resources             *runtimeapi.ContainerResources // never changed in place
}

func (c *container) key() (string, uint64) { return c.id, c.seq }

func (c *container) named() string { return c.object }

func (c *container) running() bool {
	return c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// CreateContainer creates a container in a sandbox that is ready, from an image that is in
// the store. No other container of the pod in sandboxConfig may have the same name and
// attempt.
func (n *Node) CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	object := podName(sandboxConfig) + "/" + config.GetMetadata().GetName()
	if err := n.enter(ctx, "CreateContainer", "", object); err != nil {
		return "", err
	}
	defer n.mu.Unlock()
	s, ok := n.sandboxes.byID[podSandboxID]
	if !ok {
		return "", errNotFound("failed to find sandbox id %q: not found", podSandboxID)
	}
	if !s.ready {
		return "", errUnknown("sandbox container %q is not running", podSandboxID)
	}
	meta, podMeta := config.GetMetadata(), sandboxConfig.GetMetadata()
	if meta == nil {
		return "", errUnknown("container config must include metadata")
	}
	if podMeta == nil {
		return "", errUnknown("pod sandbox config must include metadata")
	}
	security := config.GetLinux().GetSecurityContext()
	if err := checkUser(security.GetRunAsUser(), security.GetRunAsUsername(), security.GetRunAsGroup()); err != nil {
		return "", err
	}
	seq, id := n.newID()
	name := meta.GetName() + "_" + joinName(podMeta.GetName(), podMeta.GetNamespace(), podMeta.GetUid(), meta.GetAttempt())
	if err := n.reserve(name, id); err != nil {
		return "", grpcstatus.Errorf(codes.FailedPrecondition, "failed to reserve container name %q: %v", name, err)
	}
	img, ok := n.images.find(config.GetImage().GetImage())
	if !ok {
		delete(n.reserved, name)
		return "", errNotFound("failed to resolve image %q: not found", config.GetImage().GetImage())
	}
	program, err := n.program(config, img)
	if err != nil {
		delete(n.reserved, name)
		return "", errUnknown("the program of the container is invalid: %v", err)
	}
	c := &container{
		id: id, seq: seq, name: name, object: object, pod: s, config: proto.CloneOf(config),
		imageID: img.id, program: program, createdAt: n.stamp(),
	}
	if dir := sandboxConfig.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		c.logPath = filepath.Join(dir, config.GetLogPath())
	}
	if linux := c.config.GetLinux().GetResources(); linux != nil {
		c.resources = &runtimeapi.ContainerResources{Linux: linux}
	}
	n.containers.add(c)
	s.containers = append(s.containers, c)
	n.emit(c.id, s, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, c.createdAt)
	return id, nil
}

// checkUser returns an error for a group without a user, as runtimes do.
func checkUser(user *runtimeapi.Int64Value, username string, group *runtimeapi.Int64Value) error {
	if group != nil && user == nil && username == "" {
		return errUnknown("failed to generate user string: user group \"%d\" is specified without user", group.GetValue())
	}
	return nil
}

// StartContainer starts a container in the state CREATED, in a sandbox that is ready. A container
// in the state CREATED whose start fails, for example because its program cannot be started, then
// has the state EXITED, the exit code 128 and the reason StartError.
func (n *Node) StartContainer(ctx context.Context, containerID string) error {
	if err := n.enter(ctx, "StartContainer", containerID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return errNotFound("an error occurred when try to find container %q: not found", containerID)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return errUnknown("failed to set starting state for container %q: container is in %v state", containerID, c.state)
	}
	if err := n.launch(ctx, c); err != nil {
		c.state, c.exitCode = runtimeapi.ContainerState_CONTAINER_EXITED, exitStartError
		c.reason, c.message = reasonStartError, grpcstatus.Convert(err).Message()
		c.finishedAt = n.stamp()
		return err
	}
	n.emit(c.id, c.pod, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, c.startedAt)
	return nil
}

func (n *Node) launch(ctx context.Context, c *container) error {
	if !c.pod.ready {
		return errUnknown("sandbox container %q is not running", c.pod.id)
	}
	if c.program.StartError != "" {
		return errUnknown("failed to create containerd task: failed to create shim task: OCI runtime create failed: "+
			"runc create failed: unable to start container process: %s", c.program.StartError)
	}
	if err := n.writeLog(c); err != nil {
		return errUnknown("failed to create containerd task: failed to create container loggers: %v", err)
	}
	if err := n.serveProgram(ctx, c); err != nil {
		return errUnknown("failed to start containerd task %q: %v", c.id, err)
	}
	c.state, c.startedAt, c.began = runtimeapi.ContainerState_CONTAINER_RUNNING, n.stamp(), n.now
	n.planLife(c)
	if e, ok := c.program.ownEnd(c.config.GetMetadata().GetAttempt()); ok {
		n.endAt(c, n.now.Add(e.after), e)
	}
	return nil
}

// endAt schedules the exit of a running container. It does nothing if an exit is scheduled already
// for that time or an earlier time.
func (n *Node) endAt(c *container, at time.Time, e ending) {
	if c.end != nil && !at.Before(c.end.at) {
		return
	}
	n.timers.remove(c.end)
	c.end = n.plan(at, func() {
		c.reason = cmp.Or(e.reason, c.reason)
		n.exit(c, e.code)
	})
}

// exit changes the state of a container from RUNNING or UNKNOWN to EXITED.
func (n *Node) exit(c *container, code int32) {
	n.timers.remove(c.end)
	n.timers.remove(c.oom)
	n.timers.remove(c.writes)
	n.closePorts(c)
	c.ran = n.age(c)
	c.state, c.finishedAt, c.exitCode = runtimeapi.ContainerState_CONTAINER_EXITED, n.stamp(), code
	n.cfg.Logger.Debug("container exited", "container", c.object, "containerID", c.id, "exitCode", code)
	n.emit(c.id, c.pod, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.finishedAt)
}

// kill ends a running container at once with the given exit code. It ends a container in the state
// UNKNOWN with exit code 255. It does nothing in other states.
func (n *Node) kill(c *container, code int32) {
	switch c.state {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		n.exit(c, code)
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		n.exit(c, exitUnknown)
	default:
	}
}

// StopContainer sends SIGTERM, unless an earlier call has sent SIGTERM. It waits up to timeout
// seconds on the node's clock, and then kills the container if the container still runs. A timeout
// of 0 or less kills at once. StopContainer blocks until the container has ended. If ctx ends
// first, it returns an error and does not kill the container. It succeeds if the container does not
// run or does not exist.
func (n *Node) StopContainer(ctx context.Context, containerID string, timeout int64) error {
	if err := n.enter(ctx, "StopContainer", containerID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return nil
	}
	if !c.running() || timeout <= 0 {
		n.kill(c, exitKilled)
		return nil
	}
	if !c.termSent {
		c.termSent = true
		if e, ok := c.program.termEnd(); ok {
			n.endAt(c, n.now.Add(e.after), e)
		}
	}
	// Use a timer of the node, so that any call after the timeout sees that the container
	// was killed at that time.
	killer := n.plan(n.now.Add(seconds(timeout)), func() {
		if c.running() {
			n.exit(c, exitKilled)
		}
	})
	defer n.timers.remove(killer)
	return n.await(ctx, func() bool { return !c.running() })
}

// seconds converts seconds to a Duration. A value that would overflow becomes the largest
// number of whole seconds.
func seconds(s int64) time.Duration {
	const limit = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(s, limit)) * time.Second
}

// RemoveContainer removes a container. It kills the container first if it runs.
func (n *Node) RemoveContainer(ctx context.Context, containerID string) error {
	if err := n.enter(ctx, "RemoveContainer", containerID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	if c, ok := n.containers.byID[containerID]; ok {
		n.removeContainer(c)
	}
	return nil
}

func (n *Node) removeContainer(c *container) {
	n.kill(c, exitKilled)
	n.forgetContainer(c)
	n.emit(c.id, c.pod, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, n.stamp())
}

func (n *Node) forgetContainer(c *container) {
	n.timers.remove(c.end)
	n.timers.remove(c.oom)
	n.timers.remove(c.writes)
	n.closePorts(c)
	n.containers.remove(c)
	delete(n.reserved, c.name)
	if i := slices.Index(c.pod.containers, c); i >= 0 {
		c.pod.containers = slices.Delete(c.pod.containers, i, i+1)
	}
}

// ListContainers returns containers in the order of their creation.
func (n *Node) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return n.listContainers(ctx, "ListContainers", filter)
}

func (n *Node) listContainers(ctx context.Context, method string, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return n.answerContainers(filter, n.selectContainers(filter)), nil
}

// ContainerStatus returns the status of a container. A verbose status contains no
// additional information.
func (n *Node) ContainerStatus(ctx context.Context, containerID string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	if err := n.enter(ctx, "ContainerStatus", containerID, ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return nil, errNotFound("an error occurred when try to find container %q: not found", containerID)
	}
	return answerStatus(n, &runtimeapi.ContainerStatusResponse{Status: n.status(c, c.life)}), nil
}

// UpdateContainerResources sets the resources whose fields are not zero. All other
// resources of the container stay unchanged.
func (n *Node) UpdateContainerResources(ctx context.Context, containerID string, resources *runtimeapi.ContainerResources) error {
	if err := n.enter(ctx, "UpdateContainerResources", containerID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	c, ok := n.containers.byID[containerID]
	if !ok {
		return errNotFound("failed to find container: %q: not found", containerID)
	}
	updated := proto.CloneOf(c.resources)
	if updated == nil {
		updated = &runtimeapi.ContainerResources{}
	}
	if len(resources.GetLinux().GetHugepageLimits()) > 0 && updated.GetLinux() != nil {
		updated.Linux.HugepageLimits = nil // proto.Merge would append
	}
	proto.Merge(updated, resources)
	c.resources = updated
	n.planOOM(c)
	return nil
}
