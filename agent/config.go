package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/resources"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/status"
)

// DefaultMaxPods is the default of [Config].MaxPods, as in the kubelet.
const DefaultMaxPods = 110

// Config configures an [Agent]. The zero value of an optional field means its default. The agent
// retains the values to which the fields refer. Do not modify these values after [New].
type Config struct {
	// Name is the value of the label io.kubeparts.agent on each sandbox and container that this
	// agent creates. Agents that share a runtime must have different names. Name must be a valid
	// label value. Required.
	Name string
	// NodeName is the name of the node, a DNS subdomain. It appears in pods, events and the
	// node's status. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Sources define the pods of the node. When a source no longer defines a pod, the agent stops
	// the pod at once. If no source has defined a pod of an earlier agent yet, the pod keeps running
	// until every source has delivered its pods once. If two sources define the same pod, the agent
	// uses the definition of the source that defined the pod first. Required.
	Sources []Source

	// Lister lists sandboxes and containers for relists. If it is nil, relists call Runtime,
	// which uses more CPU time. The Client of package agent/cri has a method that returns a
	// Lister. Optional.
	Lister pleg.Lister
	// Host has the functions of the machine. Default: the result of [host.Local] with the
	// folders and eviction thresholds of this Config.
	Host *host.Host
	// Root is the absolute path of the folder of the agent's files for pods: volumes, hosts
	// files, termination messages, seccomp profiles. [Agent.Run] creates the folder if it does
	// not exist, and locks it until Run returns. If empty, pods have no hosts files and no
	// termination messages, and pods with volumes are refused, except volumes of the type image.
	Root string
	// PodLogs is the absolute path of the folder of container logs, such as /var/log/pods. The
	// agent removes folders in PodLogs that belong to no pod, so two agents must not share
	// PodLogs. If empty, containers have no logs, and no logs are rotated or removed.
	PodLogs string
	// ContainerLogs is the absolute path of a folder for log shippers, such as
	// /var/log/containers. The agent creates a link to the log of each container in this folder.
	// If empty, no links are created. It requires PodLogs.
	ContainerLogs string
	// State stores the data that a restarted agent needs: statuses, back-offs, ages of images,
	// pull records, the position in the kernel's log. Default: files below Root, or memory if
	// Root is empty.
	State state.Store
	// TakeOver makes the agent manage all pods of the runtime, as a kubelet does, and not only
	// pods that are labelled with its Name. The agent then also stops and removes pods of other
	// programs, unless a source defines them.
	TakeOver bool

	// Cluster finds the objects of the cluster to which pods refer. Optional.
	Cluster Cluster
	// Statuses receives each changed status of a pod. An example is [status.APIServer]. The
	// agent also stores each status in State. Optional.
	Statuses status.Sink
	// Events receives the events that a kubelet would record. It must be safe for concurrent
	// use. Optional.
	Events EventRecorder
	// MaxNodeImages is the maximum number of images in the node's status. Default
	// nodestatus.DefaultMaxImages; a negative number means all images.
	MaxNodeImages int
	// NodeStatus modifies the node that [Agent.Node] returns and that admission uses. For example,
	// it adds extended resources, labels, conditions or ports. The agent calls NodeStatus each time
	// that it computes the node, with a copy that NodeStatus may modify. NodeStatus must not do I/O
	// or call methods of the Agent. Call [Agent.SyncAll] when NodeStatus would make other changes
	// than in its last call. Extended resources also need an allocator: if Allocators is empty, the
	// agent refuses pods that request them. Optional.
	NodeStatus func(*corev1.Node)
	// Version is the version of the agent. The node's status reports it as kubeletVersion.
	// Optional.
	Version string

	// Reserved has the resources for the system and the agent. The allocatable resources of the
	// node do not include them. Optional.
	Reserved corev1.ResourceList
	// MaxPods is the largest number of pods that run at once. Default [DefaultMaxPods].
	MaxPods int
	// StaticPods decides whether pods of sources other than the API server are critical.
	// Default [CriticalStaticPods].
	StaticPods StaticPodPolicy
	// Pods is the policy for containers and sandboxes: DNS, sysctls, seccomp, limits.
	Pods podrunner.Policy
	// Eviction is the policy for evicting pods before the node runs out of a resource. Its zero
	// value has no thresholds; [eviction.ParseThresholds] without settings returns the
	// kubelet's defaults.
	Eviction eviction.Policy
	// ImageGC is the policy for removing unused images, and ContainerGC is the policy for
	// removing exited containers.
	ImageGC     imagegc.Policy
	ContainerGC containergc.Policy
	// Images is the policy for image pulls.
	Images images.Policy
	// Restarts is the back-off of container restarts. The default of its Clock is the Clock of
	// this Config.
	Restarts lifecycle.BackoffConfig
	// Logs is the policy for rotating the logs of running containers.
	Logs logrotate.Policy
	// SyncPeriod is the longest time between two syncs of a pod. Default 1m.
	SyncPeriod time.Duration
	// Cgroups makes the agent create a cgroup for each pod. If nil, the runtime selects the
	// parent cgroup of containers, and no cgroup limits a pod as a whole.
	Cgroups *cgroups.Config
	// EnforceAllocatable limits the resources of all pods together to the node's capacity
	// without Reserved. It sets the field Allocatable of Cgroups. It requires Cgroups.
	EnforceAllocatable bool

	// Admission has handlers that admit or refuse each pod after the built-in handlers. The
	// agent calls the handlers in this order and for one pod at a time. If a handler does not
	// return within 30 seconds, the agent cancels its context, and refuses the pod when the
	// handler returns. A handler that hangs delays only other admissions and the release of
	// allocations. The agent also calls the handlers when the spec of an admitted pod is edited.
	// If a handler refuses the edit, the previous version of the pod keeps running. Optional.
	Admission []lifecycle.NamedHandler
	// Allocators assign resources of the node, such as devices and CPUs, to containers. The
	// agent calls them after Admission, in this order. Optional.
	Allocators []resources.Allocator
	// Volumes has plugins for volumes. The first plugin that supports a volume handles the
	// volume. The plugins of the built-in volume types come last. Volumes requires Root.
	// Optional.
	Volumes []volumes.Plugin
	// Credentials has providers of credentials for image pulls. The agent uses them after the
	// pod's imagePullSecrets, in this order. Optional.
	Credentials []images.CredentialProvider
	// Observers are callbacks of all parts, for metrics and consoles. Optional.
	Observers Observers

	// Random returns a random number in [0,1). The agent uses random numbers to spread retries
	// and syncs over time. Random must be safe for concurrent use. Default: the generator of
	// math/rand/v2.
	Random func() float64
	// Clock is the time source. Default: the system clock.
	Clock clock.WithTicker
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
}

