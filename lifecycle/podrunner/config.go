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

// Sandboxes contains the runtime's methods for pod sandboxes that a Runner
// calls. cri.RuntimeService implements Sandboxes.
type Sandboxes interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, runtimeHandler string) (string, error)
	StopPodSandbox(ctx context.Context, podSandboxID string) error
	RemovePodSandbox(ctx context.Context, podSandboxID string) error
	PodSandboxStatus(ctx context.Context, podSandboxID string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
}

// Containers contains the runtime's methods for containers that a Runner calls.
// cri.RuntimeService implements Containers.
type Containers interface {
	CreateContainer(ctx context.Context, podSandboxID string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, containerID string) error
	StopContainer(ctx context.Context, containerID string, timeout int64) error
	RemoveContainer(ctx context.Context, containerID string) error
}

// Images pulls missing images. images.Manager implements Images.
type Images interface {
	Ensure(ctx context.Context, req images.Request) (images.Result, error)
	Forget(pod types.UID)
}

// Volumes mounts and unmounts the volumes of pods. volumes.Manager implements
// Volumes. Every method is idempotent.
type Volumes interface {
	// Unsupported returns an error that names every unsupported volume, or nil.
	Unsupported(pod *corev1.Pod) error
	// Mount mounts the volumes that the pod's containers use, except image
	// volumes. paths are the paths of the volumes on the node, by volume name.
	// readOnly contains the names of the volumes that are read-only even if a
	// container requests write access. If the contents of a mounted volume
	// can't be updated, Mount does not return an error; Refresh does.
	Mount(ctx context.Context, pod *corev1.Pod) (paths map[string]string, readOnly map[string]bool, err error)
	// Refresh updates the contents of the pod's mounted volumes.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// Unmount removes all volumes of a pod. It returns nil if the pod has no
	// volumes.
	Unmount(ctx context.Context, uid types.UID) error
	// Pods returns the pods that may have volumes on the node.
	Pods() ([]types.UID, error)
}

// PodCgroups manages a cgroup for each pod. cgroups.Cgroupfs implements
// PodCgroups.
type PodCgroups interface {
	// Ensure creates the pod's cgroup, sets its limits, and returns the
	// cgroup_parent of the pod's sandbox for the CRI. quotaPeriod is the period
	// of CPU quotas; zero means no quotas.
	Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error)
	// Update sets the limits of the pod's cgroup again during a resize.
	Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error
	// Remove removes the pod's cgroup. It returns nil if the cgroup does not
	// exist. After an error, the next cleanup of the pod calls Remove again.
	Remove(ctx context.Context, uid types.UID) error
}

// Store stores values by key. Get of an unknown key returns an error that wraps
// fs.ErrNotExist, Put replaces a value atomically, and Delete of an unknown key
// returns nil. Package agent/state has two implementations.
//
// A Store may also have a method PutUnsynced with the signature of Put. A value
// that was stored with PutUnsynced may be lost or damaged if the machine loses
// power. The Runner calls PutUnsynced instead of Put if the Store has this
// method.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
}

// unsynced is the optional method of a [Store].
type unsynced interface {
	PutUnsynced(ctx context.Context, key string, value []byte) error
}

// EventRecorder records events about pods. The recorder of client-go implements
// EventRecorder.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultPostStartTimeout is the default of [Config].PostStartTimeout. The
// kubelet does not limit the duration of a postStart hook.
const DefaultPostStartTimeout = 15 * time.Minute

