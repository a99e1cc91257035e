package podloop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/status"
)

// Config configures a [Loop].
type Config struct {
	// Name is the value of the label io.kubeparts.agent on each sandbox and container that this
	// agent creates. Required.
	Name string
	// NodeName is the name of the node. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Sources define the pods. If two sources define the same pod, the loop uses the definition
	// of the source that defined the pod first: see podmanager.Merge. Required.
	Sources []Source
	// State stores statuses, restart back-offs and deadlines of pods. Required.
	State state.Store
	// Node has the functions of the node that the loop calls. Its required fields must be set.
	Node Node

	// Lister lists sandboxes and containers in relists instead of Runtime. Optional.
	Lister pleg.Lister
	// TakeOver makes the loop manage all pods of the runtime, and not only pods that are
	// labelled with Name.
	TakeOver bool
	// OrdinaryStaticPods makes the loop evict and preempt static pods by their priority, as
	// other pods. Default: static pods are critical, as in the kubelet.
	OrdinaryStaticPods bool
	// Root is the absolute path of the folder of the files of pods: volumes, hosts files,
	// termination messages. If empty, pods have no hosts files and no termination messages, and
	// pods with volumes are refused, except volumes of the type image.
	Root string
	// PodLogs is the absolute path of the folder of container logs. If empty, containers have no
	// logs.
	PodLogs string
	// ContainerLogs is the absolute path of the folder with a link to the log of each container.
	// If empty, no links are created.
	ContainerLogs string
	// Pods, Images and Restarts are the policies for pods, image pulls and container restarts.
	Pods     podrunner.Policy
	Images   images.Policy
	Restarts lifecycle.BackoffConfig
	// SyncPeriod is the longest time between two syncs of a pod. Default 1m.
	SyncPeriod time.Duration
	// Cgroups manages the cgroups of pods. If nil, the runtime selects the parent cgroup of
	// containers.
	Cgroups Cgroups
	// Mounter mounts tmpfs. Default: the mounter of the operating system.
	Mounter volumes.Mounter
	// Volumes has plugins for volumes. They are tried before the plugins of the built-in volume
	// types.
	Volumes []volumes.Plugin
	// Credentials has providers of credentials for image pulls. The loop uses them after the
	// pod's imagePullSecrets.
	Credentials []images.CredentialProvider
	// Objects finds ConfigMaps and Secrets. Optional.
	Objects podspec.Objects
	// Tokens requests tokens of service accounts. Optional.
	Tokens podspec.TokenFunc
	// Admission has handlers that are called after the built-in handlers, in this order.
	Admission []lifecycle.NamedHandler
	// Allocators assign resources of the node to containers. They are called after Admission, in
	// this order.
	Allocators []resources.Allocator
	// Sink receives each changed pod status, in addition to State. Optional.
	Sink status.Sink
	// Dial opens the connections of probes and hooks. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Events receives the events that the kubelet would record. It must be safe for concurrent
	// use. Optional.
	Events EventRecorder
	// Changed is called when the result of [Loop.Pods] or [Loop.Checks] has changed. It must not
	// block, and must be safe for concurrent use. Optional.
	Changed func()
	// Observers are callbacks of all parts. Optional.
	Observers Observers
	// Random returns a random number in [0,1) for PLEG, workers and publishers. It must be safe
	// for concurrent use. Default: the generator of math/rand/v2.
	Random func() float64
	// Clock is the time source. Default: the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger

	// manual disables housekeeping. Tests set it to show that pods run correctly without
	// housekeeping.
	manual bool
}

// Runtime has the methods of cri.RuntimeService that the loop calls.
type Runtime interface {
	pleg.Runtime
	pleg.EventSource
	podrunner.Sandboxes
	podrunner.Containers
	podrunner.Resizer
	lifecycle.ExecRunner
}

// Cgroups manages the cgroups of pods and QoS classes. cgroups.Cgroupfs implements it.
type Cgroups interface {
	podrunner.PodCgroups
	// UpdateQoS sets the cgroup shares of the QoS classes.
	UpdateQoS(ctx context.Context, pods []*corev1.Pod) error
}

// EventRecorder records events about objects. The recorder of client-go implements it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Source defines pods. Pods of the source with the name podspec.SourceAPI behave as pods of an
// API server. Pods of any other source are static.
type Source struct {
	// Name is the name of the source. The loop sets the annotation kubernetes.io/config.source
	// of each pod to Name, and replaces any other value. Required.
	Name string
	// Run calls set with all pods of the source: first as soon as Run knows the pods, and then
	// after each change of the pods. Run returns when ctx is done. A call of set never waits. Run
	// must not modify the slice or the pods after the call. Required.
	Run func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error
}

