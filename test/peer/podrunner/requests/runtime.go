package requests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// start is the start time of every world.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A machine is a CRI runtime in memory. Each side has a separate machine. It records the
// requests that start sandboxes and containers, and responds as the world specifies.
type machine struct {
	world  *world
	facts  *recorder
	faults map[string]string // failures of this step, by call, or by call and name

	mu         sync.Mutex
	now        time.Time
	made       int64
	boxes      int        // how many sandboxes were made
	sandboxes  []*sandbox // oldest first
	containers []*instance
	present    map[string]bool // images, by id
}

type sandbox struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	state  runtimeapi.PodSandboxState
	made   int64
}

type instance struct {
	status *runtimeapi.ContainerStatus
	box    string
}

func newMachine(w *world, facts *recorder) *machine {
	m := &machine{world: w, facts: facts, now: start, present: map[string]bool{}}
	for _, image := range w.Images {
		m.present[image.id()] = image.Present
	}
	return m
}

// fault returns the error that the world specifies for a call in this step.
func (m *machine) fault(call, name string) error {
	if text, ok := m.faults[strings.TrimSpace(call+" "+name)]; ok {
		return errors.New(text)
	}
	return nil
}

// tick returns a unique time.
func (m *machine) tick() int64 {
	m.made++
	return m.now.UnixNano() + m.made
}

// runtimeService is the machine as the CRI's runtime service. Unexpected calls panic.
type runtimeService struct {
	cri.RuntimeService
	*machine
}

func (r runtimeService) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (r runtimeService) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.call("RunPodSandbox")
	r.facts.sandbox(config)
	r.facts.set("sandbox/runtime_handler", handler)
	if err := r.fault("RunPodSandbox", ""); err != nil {
		return "", err
	}
	b := &sandbox{id: fmt.Sprintf("sandbox-%d", r.boxes), config: config, made: r.tick()}
	r.boxes++
	r.sandboxes = append(r.sandboxes, b)
	return b.id, nil
}

func (r runtimeService) StopPodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.sandboxes {
		if b.id == id {
			b.state = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	return nil
}

func (r runtimeService) RemovePodSandbox(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes = slices.DeleteFunc(r.sandboxes, func(b *sandbox) bool { return b.id == id })
	return nil
}

func (r runtimeService) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*runtimeapi.PodSandbox
	for _, b := range r.sandboxes {
		all = append(all, &runtimeapi.PodSandbox{
			Id: b.id, Metadata: b.config.GetMetadata(), State: b.state, CreatedAt: b.made, Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
		})
	}
	return all, nil
}

func (r runtimeService) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.sandboxes {
		if b.id == id {
			return &runtimeapi.PodSandboxStatusResponse{Status: r.sandboxStatus(b)}, nil
		}
	}
	return nil, errors.New("no such sandbox")
}

func (m *machine) sandboxStatus(b *sandbox) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: b.id, Metadata: b.config.GetMetadata(), State: b.state, CreatedAt: b.made, Labels: b.config.GetLabels(), Annotations: b.config.GetAnnotations(),
		Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: b.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
	if m.world.Pod.Spec.HostNetwork || b.state != runtimeapi.PodSandboxState_SANDBOX_READY {
		return s
	}
	for i, ip := range m.world.PodIPs {
		if i == 0 {
			s.Network.Ip = ip
			continue
		}
		s.Network.AdditionalIps = append(s.Network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
	}
	return s
}

func (r runtimeService) CreateContainer(_ context.Context, box string, config *runtimeapi.ContainerConfig, boxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := config.GetMetadata().GetName()
	r.facts.call("CreateContainer " + name)
	r.facts.container(name, config, boxConfig)
	r.facts.set("create "+name+"/sandbox id", box)
	if err := r.fault("CreateContainer", name); err != nil {
		return "", err
	}
	s := &runtimeapi.ContainerStatus{
		Id: fmt.Sprintf("container-%s-%d-%s", name, config.GetMetadata().GetAttempt(), box), Metadata: config.GetMetadata(), CreatedAt: r.tick(),
		Image: config.GetImage(), ImageRef: config.GetImage().GetImage(), Labels: config.GetLabels(), Annotations: config.GetAnnotations(),
		Mounts: config.GetMounts(), LogPath: filepath.Join(boxConfig.GetLogDirectory(), config.GetLogPath()),
		Resources: &runtimeapi.ContainerResources{Linux: config.GetLinux().GetResources()},
	}
	r.containers = append(r.containers, &instance{status: s, box: box})
	return s.GetId(), nil
}

