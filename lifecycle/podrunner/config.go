package podrunner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/podcache"
)

// Sandboxes is what a Runner asks of a runtime for a pod's sandbox;
// cri.RuntimeService has it.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
}

// Containers is what a Runner asks of a runtime for containers;
// cri.RuntimeService has it.
type Containers interface {
	CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, containerID string) error
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
}

// Images is what a Runner asks of a runtime for images;
// cri.ImageManagerService has it.
type Images interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, podSandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
}

// EventRecorder takes events about pods; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Config configures a [Runner].
type Config struct {
	// Sandboxes, Containers and Images are the runtime. Required.
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	// Resizer changes resources in place. Nil: they stay as containers were made.
	Resizer Resizer
	// PodResources says what the cgroup of the pod as a whole has and is to have.
	// Nil, or nil answers: nobody keeps one.
	PodResources func(*corev1.Pod) (now, wanted *runtimeapi.LinuxContainerResources)
	// Probes says what probing found of the container of that id, see
	// [Input.Probes]. Nil: nobody probes.
	Probes func(id string) ProbeResults
	// Refresh looks at the pod in the runtime now and returns what it saw; it is
	// asked after a kill, because a runtime's word that something stopped is
	// checked. Required; pleg's RelistPod and podcache's GetNewerThan make it.
	Refresh func(context.Context, types.UID) (*podcache.Status, error)
	// LogRoot is the folder under which container logs go, one folder a pod, as
	// the kubelet lays them out in /var/log/pods. It is made if it is missing;
	// it may be a symbolic link, but none below it is followed out of it.
	// Required, absolute.
	LogRoot string
	// Agent is the name that marks what this Runner makes, as the label
	// io.kubeparts.agent. Required.
	Agent string
	// NodeName and HostIPs are what containers are told about the node.
	NodeName string
	HostIPs  []string
	// MemoryCapacityBytes is the node's memory, which a Burstable container's
	// oom_score_adj is relative to. Zero: Burstable ones get the highest, 999.
	MemoryCapacityBytes int64
	// RestartBackoff delays restarts; ImageBackoff delays pulls. Default: the
	// kubelet's, 10 s doubling to 5 min.
	RestartBackoff, ImageBackoff *lifecycle.Backoff
	// PullTimeout bounds one image pull. Default 15 min.
	PullTimeout time.Duration
	// Events takes the events that the kubelet would record, from several
	// goroutines. Optional.
	Events EventRecorder
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives what was decided and done. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They run inside a turn, for different pods
// at the same time, and must not block.
type Observer struct {
	// Planned is called with every plan that is not empty, before it is done.
	Planned func(*corev1.Pod, Actions)
	// Pulled is called after every image pull.
	Pulled func(image string, took time.Duration, err error)
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, field string) {
		if !ok {
			errs = append(errs, fmt.Errorf("field %s is required", field))
		}
	}
	require(c.Sandboxes != nil, "Sandboxes")
	require(c.Containers != nil, "Containers")
	require(c.Images != nil, "Images")
	require(c.Refresh != nil, "Refresh")
	require(c.Agent != "", "Agent")
	require(c.LogRoot != "", "LogRoot")
	if c.LogRoot != "" && !filepath.IsAbs(c.LogRoot) {
		errs = append(errs, fmt.Errorf("field LogRoot: %q is not absolute", c.LogRoot))
	}
	if c.MemoryCapacityBytes < 0 {
		errs = append(errs, fmt.Errorf("field MemoryCapacityBytes: %d is negative", c.MemoryCapacityBytes))
	}
	if c.PullTimeout < 0 {
		errs = append(errs, fmt.Errorf("field PullTimeout: %v is negative", c.PullTimeout))
	}
	return errors.Join(errs...)
}
