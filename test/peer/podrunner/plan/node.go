package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// A node is a CRI runtime that is backed by a State. A started container runs until an event
// of the world ends it.
type node struct {
	cri.RuntimeService

	mu    sync.Mutex
	s     *State
	fails []string // calls that fail
	log   *record
}

// The annotations that identify a container on both sides.
const (
	hashAnnotation         = "io.kubernetes.container.hash"
	definitionAnnotation   = "io.kubeparts.container.definition"
	restartCountAnnotation = "io.kubernetes.container.restartCount"
)

var errDrawn = errors.New("the runtime fails")

func (n *node) fail(call string) error {
	if slices.Contains(n.fails, call) {
		n.log.failures = append(n.log.failures, call)
		return errDrawn
	}
	return nil
}

// next returns a new name and its creation time.
func (s *State) next(prefix string) (id string, made time.Time) {
	s.Made++
	return prefix + "#" + strconv.Itoa(s.Made), s.Now.Add(time.Duration(s.Made) - time.Millisecond)
}

func (n *node) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (n *node) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log.sandbox = attemptText(config.GetMetadata().GetAttempt())
	if err := n.fail("RunPodSandbox"); err != nil {
		return "", err
	}
	return n.s.runSandbox(config.GetMetadata().GetAttempt()).ID, nil
}

func (s *State) runSandbox(attempt uint32) *Box {
	id, made := s.next("sandbox")
	b := &Box{ID: id, Attempt: attempt, Ready: true, Host: s.Pod.Spec.HostNetwork, Network: true, IP: "10.0.0.1", Created: made}
	s.Boxes = append(s.Boxes, b)
	s.Cgroup = podCgroup(s.Pod)
	return b
}

func (n *node) StopPodSandbox(_ context.Context, id string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log.stopPod = true
	if err := n.fail("StopPodSandbox"); err != nil {
		return err
	}
	n.s.stopSandbox(id)
	return nil
}

// stopSandbox stops a sandbox and its running containers.
func (s *State) stopSandbox(id string) {
	for _, b := range s.Boxes {
		if b.ID == id {
			b.Ready = false
		}
	}
	for _, c := range s.Containers {
		if c.Box == id && c.State != created {
			s.end(c, 137, "Error")
		}
	}
}

// end ends a container that is running or in an unknown state.
func (s *State) end(c *Container, code int32, reason string) {
	if c.State == running || c.State == unknownState {
		c.State, c.Code, c.Reason, c.Finished = exited, code, reason, s.Now
	}
}

func (n *node) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.s.Boxes {
		if b.ID == id {
			return &runtimeapi.PodSandboxStatusResponse{Status: n.s.boxStatus(b)}, nil
		}
	}
	return nil, fmt.Errorf("sandbox %s does not exist", id)
}

func (s *State) metadata(attempt uint32) *runtimeapi.PodSandboxMetadata {
	return &runtimeapi.PodSandboxMetadata{Name: s.Pod.Name, Namespace: s.Pod.Namespace, Uid: string(s.Pod.UID), Attempt: attempt}
}

func boxState(b *Box) runtimeapi.PodSandboxState {
	if b.Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// boxStatus returns the CRI status of a sandbox.
func (s *State) boxStatus(b *Box) *runtimeapi.PodSandboxStatus {
	status := &runtimeapi.PodSandboxStatus{Id: b.ID, Metadata: s.metadata(b.Attempt), State: boxState(b), CreatedAt: b.Created.UnixNano()}
	if !b.NoLinux {
		network := runtimeapi.NamespaceMode_POD
		if b.Host {
			network = runtimeapi.NamespaceMode_NODE
		}
		status.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: network}}}
	}
	if b.Network {
		status.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: b.IP}
	}
	return status
}

func (n *node) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (all []*runtimeapi.PodSandbox, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, b := range n.s.Boxes {
		all = append(all, &runtimeapi.PodSandbox{
			Id: b.ID, Metadata: n.s.metadata(b.Attempt), State: boxState(b), CreatedAt: b.Created.UnixNano(), Labels: n.s.labels(""),
		})
	}
	return all, nil
}

func (s *State) labels(container string) map[string]string {
	labels := map[string]string{
		kubelettypes.KubernetesPodNameLabel: s.Pod.Name, kubelettypes.KubernetesPodNamespaceLabel: s.Pod.Namespace, kubelettypes.KubernetesPodUIDLabel: string(s.Pod.UID),
	}
	if container != "" {
		labels[kubelettypes.KubernetesContainerNameLabel] = container
	}
	return labels
}

func (n *node) ListContainers(context.Context, *runtimeapi.ContainerFilter) (all []*runtimeapi.Container, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.s.Containers {
		all = append(all, &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.Box, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Attempt)},
			Image: &runtimeapi.ImageSpec{Image: c.From.Image}, State: c.State, CreatedAt: c.Created.UnixNano(), Labels: n.s.labels(c.Name),
		})
	}
	return all, nil
}

func (n *node) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.s.container(id)
	if c == nil {
		return nil, fmt.Errorf("container %s does not exist", id)
	}
	return &runtimeapi.ContainerStatusResponse{Status: n.s.containerStatus(c, false)}, nil
}

// containerStatus returns the CRI status of a container. For our side it has the hash of the
// whole definition if our side created it.
func (s *State) containerStatus(c *Container, ours bool) *runtimeapi.ContainerStatus {
	annotations := map[string]string{restartCountAnnotation: strconv.Itoa(c.Attempt)}
	if c.Hash != NoHash {
		annotations[hashAnnotation] = strconv.FormatUint(container.HashContainer(&c.From), 16)
	}
	if ours && c.Hash == OwnHash {
		annotations[definitionAnnotation] = podspec.ContainerHash(&c.From)
	}
	status := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(c.Attempt)}, State: c.State,
		Image: &runtimeapi.ImageSpec{Image: c.From.Image}, ImageRef: c.From.Image, ExitCode: c.Code, Reason: c.Reason, Message: c.Message,
		CreatedAt: c.Created.UnixNano(), StartedAt: nano(c.Started), FinishedAt: nano(c.Finished),
		Labels: s.labels(c.Name), Annotations: annotations,
	}
	status.Resources = &runtimeapi.ContainerResources{Linux: c.Linux}
	return status
}

func nano(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
