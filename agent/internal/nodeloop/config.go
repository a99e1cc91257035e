package nodeloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/podcache"
)

// defaultMaxPods is the default of MaxPods, as in the kubelet.
const defaultMaxPods = 110

// Runtime has the methods of a container runtime that the node loop calls. Each embedded
// interface has the methods that one part of the loop calls.
type Runtime interface {
	StatusService
	ImageService
	containergc.Runtime
	containergc.Remover
	logrotate.Runtime
}

// StatusService returns the version and the status of the runtime. Its methods are methods of
// cri.RuntimeService, with the same signatures.
type StatusService interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// ImageService lists, pulls and removes images. Its methods are methods of
// cri.ImageManagerService, with the same signatures.
type ImageService interface {
	images.ImageService
	imagegc.ImageService
}

// EventRecorder records events. The recorder of client-go implements it. An EventRecorder must be
// safe for concurrent use.
type EventRecorder interface {
	eviction.EventRecorder
	eviction.AnnotatedEventRecorder
}

// Config configures a [Loop].
type Config struct {
	// NodeName is the name of the node. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Host has the functions of the machine. [Loop.Run] calls its function Run. Required.
	Host *host.Host
	// Pods has the functions of the pod loop that this loop calls. Required.
	Pods Pods
	// State stores the data that a restarted agent needs: the images that the agent has pulled,
	// the ages of images, the position in the kernel's log. Required.
	State state.Store

	// Version is the version of the agent. The node's status reports it as kubeletVersion.
	// Optional.
	Version string
	// TakeOver makes image garbage collection also delete images that other programs have
	// pulled. It also makes the loop report OOM kills in pods that the pod loop does not know.
	TakeOver bool
	// PodLogs is the folder of container logs, and ContainerLogs is the folder of the links to
	// these logs. If PodLogs is empty, the loop does not rotate logs, and does not remove logs or
	// links. If ContainerLogs is empty, the loop does not remove links.
	PodLogs, ContainerLogs string
	// MaxPods is the largest number of pods on the node. Default 110.
	MaxPods int
	// Reserved has the resources that are not for pods. The node's allocatable resources are its
	// capacity without Reserved and without the hard eviction thresholds.
	Reserved corev1.ResourceList

	// Eviction, ImageGC, ContainerGC and Logs are the policies of the managers. A zero policy
	// has the defaults of its manager. The zero value of Eviction has no thresholds.
	Eviction    eviction.Policy
	ImageGC     imagegc.Policy
	ContainerGC containergc.Policy
	Logs        logrotate.Policy

	// MaxNodeImages is the maximum number of images in the status of the node. Default
	// nodestatus.DefaultMaxImages; a negative number means all images.
	MaxNodeImages int
	// NodeStatus modifies each new node before [Loop.Node] returns the node. It may add resources,
	// labels, conditions and ports. Each call receives a copy of the node without the changes of
	// earlier calls. The loop sets the missing times of added conditions. NodeStatus must not do
	// I/O or call the Loop. Call [Loop.Recompute] when NodeStatus would make other changes than in
	// its last call. Optional.
	NodeStatus func(*corev1.Node)
	// Objects, Services and RuntimeHandler are the fields of [podrunner.Facts] with the same
	// names. The default of RuntimeHandler returns the handler with the same name as the
	// RuntimeClass. Optional.
	Objects        podspec.Objects
	Services       func(namespace string) ([]*corev1.Service, error)
	RuntimeHandler func(class string) (string, error)

	// Events records events about the node, about evicted pods, and about pods with an OOM kill.
	// Optional.
	Events EventRecorder
	// Changed is called when the result of [Loop.Node] or [Loop.Checks] has changed. It must not
	// block, and must be safe for concurrent use. Optional.
	Changed func()
	// PressureChanged is called when the pressure conditions that [Loop.Admit] uses have
	// changed. It must not block. Optional.
	PressureChanged func()
	// Observers has callbacks for the events of the managers. Optional.
	Observers Observers
	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
}