// StaticPodPolicy decides whether static pods are critical.
type StaticPodPolicy uint8

const (
	// CriticalStaticPods means that static pods are critical, as in the kubelet: the agent does
	// not evict static pods, admits them under pressure, and preempts other pods for them.
	CriticalStaticPods StaticPodPolicy = iota
	// OrdinaryStaticPods means that the priority of a static pod determines whether the pod is
	// evicted or preempted, as for other pods. Use it on nodes without an API server, on which
	// all pods are static.
	OrdinaryStaticPods
)

// Validate returns the problems with c as one error. It checks the policies of the managers only if
// all other fields are valid. It reads no file and starts nothing.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// problems returns the problems with those fields of c that no manager checks.
func (c Config) problems() error {
	var errs []error
	missing := func(field string) { errs = append(errs, fmt.Errorf("agent: %s is required", field)) }
	if c.Name == "" {
		missing("Name")
	}
	for _, problem := range validation.IsValidLabelValue(c.Name) {
		errs = append(errs, fmt.Errorf("agent: Name %q: %s", c.Name, problem))
	}
	if c.NodeName == "" {
		missing("NodeName")
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(c.NodeName) {
			errs = append(errs, fmt.Errorf("agent: NodeName %q: %s", c.NodeName, problem))
		}
	}
	if c.Runtime == nil {
		missing("Runtime")
	}
	errs = append(errs, c.sourceProblems()...)
	for _, f := range []struct{ field, path string }{{"Root", c.Root}, {"PodLogs", c.PodLogs}, {"ContainerLogs", c.ContainerLogs}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			errs = append(errs, fmt.Errorf("agent: %s %q is not an absolute path", f.field, f.path))
		}
	}
	if c.ContainerLogs != "" && c.PodLogs == "" {
		errs = append(errs, errors.New("agent: ContainerLogs needs PodLogs"))
	}
	if len(c.Volumes) > 0 && c.Root == "" {
		errs = append(errs, errors.New("agent: Volumes needs Root"))
	}
	if c.Host != nil && c.Host.Facts == nil {
		missing("Host.Facts")
	}
	if c.MaxPods < 0 {
		errs = append(errs, fmt.Errorf("agent: MaxPods is %d, want at least 0", c.MaxPods))
	}
	if c.StaticPods > OrdinaryStaticPods {
		errs = append(errs, fmt.Errorf("agent: StaticPods is %d, which is not a StaticPodPolicy", c.StaticPods))
	}
	if c.EnforceAllocatable && c.Cgroups == nil {
		errs = append(errs, errors.New("agent: EnforceAllocatable needs Cgroups"))
	}
	return errors.Join(append(errs, c.hookProblems()...)...)
}