func (m *machine) instance(id string) (*instance, error) {
	for _, c := range m.containers {
		if c.status.GetId() == id {
			return c, nil
		}
	}
	return nil, errors.New("no such container " + id)
}

func (r runtimeService) StartContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.instance(id)
	if err != nil {
		return err
	}
	name := c.status.GetMetadata().GetName()
	r.facts.call("StartContainer " + name)
	if err := r.fault("StartContainer", name); err != nil {
		return err
	}
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, r.tick()
	// The runtime creates the log file, not its directory.
	return os.WriteFile(c.status.GetLogPath(), nil, 0o600)
}

func (r runtimeService) StopContainer(_ context.Context, id string, _ int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, err := r.instance(id); err == nil {
		r.end(c, 137)
	}
	return nil
}

// end ends a container that runs.
func (m *machine) end(c *instance, code int32) {
	if c.status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		c.status.State, c.status.ExitCode, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, m.tick()
		c.status.Reason = "Error"
		if code == 0 {
			c.status.Reason = "Completed"
		}
	}
}

func (r runtimeService) RemoveContainer(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers = slices.DeleteFunc(r.containers, func(c *instance) bool { return c.status.GetId() == id })
	return nil
}

func (r runtimeService) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*runtimeapi.Container
	for _, c := range r.containers {
		s := c.status
		all = append(all, &runtimeapi.Container{
			Id: s.GetId(), PodSandboxId: c.box, Metadata: s.GetMetadata(), Image: s.GetImage(), ImageRef: s.GetImageRef(), State: s.GetState(),
			CreatedAt: s.GetCreatedAt(), Labels: s.GetLabels(), Annotations: s.GetAnnotations(),
		})
	}
	return all, nil
}

func (r runtimeService) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.instance(id)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status}, nil
}

func (r runtimeService) UpdateContainerResources(_ context.Context, id string, resources *runtimeapi.ContainerResources) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := r.instance(id)
	if err != nil {
		return err
	}
	name := c.status.GetMetadata().GetName()
	r.facts.update(name, resources)
	if err := r.fault("UpdateContainerResources", name); err != nil {
		return err
	}
	merge(c.status.GetResources().GetLinux(), resources.GetLinux())
	return nil
}

// merge applies an update. As in a runtime, zero fields are not changed.
func merge(have, want *runtimeapi.LinuxContainerResources) {
	change := func(have *int64, want int64) {
		if want != 0 {
			*have = want
		}
	}
	change(&have.CpuShares, want.GetCpuShares())
	change(&have.CpuQuota, want.GetCpuQuota())
	change(&have.CpuPeriod, want.GetCpuPeriod())
	change(&have.MemoryLimitInBytes, want.GetMemoryLimitInBytes())
}

func (r runtimeService) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.update("the sandbox", req)
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// imageService is the machine as the CRI's image service.
type imageService struct {
	cri.ImageManagerService
	*machine
}

func (i imageService) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.fault("ImageStatus", ""); err != nil {
		return nil, err
	}
	image, ok := i.world.image(spec.GetImage())
	if !ok || !i.present[image.id()] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: image.status()}, nil
}

func (i imageService) PullImage(_ context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, boxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.facts.pull(spec, auth, boxConfig)
	image, ok := i.world.image(spec.GetImage())
	switch {
	case !ok:
		return "", fmt.Errorf("image %s: not found", spec.GetImage())
	case image.Fails != "":
		return "", errors.New(image.Fails)
	case image.User != "" && auth.GetUsername() != image.User:
		return "", errors.New("pull access denied")
	}
	i.present[image.id()] = true
	return image.id(), nil
}
