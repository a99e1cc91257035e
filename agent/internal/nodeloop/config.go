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

// defaultMaxPods is the kubelet's default of maxPods.
const defaultMaxPods = 110

// Runtime is what the node loop calls of a container runtime. Each part is an interface of
// the manager that calls it.
type Runtime interface {
	StatusService
	ImageService
	containergc.Runtime
	containergc.Remover
	logrotate.Runtime
}

// StatusService returns what the runtime is and whether it is ready, a literal subset of
// cri.RuntimeService.
type StatusService interface {
	Version(ctx context.Context, apiVersion string) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// ImageService lists, pulls and removes images, a literal subset of
// cri.ImageManagerService.
type ImageService interface {
	images.ImageService
	imagegc.ImageService
}

// EventRecorder records events; client-go's recorder implements it. Several goroutines call
// it.
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
	// Host is the machine. Its Run is called by [Loop.Run]. Required.
	Host *host.Host
	// Pods is what the loop asks of the pod loop. Required.
	Pods Pods
	// State keeps what a restarted agent must know: the images that it has pulled, the ages
	// of images, the position in the kernel's log. Required.
	State state.Store

	// Version is the version of the agent, the node's kubeletVersion. Default: unknown.
	Version string
	// TakeOver has image garbage collection delete images that others have pulled.
	TakeOver bool
	// PodLogs is the folder of the logs of containers, and ContainerLogs the folder of the
	// links to them. Without PodLogs logs are neither rotated nor removed; without
	// ContainerLogs links are not removed.
	PodLogs, ContainerLogs string
	// MaxPods is how many pods the node runs. Default 110.
	MaxPods int
	// Reserved is what others than pods need of the node. It is subtracted from the capacity.
	Reserved corev1.ResourceList

	// Eviction, ImageGC, ContainerGC and Logs are the policies of the managers. Their zero
	// values are the managers' defaults; those of Eviction have no thresholds.
	Eviction    eviction.Policy
	ImageGC     imagegc.Policy
	ContainerGC containergc.Policy
	Logs        logrotate.Policy

	// NodeStatus changes each new node before it is returned by [Loop.Node]: it may add
	// resources, labels, conditions and ports. It gets a copy without its earlier changes. A
	// condition without times gets them. It does no I/O and does not call the Loop. After a
	// change of what it would do, call [Loop.Recompute]. Optional.
	NodeStatus func(*corev1.Node)
	// Objects, Services and RuntimeHandler are those of [podrunner.Facts]. Default of
	// RuntimeHandler: each handler of the runtime is a class of its own name. Optional.
	Objects        podspec.Objects
	Services       func(namespace string) ([]*corev1.Service, error)
	RuntimeHandler func(class string) (string, error)

	// Events records events about the node and about pods that are evicted or were hit by an
	// OOM kill. Optional.
	Events EventRecorder
	// Changed is called, from several goroutines, after what [Loop.Node] or [Loop.Checks]
	// return has changed. It must not block. Optional.
	Changed func()
	// PressureChanged is called after the conditions that [Loop.Admit] decides by have
	// changed. It must not block. Optional.
	PressureChanged func()
	// Observers are callbacks of the managers. Optional.
	Observers Observers
	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
}

// Pods is what the node loop asks of the pod loop. All functions are required, and may be
// called by several goroutines. Pods and statuses are not modified.
type Pods struct {
	// Active returns the pods that may run, with their newest status, as eviction ranks them.
	Active func() []*corev1.Pod
	// Evict ends a pod and starts to remove what is left of it. It returns when nothing of
	// the pod runs any more.
	Evict func(context.Context, *corev1.Pod, podworker.KillOptions) error
	// Observed returns what the runtime shows of each pod.
	Observed func() []*podcache.Status
	// Await returns what the runtime shows of a pod, as it was at a time or later.
	Await func(ctx context.Context, pod types.UID, since time.Time) (*podcache.Status, error)
	// Find returns a pod by its UID, as its source defines it.
	Find func(pod types.UID) (*corev1.Pod, bool)
	// CleanedUp reports whether nothing of a pod is left in the runtime and in the folder of
	// logs, and no removal of it is under way.
	CleanedUp func(pod types.UID) bool
	// ContentRemovable and RuntimeRemovable report what
	// [containergc.PodState].ShouldPodContentBeRemoved and ShouldPodRuntimeBeRemoved do. Both
	// are false for pods that the pod loop removes itself.
	ContentRemovable, RuntimeRemovable func(pod types.UID) bool
	// RunHook runs a hook of a container and records its failure.
	RunHook func(context.Context, lifecycle.Hook)
	// Ready returns nil once every source of pods has answered and the runtime was listed
	// once. Before that nothing is removed and no threshold is looked at.
	Ready func() error
	// RuntimeHealth returns why what the runtime shows may be out of date: PLEG's health.
	RuntimeHealth func() error
}

// Observers are optional callbacks of the managers. They must not block, and therefore not
// call the methods of the Loop that wait for others.
type Observers struct {
	Eviction    eviction.Observer
	ImageGC     imagegc.Observer
	ContainerGC containergc.Observer
	Logs        logrotate.Observer
	OOM         oomwatch.Observer
	// Killed is called for each OOM kill, after the event about it. [Loop.Victim] finds its
	// pod and container.
	Killed func(oomwatch.Kill)
}

// Check is the state of one part.
type Check struct {
	Name string
	// Err is why the part cannot do its work; nil if it can.
	Err error
	// Fatal reports that only a restart of the agent can help.
	Fatal bool
	// Notes are worth knowing although Err is nil.
	Notes []string
}

// Validate reports every problem with c, joined. Policies are checked by their managers in
// [New].
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