// Pods has the functions of the pod loop that the node loop calls. All functions are required
// and must be safe for concurrent use. The node loop does not modify the pods and statuses that
// they return.
type Pods struct {
	// Active returns the pods that may run, with their newest status, for eviction.
	Active func() []*corev1.Pod
	// Evict stops a pod and starts the removal of its data. It returns when none of the pod's
	// containers runs.
	Evict func(context.Context, *corev1.Pod, podworker.KillOptions) error
	// Observed returns the state of each pod in the runtime.
	Observed func() []*podcache.Status
	// Await waits until the known state of a pod is not older than the given time, and returns the
	// state.
	Await func(ctx context.Context, pod types.UID, since time.Time) (*podcache.Status, error)
	// Find returns the definition of a pod by its UID.
	Find func(pod types.UID) (*corev1.Pod, bool)
	// CleanedUp reports whether a pod has no sandbox, no container and no log left, and is not
	// being removed.
	CleanedUp func(pod types.UID) bool
	// ContentRemovable and RuntimeRemovable are the methods ShouldPodContentBeRemoved and
	// ShouldPodRuntimeBeRemoved of [containergc.PodState]. Both return false for pods that the
	// pod loop removes itself.
	ContentRemovable, RuntimeRemovable func(pod types.UID) bool
	// RunHook runs a hook of a container. It records a failure of the hook as an event.
	RunHook func(context.Context, lifecycle.Hook)
	// Ready returns nil when every source has defined its pods and the first relist is complete.
	// Until then, the node loop evaluates no thresholds, and removes no containers and no log
	// folders.
	Ready func() error
	// RuntimeHealth returns the result of the PLEG's health check: an error if the known state
	// of the runtime may be outdated.
	RuntimeHealth func() error
}

// Observers has optional callbacks for the events of the managers. The callbacks must not block,
// and must not call methods of the Loop that may block.
type Observers struct {
	Eviction    eviction.Observer
	ImageGC     imagegc.Observer
	ContainerGC containergc.Observer
	Logs        logrotate.Observer
	OOM         oomwatch.Observer
	// Killed is called for each reported OOM kill, after the events about the kill were recorded.
	// [Loop.Victim] returns the pod and the container of the kill.
	Killed func(oomwatch.Kill)
}

// Check is the state of one part of the loop.
type Check struct {
	Name string
	// Err is why the part does not work. Nil means that the part works.
	Err error
	// Fatal reports whether only a restart of the agent can repair the part.
	Fatal bool
	// Notes are further details. A part that works may also have notes.
	Notes []string
}

// Validate returns all problems with c as one error. [New] also returns the problems with the
// policies.
func (c Config) Validate() error {
	var errs []error
	required := func(name string, missing bool) {
		if missing {
			errs = append(errs, fmt.Errorf("field %s is required", name))
		}
	}
	required("NodeName", c.NodeName == "")
	required("Runtime", c.Runtime == nil)
	required("Host", c.Host == nil)
	required("Host.Facts", c.Host != nil && c.Host.Facts == nil)
	required("State", c.State == nil)
	required("Pods.Active", c.Pods.Active == nil)
	required("Pods.Evict", c.Pods.Evict == nil)
	required("Pods.Observed", c.Pods.Observed == nil)
	required("Pods.Await", c.Pods.Await == nil)
	required("Pods.Find", c.Pods.Find == nil)
	required("Pods.CleanedUp", c.Pods.CleanedUp == nil)
	required("Pods.ContentRemovable", c.Pods.ContentRemovable == nil)
	required("Pods.RuntimeRemovable", c.Pods.RuntimeRemovable == nil)
	required("Pods.RunHook", c.Pods.RunHook == nil)
	required("Pods.Ready", c.Pods.Ready == nil)
	required("Pods.RuntimeHealth", c.Pods.RuntimeHealth == nil)
	if c.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("field MaxPods: %d is negative", c.MaxPods))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Reserved)) {
		if q := c.Reserved[name]; q.Sign() < 0 {
			errs = append(errs, fmt.Errorf("field Reserved: %s of %s is negative", q.String(), name))
		}
	}
	return errors.Join(errs...)
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c Config) withDefaults() Config {
	if c.MaxPods == 0 {
		c.MaxPods = defaultMaxPods
	}
	if c.NodeStatus == nil {
		c.NodeStatus = func(*corev1.Node) {}
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.PressureChanged == nil {
		c.PressureChanged = func() {}
	}
	if c.Observers.Killed == nil {
		c.Observers.Killed = func(oomwatch.Kill) {}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}