// sourceProblems returns the problems with Sources.
func (c Config) sourceProblems() (errs []error) {
	if len(c.Sources) == 0 {
		errs = append(errs, errors.New("agent: Sources is required"))
	}
	seen := map[string]bool{}
	for i, s := range c.Sources {
		switch {
		case s.Name == "":
			errs = append(errs, fmt.Errorf("agent: Sources[%d] has no Name", i))
		case seen[s.Name]:
			errs = append(errs, fmt.Errorf("agent: Sources[%d]: another source has the name %q", i, s.Name))
		}
		if s.Run == nil {
			errs = append(errs, fmt.Errorf("agent: Sources[%d] (%q) has no Run", i, s.Name))
		}
		seen[s.Name] = true
	}
	return errs
}

// hookProblems returns the problems with hooks: nil hooks, hooks without a name, and hooks of
// the same kind with the same name.
func (c Config) hookProblems() (errs []error) {
	check := func(field string, n int, name func(int) (string, bool)) {
		seen := map[string]bool{}
		for i := range n {
			name, set := name(i)
			switch {
			case !set:
				errs = append(errs, fmt.Errorf("agent: %s[%d] is nil", field, i))
				continue
			case strings.TrimSpace(name) == "":
				errs = append(errs, fmt.Errorf("agent: %s[%d] has no name", field, i))
			case seen[name]:
				errs = append(errs, fmt.Errorf("agent: %s[%d]: another entry has the name %q", field, i, name))
			}
			seen[name] = true
		}
	}
	check("Admission", len(c.Admission), func(i int) (string, bool) {
		return c.Admission[i].Name, c.Admission[i].Handler != nil
	})
	check("Allocators", len(c.Allocators), func(i int) (string, bool) {
		return nameOf(c.Allocators[i])
	})
	check("Volumes", len(c.Volumes), func(i int) (string, bool) {
		return nameOf(c.Volumes[i])
	})
	check("Credentials", len(c.Credentials), func(i int) (string, bool) {
		return nameOf(c.Credentials[i])
	})
	return errs
}

// nameOf returns the name of a hook. It returns false if the hook is nil.
func nameOf(hook interface{ Name() string }) (string, bool) {
	if hook == nil {
		return "", false
	}
	return hook.Name(), true
}

// withDefaults returns c with the defaults of the fields that are not set.
func (c Config) withDefaults() Config {
	if c.MaxPods == 0 {
		c.MaxPods = DefaultMaxPods
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.State == nil && c.Root == "" {
		c.State = state.Memory()
	}
	if c.State == nil {
		c.State = state.Files(c.Root)
	}
	return c
}
