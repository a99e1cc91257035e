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

// Images makes images present; images.Manager has it.
type Images interface {
	Ensure(ctx context.Context, req images.Request) (images.Result, error)
	Forget(pod types.UID)
}

// Volumes makes the volumes of pods ready and takes them away; volumes.Manager has
// it. Each call can be repeated.
type Volumes interface {
	// Unsupported names every volume that can't be made ready, or returns nil.
	Unsupported(pod *corev1.Pod) error
	// Mount returns where on the node each volume is that the pod's containers
	// use, but those that are images, and which of them are read-only whatever containers
	// ask for. One that is ready already is no error, also
	// if it can't be brought up to date: Refresh returns that.
	Mount(ctx context.Context, pod *corev1.Pod) (paths map[string]string, readOnly map[string]bool, err error)
	// Refresh brings up to date what the pod's volumes show.
	Refresh(ctx context.Context, pod *corev1.Pod) error
	// Unmount removes all of a pod's volumes; there may be none.
	Unmount(ctx context.Context, uid types.UID) error
	// Pods are those that may have volumes now.
	Pods() ([]types.UID, error)
}

// PodCgroups keeps a cgroup for each pod; cgroups.Cgroupfs has it.
type PodCgroups interface {
	// Ensure makes the pod's cgroup, with its limits, and returns the CRI's
	// cgroup_parent. quotaPeriod is the period of CPU quotas; zero: there are none.
	Ensure(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) (parent string, err error)
	// Update sets the limits again, during a resize.
	Update(ctx context.Context, pod *corev1.Pod, quotaPeriod time.Duration) error
	// Remove removes it; there may be none. It is tried again after an error.
	Remove(ctx context.Context, uid types.UID) error
}

// Store keeps values by key. Get of an unknown key returns an error that is fs.ErrNotExist,
// Put replaces a value whole or not at all, and Delete of an unknown key is no error. The
// stores of package agent/state are two.
//
// A store may have a method PutUnsynced with the signature of Put, whose value may be lost
// or damaged if the machine loses power. The Runner prefers it.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
}

// unsynced is what a [Store] may have besides.
type unsynced interface {
	PutUnsynced(ctx context.Context, key string, value []byte) error
}

// EventRecorder takes events about pods; client-go's recorder fits.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// DefaultPostStartTimeout is how long a postStart hook may take by default. The
// kubelet waits for ever.
const DefaultPostStartTimeout = 15 * time.Minute

