package podrunner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// turn is one SyncPod: it does a plan and gathers what has to wait.
type turn struct {
	*Runner
	pod     *corev1.Pod
	status  *podcache.Status
	waiting map[string]corev1.ContainerStateWaiting
	retryAt time.Time
}

// errBackingOff is the cause of a retry that is nobody's failure.
var errBackingOff = errors.New("a container is backing off")

// do carries out the plan in the order of its fields. What can't be removed now
// holds up nothing: the next plan names it again.
func (t *turn) do(ctx context.Context, a Actions) error {
	grace := specGrace(t.pod)
	if a.StopPod != "" {
		if t.status.ReadySandbox() != nil && a.CreateSandbox != "" {
			t.event(t.pod, corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
		}
		if err := t.stopPod(ctx, t.pod, t.status, grace, a.StopPod); err != nil {
			return err
		}
	}
	if err := t.kill(ctx, a.Kill, grace); err != nil {
		return err
	}
	removed := t.remove(ctx, a.Remove)
	if len(a.Start) == 0 && a.CreateSandbox == "" {
		return removed
	}
	box, err := t.sandbox(ctx, a)
	if err != nil {
		return errors.Join(err, removed)
	}
	return errors.Join(t.startAll(ctx, a.Start, box), removed)
}

// kill stops single containers, at the same time.
func (t *turn) kill(ctx context.Context, kills []Kill, grace time.Duration) error {
	return inParallel(kills, func(k Kill) error {
		t.event(t.pod, corev1.EventTypeNormal, "Killing", "%s", k.Reason)
		return t.stopContainer(ctx, k.Name, k.ID, grace)
	})
}

// box is the sandbox that containers are made in.
type box struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	ips    []string
}

// sandbox makes the sandbox that the plan wants, or returns the present one.
func (t *turn) sandbox(ctx context.Context, a Actions) (*box, error) {
	if a.CreateSandbox == "" {
		newest := t.status.Sandboxes[0]
		return &box{
			id: newest.GetId(), ips: sandboxIPs(newest),
			config: SandboxConfig(t.pod, newest.GetMetadata().GetAttempt(), t.node()),
		}, nil
	}
	b := &box{config: SandboxConfig(t.pod, a.SandboxAttempt, t.node())}
	if err := os.MkdirAll(b.config.GetLogDirectory(), 0o755); err != nil {
		return nil, fmt.Errorf("make log directory: %w", err)
	}
	var err error
	if b.id, err = t.cfg.Sandboxes.RunPodSandbox(ctx, b.config, ""); err != nil {
		t.event(t.pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return nil, fmt.Errorf("create sandbox of pod %s: %w", podName(t.pod), err)
	}
	answer, err := t.cfg.Sandboxes.PodSandboxStatus(ctx, b.id, false)
	if err != nil {
		return nil, fmt.Errorf("status of sandbox %s: %w", b.id, err)
	}
	b.ips = sandboxIPs(answer.GetStatus())
	return b, nil
}

// startAll starts containers one after the other, in spec order. One that can't
// be started holds up no other.
func (t *turn) startAll(ctx context.Context, starts []Start, b *box) error {
	var errs []error
	for _, s := range starts {
		c := specContainer(t.pod, s)
		if c == nil {
			continue
		}
		err := t.start(ctx, c, s, b)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("start container %s of pod %s: %w", s.Name, podName(t.pod), err))
		if ctx.Err() != nil {
			break
		}
		t.failed(s.Name, err)
	}
	return errors.Join(errs...)
}

// failed records why a container was not started, for the status and the retry.
func (t *turn) failed(name string, err error) {
	e, ok := errors.AsType[*startError](err)
	if !ok {
		return
	}
	if t.waiting == nil {
		t.waiting = map[string]corev1.ContainerStateWaiting{}
	}
	t.waiting[name] = corev1.ContainerStateWaiting{Reason: e.reason, Message: e.text()}
	if !e.retryAt.IsZero() && (t.retryAt.IsZero() || e.retryAt.Before(t.retryAt)) {
		t.retryAt = e.retryAt
	}
}

func (t *turn) start(ctx context.Context, c *corev1.Container, s Start, b *box) error {
	if !s.After.IsZero() {
		t.cfg.RestartBackoff.Next(RestartKey(t.pod, c), s.After)
	}
	id := s.ID
	if id == "" {
		var err error
		if id, err = t.create(ctx, c, s.Attempt, b); err != nil {
			return err
		}
	}
	if err := t.cfg.Containers.StartContainer(ctx, id); err != nil {
		t.event(t.pod, corev1.EventTypeWarning, "Failed", "Error: %v", err)
		return &startError{reason: RunContainerError, message: fmt.Sprintf("failed to start container %q", c.Name), err: err}
	}
	t.event(t.pod, corev1.EventTypeNormal, "Started", "Container started")
	return nil
}

func (t *turn) create(ctx context.Context, c *corev1.Container, attempt uint32, b *box) (string, error) {
	image, err := t.ensureImage(ctx, t.pod, c, b.config)
	if err != nil {
		return "", err
	}
	config, err := ContainerConfig(t.pod, c, Instance{Attempt: attempt, Image: image, PodIPs: b.ips}, t.node())
	if err != nil {
		return "", &startError{reason: CreateContainerConfigError, message: "failed to generate the container's configuration", err: err}
	}
	logs := filepath.Join(b.config.GetLogDirectory(), filepath.Dir(config.GetLogPath()))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return "", &startError{reason: CreateContainerError, message: "failed to make the log directory", err: err}
	}
	id, err := t.cfg.Containers.CreateContainer(ctx, b.id, config, b.config)
	if err != nil {
		t.event(t.pod, corev1.EventTypeWarning, "Failed", "Error: %v", err)
		return "", &startError{reason: CreateContainerError, message: fmt.Sprintf("failed to create container %q", c.Name), err: err}
	}
	t.event(t.pod, corev1.EventTypeNormal, "Created", "Container created")
	return id, nil
}

func specContainer(pod *corev1.Pod, s Start) *corev1.Container {
	for c, init := range podspec.Containers(&pod.Spec) {
		if c.Name == s.Name && init == s.Init {
			return c
		}
	}
	return nil
}

func sandboxIPs(s *runtimeapi.PodSandboxStatus) []string {
	var ips []string
	if ip := s.GetNetwork().GetIp(); ip != "" {
		ips = append(ips, ip)
	}
	for _, a := range s.GetNetwork().GetAdditionalIps() {
		ips = append(ips, a.GetIp())
	}
	return ips
}
