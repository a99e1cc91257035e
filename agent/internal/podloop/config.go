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
	// Name marks what this agent creates on the runtime, as the label io.kubeparts.agent.
	// Required.
	Name string
	// NodeName is the node's name. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Sources define the pods. Of two sources that define one pod the earlier one here wins.
	// Required.
	Sources []Source
	// State keeps statuses, restart back-offs and deadlines of pods. Required.
	State state.Store
	// Node is what the loop asks of the node. Required, with its required fields.
	Node Node

	// Lister lists in place of Runtime in relists. Optional.
	Lister pleg.Lister
	// TakeOver has the loop treat all pods of the runtime as this agent's.
	TakeOver bool
	// OrdinaryStaticPods has static pods evicted and preempted by their priority. Default:
	// static pods are critical, as in the kubelet.
	OrdinaryStaticPods bool
	// Root is the folder for what is kept for pods: volumes, hosts files, termination
	// messages. Empty: pods have none of them, and pods with volumes are refused. Otherwise
	// absolute.
	Root string
	// PodLogs is the folder of the logs of containers. Empty: containers have no logs.
	// Otherwise absolute.
	PodLogs string
	// ContainerLogs is the folder with a link to the log of each container. Empty: there are
	// no links. Otherwise absolute.
	ContainerLogs string
	// Pods, Images and Restarts are the policies of the managers of these names.
	Pods     podrunner.Policy
	Images   images.Policy
	Restarts lifecycle.BackoffConfig
	// SyncPeriod is the time between two syncs of a pod in which nothing happens. Default 1m.
	SyncPeriod time.Duration
	// Cgroups keeps the cgroups of pods. Nil: the runtime decides where containers go.
	Cgroups Cgroups
	// Mounter mounts tmpfs. Default: the system's.
	Mounter volumes.Mounter
	// Volumes are asked before the built-in types of volumes.
	Volumes []volumes.Plugin
	// Credentials are asked for credentials of images after the pod's pull secrets.
	Credentials []images.CredentialProvider
	// Objects finds ConfigMaps and Secrets. Optional.
	Objects podspec.Objects
	// Tokens requests tokens of service accounts. Optional.
	Tokens podspec.TokenFunc
	// Admission is asked after the built-in handlers, in this order.
	Admission []lifecycle.NamedHandler
	// Allocators are asked last, in this order, and give containers their shares.
	Allocators []resources.Allocator
	// Sink receives the status of each pod when it has changed, in addition to State. Optional.
	Sink status.Sink
	// Dial makes the connections of probes and hooks. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Events takes the events that the kubelet would record, from several goroutines. Optional.
	Events EventRecorder
	// Changed is called when [Loop.Pods] or [Loop.Checks] would return something else. It must
	// not block, and is called from several goroutines. Optional.
	Changed func()
	// Observers are callbacks of all parts. Optional.
	Observers Observers
	// Random returns random numbers from 0 up to 1, to several goroutines: it goes to PLEG,
	// workers and publisher. Default: that of math/rand/v2.
	Random func() float64
	// Clock is the time source. Default the system clock.
	Clock clock.Clock
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger

	// manual switches housekeeping off: tests show that the ordinary life of a pod does not
	// need it.
	manual bool
}

// Runtime is what the loop calls of cri.RuntimeService.
type Runtime interface {
	pleg.Runtime
	pleg.EventSource
	podrunner.Sandboxes
	podrunner.Containers
	podrunner.Resizer
	lifecycle.ExecRunner
}

// Cgroups keeps the cgroups of pods and of the classes of pods; cgroups.Cgroupfs has it.
type Cgroups interface {
	podrunner.PodCgroups
	// UpdateQoS sets the shares of the classes of pods.
	UpdateQoS(ctx context.Context, pods []*corev1.Pod) error
}

// EventRecorder records events about objects; client-go's recorder has it.
type EventRecorder interface {
	Eventf(object runtime.Object, eventtype, reason, messageFmt string, args ...any)
}

// Source defines pods. Pods of the source podspec.SourceAPI are as an API server has them; those
// of any other source are static.
type Source struct {
	// Name becomes the value of the annotation kubernetes.io/config.source of each pod,
	// whatever the pod has there. Required.
	Name string
	// Run calls set with all pods of the source: at first when it knows them, and again when
	// they have changed, until ctx is done. Set returns without waiting for anything. Neither
	// the slice nor the pods may be modified afterwards. Required.
	Run func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error
}

// Node is what the loop asks of the node. Its functions may be called by several goroutines at
// once, must be quick, and must not call the loop, unless they say otherwise.
type Node struct {
	// Facts returns what the configurations of pods take from the node. Required.
	Facts func() podrunner.Facts
	// Get returns the node as admission sees it. It may block. Required.
	Get func(context.Context) (*corev1.Node, error)
	// Fresh returns the node as the API server has it now. It may block. Default: Get.
	Fresh func(context.Context) (*corev1.Node, error)
	// Admit refuses pods while the node is short of something. It is not asked about a pod
	// that runs already. Optional.
	Admit lifecycle.AdmitHandler
	// Images pulls images. Required.
	Images images.ImageService
	// Leases keeps images that are about to be used. Optional.
	Leases images.Leases
	// Relisted is called after each relist of the runtime, with its error. Optional.
	Relisted func(err error)
	// Ended is called when a pod has ended or is gone. Optional.
	Ended func()
	// RuntimeName returns the name of the runtime, the scheme of container IDs. Optional.
	RuntimeName func() string
}

// Observers are optional callbacks of all parts. They must not block.
type Observers struct {
	// Pod is called for each change of a pod's state, one at a time and in order.
	Pod        func(Move)
	Admission  lifecycle.AdmitObserver
	Preemption lifecycle.NodeObserver
	Workers    podworker.Observer
	Runner     podrunner.Observer
	Hooks      lifecycle.HookObserver
	Images     images.Observer
	PLEG       pleg.Observer
	Probes     prober.Observer
	Statuses   status.Observer
	Publisher  status.PublisherObserver
}

// Validate reports every problem with c, joined. What the managers check by themselves is
// reported by [New].
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
	if c.Node.Relisted == nil {
		c.Node.Relisted = func(error) {}
	}
	if c.Node.Ended == nil {
		c.Node.Ended = func() {}
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