// Config configures a [Runner].
type Config struct {
	// Policy has the settings that programs leave to their users.
	Policy

	// Sandboxes and Containers are the runtime, and Images pulls for it. Required.
	Sandboxes  Sandboxes
	Containers Containers
	Images     Images
	// Volumes makes pods' volumes ready. Nil: only volumes that are images work.
	Volumes Volumes
	// PodCgroups keeps pods' cgroups. Nil: the runtime puts containers where it
	// likes, and nothing limits a pod as a whole.
	PodCgroups PodCgroups
	// UserIDs are what pods with user namespaces get. Nil: no pod can have one.
	UserIDs *IDRanges
	// Hooks runs postStart and preStop hooks. Nil: they are passed over.
	Hooks *lifecycle.HookRunner
	// PostStartTimeout is how long a postStart hook may take, on which the pod's
	// other containers wait. Default [DefaultPostStartTimeout].
	PostStartTimeout time.Duration
	// Resizer changes resources in place. Nil: they stay as containers were made.
	Resizer Resizer
	// Resized is called after the Resizer has changed something of a pod. No list of the
	// runtime shows that, so a cache of statuses has to inspect the pod again:
	// pleg.Generator's RequestReinspect fits. It must not block. Optional.
	Resized func(types.UID)
	// Inject returns what a container gets in addition to its spec; resources.Combine
	// makes it of allocators. It is called before each instance is created: an error is
	// the container's CreateContainerConfigError. And it is called in each turn for
	// each container that runs: its CPUs and memory nodes are changed if they are
	// not those that it was given last, as far as that is known, and an error leaves them
	// as they are. It needs a Resizer. Pods may ask for extended resources that
	// [Facts].Allocatable has. Nil: nothing.
	Inject func(context.Context, resources.ContainerRequest) (resources.Injection, error)
	// Probes says what probing found of the container of that id, see
	// [Input.Probes]. Nil: nobody probes.
	Probes func(id string) ProbeResults
	// Refresh looks at the pod in the runtime now and returns what it saw; it is
	// asked after a kill, because a runtime's word that something stopped is
	// checked. The workers' cache must have the same then. Required; pleg's RelistPod and
	// podcache's GetNewerThan make it.
	Refresh func(context.Context, types.UID) (*podcache.Status, error)
	// ParallelStarts is how many pods the runtime is asked to start at once, from
	// the sandbox to the last container; others wait in the order in which they
	// came. One that takes longer than a second holds up nobody any more, so that it
	// bounds how starts compete for the processors, not for a slow network or a
	// registry. Default three for each processor; an agent whose runtime is on
	// another machine may want more.
	ParallelStarts int
	// Exited returns a channel that is closed when the container of that id has
	// ended, which ends its hooks. Nil, or a nil channel: nobody tells.
	Exited func(id string) <-chan struct{}
	// LogRoot is the folder under which container logs go, one folder a pod, as
	// the kubelet lays them out in /var/log/pods. It is made if it is missing;
	// it may be a symbolic link, but none below it is followed out of it. Empty:
	// containers have no logs, so that the runtime discards what they write,
	// FallbackToLogsOnError finds no termination message, and the restart count of
	// a container that the runtime has forgotten begins at zero; otherwise absolute.
	LogRoot string
	// ContainerLogs is the folder with a link to the log of each container, as the
	// kubelet makes them in /var/log/containers, where log shippers look. It is made if
	// it is missing; containergc removes the links, see containergc.Config.ContainerLogs.
	// Empty: there are no links; otherwise absolute, with a LogRoot.
	ContainerLogs string
	// RootDir is the folder of the other files of pods, below pods/UID as in the
	// kubelet's /var/lib/kubelet: hosts files, termination messages, and sub-paths. It is
	// made if it is missing. Empty: there are none of these; otherwise absolute.
	RootDir string
	// SeccompRoot is the folder of the seccomp profiles of type Localhost. Empty: there
	// are none; otherwise absolute.
	SeccompRoot string
	// State keeps records of pods by the keys "pods/<UID>/ending", when a pod that ends
	// must have ended, and "pods/<UID>/resources", which resources were enforced last.
	// [Runner.Leftovers] finds those of an agent before this one by the pod's folder below
	// RootDir. Nil: they are in memory only, and end with the agent.
	State Store
	// Agent is the name that marks what this Runner makes, as the label
	// io.kubeparts.agent. Required.
	Agent string
	// Facts returns what the node is now; it is called in each turn. Nil: nothing is
	// known of the node.
	Facts func() Facts
	// RestartBackoff delays restarts. Default: the kubelet's, 10 s doubling to
	// 5 min.
	RestartBackoff *lifecycle.Backoff
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
	// SandboxStarted is called after every try to make a pod's sandbox, with why it
	// failed: the kubelet's started_pods_total and started_pods_errors_total.
	SandboxStarted func(pod *corev1.Pod, err error)
	// ContainerStarted is called after every try to start a container, its postStart
	// hook included: the kubelet's started_containers_total and
	// started_containers_errors_total. One that only backs off is not tried.
	ContainerStarted func(ContainerStart)
}

// A ContainerStart is a try to start a container.
type ContainerStart struct {
	// Pod is the pod, not to be modified, and Start what was to be started and why.
	Pod *corev1.Pod
	Start
	// Code is why it failed, as the pod's status shows it, such as
	// [CreateContainerError]. It is empty after a success, and when the turn was
	// called off.
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
		errs = append(errs, errors.New("field ContainerLogs: there are no logs to link to without a LogRoot"))
	}
	if c.Inject != nil && c.Resizer == nil {
		errs = append(errs, errors.New("field Inject: the CPUs of running containers can't be changed without a Resizer"))
	}
	if c.PostStartTimeout < 0 {
		errs = append(errs, fmt.Errorf("field PostStartTimeout: %v is negative", c.PostStartTimeout))
	}
	if c.ParallelStarts < 0 {
		errs = append(errs, fmt.Errorf("field ParallelStarts: %d is negative", c.ParallelStarts))
	}
	return errors.Join(append(errs, c.Policy.Validate())...)
}
