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
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/podcache"
)

// Sandboxes are the runtime's calls for pod sandboxes that a Runner needs;
// cri.RuntimeService implements it.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
}

// Containers are the runtime's calls for containers that a Runner needs;
// cri.RuntimeService implements it.
type Containers interface {
	CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, containerID string) error
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
}

// Images pulls images if they are missing; images.Manager implements it.
type Images interface {
	Ensure(ctx context.Context, req images.Request) (images.Result, error)
	Forget(pod types.UID)
}

// Volumes mounts and unmounts the volumes of pods; volumes.Manager implements
// it. Every method is idempotent.
type Volumes interface {
	// Unsupported returns an error that names every unsupported volume, or nil.
	Unsupported(pod *corev1.Pod) error
	// Mount mounts the volumes that the pod's containers use, except image
	// volumes. It returns the path of each on the node, and which of them are
	// read-only whatever the containers request. For volumes that are already
	// mounted, Mount does not report that their contents could not be updated;
	// Refresh does.
	Mount(ctx context.Context, pod *corev1.Pod) (paths map[string]string, readOnly map[string]bool, err error)
	// Refresh updates the contents of the pod's mounted volumes.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// Unmount removes all volumes of a pod. It returns nil if the pod has none.
	Unmount(ctx context.Context, uid types.UID) error
	// Pods returns the pods that may have volumes now.
	Pods() ([]types.UID, error)
}

// PodCgroups manages a cgroup for each pod; cgroups.Cgroupfs implements it.
type PodCgroups interface {
	// Ensure creates the pod's cgroup with its limits, and returns the
	// cgroup_parent for the CRI. quotaPeriod is the period of CPU quotas; zero
	// means no quotas.
	Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error)
	// Update sets the limits again during a resize.
	Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error
	// Remove removes the cgroup. It returns nil if it does not exist. It is retried
	// after an error.
	Remove(ctx context.Context, uid types.UID) error
}

// Store stores values by key. Get of an unknown key returns an error that is
// fs.ErrNotExist, Put replaces a value atomically, and Delete of an unknown key
// returns nil. Package agent/state has two implementations.
//
// A store may have a method PutUnsynced with the signature of Put, whose value
// may be lost or damaged if the machine loses power. The Runner prefers it.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
}

// unsynced is the optional method of a [Store].
type unsynced interface {
	PutUnsynced(ctx context.Context, key string, value []byte) error
}

// EventRecorder records events about pods; client-go's recorder implements it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultPostStartTimeout is the default of [Config].PostStartTimeout. The
// kubelet waits without a limit.
const DefaultPostStartTimeout = 15 * time.Minute