// Node has the functions of the node that the loop calls. Unless documented otherwise, the
// functions must be safe for concurrent use, must return quickly, and must not call the loop.
type Node struct {
	// Facts returns the properties of the node that the configuration of pods needs. Required.
	Facts func() podrunner.Facts
	// Get returns the node for admission. It may block. Required.
	Get func(context.Context) (*corev1.Node, error)
	// Fresh returns the node from the API server. It may block. Default: Get.
	Fresh func(context.Context) (*corev1.Node, error)
	// Admit refuses pods while the node is under pressure. The loop does not call it for a pod
	// that already runs. Optional.
	Admit lifecycle.AdmitHandler
	// Images pulls images. Required.
	Images images.ImageService
	// Leases prevents the deletion of images that are about to be used. Optional.
	Leases images.Leases
	// Relisted is called after each relist of the runtime, with its error. Optional.
	Relisted func(err error)
	// EvaluateThresholds makes the node evaluate its eviction thresholds soon. It is called when
	// [Loop.Ready] returns nil for the first time, when a pod has ended, and when the record of a
	// pod is deleted. Optional.
	EvaluateThresholds func()
	// RuntimeName returns the name of the runtime, which is the scheme of container IDs.
	// Optional.
	RuntimeName func() string
}

// Observers has optional callbacks for the events of all parts. They must not block.
type Observers struct {
	// Pod is called for each change of a pod's state, one at a time and in order.
	Pod func(Move)
	// Edited is called when an admitted pod has a new definition with another spec. The new
	// definition has not gone through admission yet.
	Edited func(before, after *corev1.Pod)
	// Searched is called after each search of the disk for files of pods without a record. The
	// first argument is the number of pods with such files. The second argument is the number of
	// these pods that an earlier search has already found.
	Searched   func(found, remaining int)
	Admission  lifecycle.AdmitObserver
	Preemption lifecycle.NodeObserver
	Workers    podworker.Observer
	Runner     podrunner.Observer
	Hooks      lifecycle.HookObserver
	Images     images.Observer
	Volumes    volumes.Observer
	PLEG       pleg.Observer
	Probes     prober.Observer
	Statuses   status.Observer
	Publisher  status.PublisherObserver
}

// Validate returns all problems with c as one error. [New] also returns the problems that the
// managers find.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, field string) {
		if !ok {
			errs = append(errs, fmt.Errorf("field %s is required", field))
		}
	}
	require(c.Name != "", "Name")
	require(c.NodeName != "", "NodeName")
	require(c.Runtime != nil, "Runtime")
	require(len(c.Sources) > 0, "Sources")
	require(c.State != nil, "State")
	require(c.Node.Facts != nil, "Node.Facts")
	require(c.Node.Get != nil, "Node.Get")
	require(c.Node.Images != nil, "Node.Images")
	for i, s := range c.Sources {
		require(s.Name != "", fmt.Sprintf("Sources[%d].Name", i))
		require(s.Run != nil, fmt.Sprintf("Sources[%d].Run", i))
	}
	for i, a := range c.Allocators {
		require(a != nil, fmt.Sprintf("Allocators[%d]", i))
	}
	for _, f := range []struct{ field, dir string }{{"Root", c.Root}, {"PodLogs", c.PodLogs}, {"ContainerLogs", c.ContainerLogs}} {
		if f.dir != "" && !filepath.IsAbs(f.dir) {
			errs = append(errs, fmt.Errorf("field %s: %q is not absolute", f.field, f.dir))
		}
	}
	if c.SyncPeriod < 0 {
		errs = append(errs, fmt.Errorf("field SyncPeriod: %v is negative", c.SyncPeriod))
	}
	return errors.Join(errs...)
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Events == nil {
		c.Events = noEvents{}
	}
	if c.Observers.Pod == nil {
		c.Observers.Pod = func(Move) {}
	}
	if c.Observers.Edited == nil {
		c.Observers.Edited = func(*corev1.Pod, *corev1.Pod) {}
	}
	if c.Observers.Searched == nil {
		c.Observers.Searched = func(int, int) {}
	}
	if c.Node.Relisted == nil {
		c.Node.Relisted = func(error) {}
	}
	if c.Node.EvaluateThresholds == nil {
		c.Node.EvaluateThresholds = func() {}
	}
	if c.Node.RuntimeName == nil {
		c.Node.RuntimeName = func() string { return "" }
	}
	if c.Node.Admit == nil {
		c.Node.Admit = lifecycle.AdmitFunc(func(context.Context, lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
			return lifecycle.PodAdmitResult{Admit: true}
		})
	}
	return c
}

// noEvents drops events.
type noEvents struct{}

// Eventf implements [EventRecorder].
func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}