// Config configures a [Runner].
type Config struct {
	// Policy holds the settings that agents usually let their users choose.
	Policy

	// Sandboxes and Containers call the runtime, and Images pulls images for
	// the runtime. Required.
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	// Volumes mounts the volumes of pods. Nil: only image volumes work.
	Volumes Volumes
	// PodCgroups manages the cgroups of pods. Nil: the runtime chooses the
	// cgroups of containers, and pods as a whole have no limits.
	PodCgroups PodCgroups
	// UserIDs allocates the IDs of pods with user namespaces. Nil: these pods
	// are not supported.
	UserIDs *IDRanges
	// Hooks runs postStart and preStop hooks. Nil: hooks are skipped.
	Hooks *lifecycle.HookRunner
	// PostStartTimeout is how long a postStart hook may run. The Runner starts
	// the next containers of the pod after the hook. Default
	// [DefaultPostStartTimeout].
	PostStartTimeout time.Duration
	// Resizer changes resources in place. Nil: resources of existing containers
	// do not change.
	Resizer Resizer
	// Resized is called after the Resizer has changed a pod. The runtime's
	// lists do not show changes of resources. A cache of statuses must
	// therefore inspect the pod again, for example with RequestReinspect of
	// pleg.Generator. Resized must not block. Optional.
	Resized func(types.UID)
	// Inject returns what a container gets in addition to its spec.
	// resources.Combine makes an Inject function from allocators.
	//
	// The Runner calls Inject before it creates an instance of a container. If
	// Inject returns an error, the container waits with the reason
	// CreateContainerConfigError.
	//
	// The Runner also calls Inject in each sync for each running container. If
	// Inject then returns CPUs or memory nodes that differ from the container's
	// last known values, the Runner assigns the returned values to the
	// container. If Inject returns an error, the Runner does not change the
	// running container.
	//
	// Inject needs a Resizer. If Inject is set, pods may request extended
	// resources that are in [Facts].Allocatable. Nil: containers get only what
	// is in their spec.
	Inject func(context.Context, resources.ContainerRequest) (resources.Injection, error)
	// Probes returns the probe results of the container with the given ID, see
	// [Input.Probes]. Nil: no container is probed.
	Probes func(id string) ProbeResults
	// Refresh reads the current state of the pod from the runtime. The Runner
	// calls Refresh to verify that the containers of a pod have stopped. When
	// Refresh returns, the cache of the pod workers must contain the same
	// state. pleg's RelistPod followed by podcache's GetNewerThan does this.
	// Required.
	Refresh func(context.Context, types.UID) (*podcache.Status, error)
	// ParallelStarts is the maximum number of pods that start in the runtime at
	// the same time. The start of a pod lasts from the creation of its sandbox
	// to the start of its last container. Other pods wait in order of arrival.
	// A start counts for at most one second; then the next pod may start. So
	// the limit reduces the competition for processors, but a slow network or
	// registry does not block other pods. Default: three for each processor. A
	// higher number is useful if the runtime is on another machine.
	ParallelStarts int
	// Exited returns a channel that is closed when the container with the given
	// ID has ended. When the channel is closed, the Runner cancels the hooks of
	// the container. If Exited or the channel is nil, the end of the container
	// does not cancel its hooks.
	Exited func(id string) <-chan struct{}
	// LogRoot is the directory of container logs, with one directory for each
	// pod, as in the kubelet's /var/log/pods. It is created if it is missing.
	// LogRoot may be a symbolic link, but links inside the directory are not
	// followed out of it. LogRoot is an absolute path, or empty. If LogRoot is
	// empty:
	//   - Containers have no logs, and the runtime discards their output.
	//   - FallbackToLogsOnError finds no termination message.
	//   - The restart count of a container that is no longer in the runtime
	//     starts at zero.
	LogRoot string
	// ContainerLogs is the directory with a link to the log of each container,
	// as in the kubelet's /var/log/containers, which log shippers read. It is
	// created if it is missing. containergc removes the links, see
	// containergc.Config.ContainerLogs. ContainerLogs is an absolute path, or
	// empty. An absolute path requires LogRoot. If ContainerLogs is empty, no
	// links are created.
	ContainerLogs string
	// RootDir is the directory of the other files of pods: hosts files,
	// termination messages, and sub-paths. These files are below
	// RootDir/pods/UID, as in the kubelet's /var/lib/kubelet. RootDir is
	// created if it is missing. It is an absolute path, or empty. If it is
	// empty, pods have none of these files.
	RootDir string
	// SeccompRoot is the directory of the seccomp profiles of type Localhost.
	// It is an absolute path, or empty. If it is empty, these profiles are not
	// supported.
	SeccompRoot string
	// State stores records of pods:
	//   - pods/<UID>/ending: the deadline of a terminating pod, and the
	//     containers whose preStop hook has ended
	//   - pods/<UID>/resources: the resources that were enforced last
	//   - pods/<UID>/replaced-sandbox: the sandbox that [Runner.Restart]
	//     replaces
	//
	// [Runner.Leftovers] does not read State. A pod may have left only records.
	// Leftovers finds such a pod if State stores the records as files below
	// RootDir, but does not find it otherwise. Nil: the records are only in
	// memory and are lost when the agent ends.
	State Store
	// Agent is the name of the agent. All sandboxes and containers that this
	// Runner creates have this name as the label io.kubeparts.agent. Required.
	Agent string
	// Facts returns the current facts about the node. The Runner calls Facts in
	// each sync. Nil: no facts are known.
	Facts func() Facts
	// RestartBackoff delays restarts. Default: the kubelet's back-off, which
	// starts at 10 s and doubles up to 5 min.
	RestartBackoff *lifecycle.Backoff
	// Events receives the events that the kubelet would record. The Runner
	// calls Events from several goroutines. Optional.
	Events EventRecorder
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
	// Observer receives plans and results. Optional.
	Observer Observer
}

// Observer holds optional callbacks. The Runner calls them during a sync,
// concurrently for different pods. They must not block.
type Observer struct {
	// Planned is called with every plan that is not empty, before the Runner
	// carries out the plan.
	Planned func(*corev1.Pod, Actions)
	// SandboxStarted is called after every attempt to create a pod's sandbox,
	// with the error of the attempt. It corresponds to the kubelet's metrics
	// started_pods_total and started_pods_errors_total.
	SandboxStarted func(pod *corev1.Pod, err error)
	// ContainerStarted is called after every attempt to start a container,
	// including its postStart hook. It corresponds to the kubelet's metrics
	// started_containers_total and started_containers_errors_total.
	// ContainerStarted is not called during the restart back-off of a
	// container.
	ContainerStarted func(ContainerStart)
	// Resized is called after each attempt to carry out the resizes in a plan.
	// It corresponds to the kubelet's metric pod_resize_duration_milliseconds.
	Resized func(pod *corev1.Pod, took time.Duration, err error)
}

// A ContainerStart describes an attempt to start a container.
type ContainerStart struct {
	// Pod is the pod. It must not be modified. Start is the planned start.
	Pod *corev1.Pod
	Start
	// Code is the reason of the failure in the pod's status, such as
	// [CreateContainerError]. It is empty if the start succeeded. It may also
	// be empty if the sync was cancelled.
	Code string
	// Err is nil if the start succeeded.
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
		errs = append(errs, errors.New("field ContainerLogs requires LogRoot: without LogRoot there are no log files to link to"))
	}
	if c.Inject != nil && c.Resizer == nil {
		errs = append(errs, errors.New("field Inject requires Resizer, which changes the CPUs of running containers"))
	}
	if c.PostStartTimeout < 0 {
		errs = append(errs, fmt.Errorf("field PostStartTimeout: %v is negative", c.PostStartTimeout))
	}
	if c.ParallelStarts < 0 {
		errs = append(errs, fmt.Errorf("field ParallelStarts: %d is negative", c.ParallelStarts))
	}
	return errors.Join(append(errs, c.Policy.Validate())...)
}