// Config configures a [Runner].
type Config struct {
	// Policy holds the settings that agents usually leave to their users.
	Policy

	// Sandboxes and Containers are the runtime, and Images pulls its images.
	// Required.
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	// Volumes mounts the volumes of pods. Nil: only image volumes work.
	Volumes Volumes
	// PodCgroups manages the cgroups of pods. Nil: the runtime chooses the
	// cgroups of containers, and pods as a whole have no limits.
	PodCgroups PodCgroups
	// UserIDs allocates the IDs of pods with user namespaces. Nil: such pods
	// are not supported.
	UserIDs *IDRanges
	// Hooks runs postStart and preStop hooks. Nil: hooks are skipped.
	Hooks *lifecycle.HookRunner
	// PostStartTimeout is how long a postStart hook may run. The pod's other
	// containers wait for it. Default [DefaultPostStartTimeout].
	PostStartTimeout time.Duration
	// Resizer changes resources in place. Nil: resources of existing containers
	// do not change.
	Resizer Resizer
	// Resized is called after the Resizer has changed a pod. The runtime's
	// lists do not show such a change, so a cache of statuses must inspect the
	// pod again: pleg.Generator's RequestReinspect does that. It must not
	// block. Optional.
	Resized func(types.UID)
	// Inject returns what a container gets in addition to its spec;
	// resources.Combine builds it from allocators. It is called before each
	// instance is created: an error becomes the container's
	// CreateContainerConfigError. It is also called in each sync for each
	// running container: its CPUs and memory nodes are changed if they differ
	// from the last known ones, and an error leaves them unchanged. It needs a
	// Resizer. Pods may request extended resources that are in
	// [Facts].Allocatable. Nil: nothing is added.
	Inject func(context.Context, resources.ContainerRequest) (resources.Injection, error)
	// Probes returns the probe results of the container with that ID, see
	// [Input.Probes]. Nil: no container is probed.
	Probes func(id string) ProbeResults
	// Refresh reads the current state of the pod from the runtime. It is called
	// after a kill to verify that the containers have stopped. The cache of the
	// pod workers must have the same state when it returns. Required; pleg's
	// RelistPod and podcache's GetNewerThan provide it.
	Refresh func(context.Context, types.UID) (*podcache.Status, error)
	// ParallelStarts is how many pods are started in the runtime at once, from
	// the sandbox to the last container; others wait in order of arrival. A
	// start that takes longer than a second gives its slot to the next pod. So
	// the limit reduces the competition for processors, and a slow network or
	// registry does not block other pods. Default: three for each processor; an
	// agent whose runtime is on another machine may want more.
	ParallelStarts int
	// Exited returns a channel that is closed when the container with that ID
	// has ended, which cancels its hooks. If Exited or the channel is nil, the
	// end of the container does not cancel its hooks.
	Exited func(id string) <-chan struct{}
	// LogRoot is the directory of container logs, with one directory for each
	// pod, as in the kubelet's /var/log/pods. It is created if it is missing.
	// It may be a symbolic link, but links inside it are not followed to the
	// outside. An absolute path, or empty: then containers have no logs, the
	// runtime discards their output, FallbackToLogsOnError finds no termination
	// message, and the restart count of a container that is no longer in the
	// runtime starts at zero.
	LogRoot string
	// ContainerLogs is the directory with a link to the log of each container,
	// as in the kubelet's /var/log/containers, which log shippers read. It is
	// created if it is missing. containergc removes the links, see
	// containergc.Config.ContainerLogs. An absolute path, which needs LogRoot,
	// or empty: then no links are made.
	ContainerLogs string
	// RootDir is the directory of the other files of pods, below pods/UID as in
	// the kubelet's /var/lib/kubelet: hosts files, termination messages, and
	// sub-paths. It is created if it is missing. An absolute path, or empty:
	// then pods have none of these.
	RootDir string
	// SeccompRoot is the directory of the seccomp profiles of type Localhost.
	// An absolute path, or empty: then such profiles are not supported.
	SeccompRoot string
	// State stores records of pods under the keys "pods/<UID>/ending", the
	// deadline of a terminating pod, and "pods/<UID>/resources", the resources
	// that were enforced last. [Runner.Leftovers] finds the records of an
	// earlier agent through the pod's directory below RootDir. Nil: the records
	// are in memory only and are lost with the agent.
	State Store
	// Agent is the name of the agent. Everything that this Runner creates has
	// it as the label io.kubeparts.agent. Required.
	Agent string
	// Facts returns the current facts about the node; it is called in each
	// sync. Nil: no facts are known.
	Facts func() Facts
	// RestartBackoff delays restarts. Default: the kubelet's, from 10 s
	// doubling up to 5 min.
	RestartBackoff *lifecycle.Backoff
	// Events receives the events that the kubelet would record, from several
	// goroutines. Optional.
	Events EventRecorder
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives plans and results. Optional.
	Observer Observer
}

// Observer holds optional callbacks. They are called during a sync,
// concurrently for different pods, and must not block.
type Observer struct {
	// Planned is called with every plan that is not empty, before it is carried
	// out.
	Planned func(*corev1.Pod, Actions)
	// SandboxStarted is called after every attempt to create a pod's sandbox,
	// with its error: the kubelet's started_pods_total and
	// started_pods_errors_total.
	SandboxStarted func(pod *corev1.Pod, err error)
	// ContainerStarted is called after every attempt to start a container,
	// including its postStart hook: the kubelet's started_containers_total and
	// started_containers_errors_total. A container that backs off is not an
	// attempt.
	ContainerStarted func(ContainerStart)
}

// A ContainerStart describes an attempt to start a container.
type ContainerStart struct {
	// Pod is the pod, which must not be modified. Start is the planned start.
	Pod *corev1.Pod
	Start
	// Code is the reason of the failure in the pod's status, such as
	// [CreateContainerError]. It is empty after a success, and when the sync
	// was cancelled.
	Code string
	// Err is nil after a success.
	Err error
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
	for field, dir := range map[string]string{
		"LogRoot": c.LogRoot, "ContainerLogs": c.ContainerLogs, "RootDir": c.RootDir, "SeccompRoot": c.SeccompRoot,
	} {
		if dir != "" && !filepath.IsAbs(dir) {
			errs = append(errs, fmt.Errorf("field %s: %q is not absolute", field, dir))
		}
	}
	if c.ContainerLogs != "" && c.LogRoot == "" {
		errs = append(errs, errors.New("field ContainerLogs: needs LogRoot, because there are no logs to link to without it"))
	}
	if c.Inject != nil && c.Resizer == nil {
		errs = append(errs, errors.New("field Inject: needs Resizer, because the CPUs of running containers can't be changed without it"))
	}
	if c.PostStartTimeout < 0 {
		errs = append(errs, fmt.Errorf("field PostStartTimeout: %v is negative", c.PostStartTimeout))
	}
	if c.ParallelStarts < 0 {
		errs = append(errs, fmt.Errorf("field ParallelStarts: %d is negative", c.ParallelStarts))
	}
	return errors.Join(append(errs, c.Policy.Validate())...)
}
