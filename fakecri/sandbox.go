package fakecri

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is one pod sandbox. Only the fields condition and containers change.
type sandbox struct {
	id, name, object string
	seq              uint64
	config           *runtimeapi.PodSandboxConfig // the node's own copy
	handler          string
	createdAt        int64
	condition
	containers []*container // in the order of their creation
}

// condition is the part of a sandbox's state that changes. Events contain copies of it.
type condition struct {
	ready bool
	ip    string // empty on the host's network, and after the network was removed
}

func (s *sandbox) key() (string, uint64) { return s.id, s.seq }

func (s *sandbox) named() string { return s.object }

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// RunPodSandbox creates a sandbox that is ready. No other sandbox may have the same name,
// namespace, UID and attempt. The sandbox gets an address of Config.PodNetwork, unless it
// is on the host's network.
func (n *Node) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error) {
	if err := n.enter(ctx, "RunPodSandbox", "", podName(config)); err != nil {
		return "", err
	}
	defer n.mu.Unlock()
	meta := config.GetMetadata()
	if meta == nil {
		return "", errUnknown("sandbox config must include metadata")
	}
	security := config.GetLinux().GetSecurityContext()
	if err := checkUser(security.GetRunAsUser(), "", security.GetRunAsGroup()); err != nil {
		return "", err
	}
	seq, id := n.newID()
	name := joinName(meta.GetName(), meta.GetNamespace(), meta.GetUid(), meta.GetAttempt())
	if runtimeHandler != "" && !slices.Contains(n.cfg.RuntimeHandlers, runtimeHandler) {
		return "", errUnknown("unable to get OCI runtime for sandbox %q: no runtime for %q is configured", id, runtimeHandler)
	}
	if err := n.reserve(name, id); err != nil {
		return "", grpcstatus.Errorf(codes.FailedPrecondition, "failed to reserve sandbox name %q: %v", name, err)
	}
	s := &sandbox{
		id: id, seq: seq, name: name, object: podName(config), config: proto.CloneOf(config),
		handler: runtimeHandler, condition: condition{ready: true},
	}
	if security.GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE {
		ip, err := n.addresses.allocate()
		if err != nil {
			delete(n.reserved, name)
			return "", errUnknown("failed to setup network for sandbox %q: %v", id, err)
		}
		s.ip = ip
	}
	s.createdAt = n.stamp()
	n.sandboxes.add(s)
	n.emit(s.id, s, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, s.createdAt)
	n.emit(s.id, s, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, n.stamp())
	return id, nil
}

// StopPodSandbox kills the containers of a sandbox without a grace period, and removes the
// network of the sandbox. It also succeeds for a stopped sandbox and for an unknown id.
func (n *Node) StopPodSandbox(ctx context.Context, podSandboxID string) error {
	if err := n.enter(ctx, "StopPodSandbox", podSandboxID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	if s, ok := n.sandboxes.byID[podSandboxID]; ok {
		n.stopSandbox(s, exitKilled)
		n.dropNetwork(s)
	}
	return nil
}

// stopSandbox stops a sandbox and kills its containers.
func (n *Node) stopSandbox(s *sandbox, exitCode int32) {
	for _, c := range s.containers {
		n.kill(c, exitCode)
	}
	if s.ready {
		s.ready = false
		n.cfg.Logger.Debug("sandbox stopped", "pod", s.object, "sandboxID", s.id)
		n.emit(s.id, s, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, n.stamp())
	}
}

func (n *Node) dropNetwork(s *sandbox) {
	n.addresses.release(s.ip)
	s.ip = ""
}

// RemovePodSandbox removes a sandbox and its containers, running or not.
func (n *Node) RemovePodSandbox(ctx context.Context, podSandboxID string) error {
	if err := n.enter(ctx, "RemovePodSandbox", podSandboxID, ""); err != nil {
		return err
	}
	defer n.mu.Unlock()
	s, ok := n.sandboxes.byID[podSandboxID]
	if !ok {
		return nil
	}
	n.stopSandbox(s, exitKilled)
	for len(s.containers) > 0 {
		n.removeContainer(s.containers[0])
	}
	n.dropNetwork(s)
	n.emit(s.id, s, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT, n.stamp())
	n.forgetSandbox(s)
	return nil
}

func (n *Node) forgetSandbox(s *sandbox) {
	n.sandboxes.remove(s)
	delete(n.reserved, s.name)
}

// PodSandboxStatus returns the status of a sandbox. Like containerd it leaves the
// response's container statuses and timestamp empty. A verbose status contains no
// additional information.
func (n *Node) PodSandboxStatus(ctx context.Context, podSandboxID string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := n.enter(ctx, "PodSandboxStatus", podSandboxID, ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	s, ok := n.sandboxes.byID[podSandboxID]
	if !ok {
		return nil, errNotFound("an error occurred when try to find sandbox: %q: not found", podSandboxID)
	}
	return answerStatus(n, &runtimeapi.PodSandboxStatusResponse{Status: s.status(s.condition)}), nil
}

// ListPodSandbox returns sandboxes in the order of their creation.
func (n *Node) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return n.listPodSandbox(ctx, "ListPodSandbox", filter)
}

func (n *Node) listPodSandbox(ctx context.Context, method string, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := n.enter(ctx, method, "", ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	return n.answerSandboxes(filter, n.selectSandboxes(filter)), nil
}

// UpdatePodSandboxResources only checks that the sandbox exists. It does not store the new
// resources, because containerd returns them only in verbose statuses.
func (n *Node) UpdatePodSandboxResources(ctx context.Context, request *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	id := request.GetPodSandboxId()
	if err := n.enter(ctx, "UpdatePodSandboxResources", id, ""); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if _, ok := n.sandboxes.byID[id]; !ok {
		return nil, errNotFound("failed to find sandbox %q: not found", id)
	}
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// joinName returns the name that a sandbox or container reserves.
func joinName(name, namespace, uid string, attempt uint32) string {
	return strings.Join([]string{name, namespace, uid, strconv.FormatUint(uint64(attempt), 10)}, "_")
}
