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

// Config configures an Agent. The zero value of an optional field is its default. Values that
// the fields refer to are retained and must not be modified afterwards.
type Config struct {
	// Name is the value of the label io.kubeparts.agent on everything that this agent creates
	// on the runtime. Agents that share a runtime need different names. It must be a valid
	// label value. Required.
	Name string
	// NodeName is the name of the node, a DNS subdomain. It is set in pods, events and the
	// node's status. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Sources define the pods of the node. No pod is stopped as undefined before each source
	// has called set once. If two sources define the same pod, the source that defined it first
	// owns it. Required.
	Sources []Source

	// Lister replaces Runtime in relists and costs less. The CRI client of package agent/cri
	// has one. Optional.
	Lister pleg.Lister
	// Host is the machine. Default: [host.Local] with the folders of this Config.
	Host *host.Host
	// Root is the folder of the agent's files for pods: volumes, hosts files, termination
	// messages, seccomp profiles. It is created if it does not exist, and locked while Run
	// runs. If empty, pods have no hosts files and no termination messages, and pods with
	// volumes of the built-in types are refused. Otherwise it must be absolute.
	Root string
	// PodLogs is the folder of container logs, such as /var/log/pods. Folders in it that belong
	// to no pod are removed, so two agents must not share it. If empty, containers have no
	// logs, and no logs are rotated or removed. Otherwise it must be absolute.
	PodLogs string
	// ContainerLogs is the folder with a link to the log of each container, such as
	// /var/log/containers, which log shippers read. If empty, no links are created. Otherwise
	// it must be absolute, and PodLogs must be set.
	ContainerLogs string
	// State stores what a restarted agent must know: statuses, back-offs, ages of images, pull
	// records, the position in the kernel's log. Default: files below Root, or memory if Root
	// is empty.
	State state.Store
	// TakeOver makes the agent manage all pods of the runtime, as a kubelet does, and not only
	// those with its Name. It stops and removes pods that no source defines, whatever program
	// created them.
	TakeOver bool

	// Cluster finds objects that pods refer to outside this node. Optional.
	Cluster Cluster
	// Statuses receives each changed pod status, such as [status.APIServer]. State also stores
	// them. Optional.
	Statuses status.Sink
	// Events receives the events that a kubelet would record. Several goroutines call it.
	// Optional.
	Events EventRecorder
	// NodeStatus modifies the node that [Agent.Node] returns and admission uses: extended
	// resources, labels, own conditions, ports. It is called each time the node is computed,
	// with a node that it may modify. It must not do I/O or call methods of the Agent. Call
	// [Agent.SyncAll] when its effect would change. Pods get an extended resource only if an
	// allocator hands it out. Optional.
	NodeStatus func(*corev1.Node)
	// Version is the agent's own version. The node reports it as its kubeletVersion. Optional.
	Version string

	// Reserved is subtracted from the node's capacity for the system and the agent. Optional.
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
	// ImageGC is the policy for removing unused images, ContainerGC the policy for removing
	// exited containers.
	ImageGC     imagegc.Policy
	ContainerGC containergc.Policy
	// Images is the policy for image pulls.
	Images images.Policy
	// Restarts is the back-off of container restarts. Its Clock defaults to that of this Config.
	Restarts lifecycle.BackoffConfig
	// Logs is the policy for rotating the logs of running containers.
	Logs logrotate.Policy
	// SyncPeriod is the longest time between two syncs of a pod. Default 1m.
	SyncPeriod time.Duration
	// Cgroups makes the agent create a cgroup for each pod. If nil, the runtime places
	// containers, and no cgroup limits a pod as a whole.
	Cgroups *cgroups.Config
	// EnforceAllocatable limits all pods together to the node's allocatable resources: it sets
	// Allocatable of Cgroups. It requires Cgroups.
	EnforceAllocatable bool

	// Admission handlers decide about each pod after the built-in handlers, in this order and
	// for one pod at a time. A handler that hangs delays only other admissions; after 30
	// seconds the pod is refused. When the spec of an admitted pod is edited, they are called
	// as for a new pod. If they refuse the edit, the previous version keeps running. Optional.
	Admission []lifecycle.NamedHandler
	// Allocators are called after Admission, in this order, and hand out shares of the node to
	// containers. Optional.
	Allocators []resources.Allocator
	// Volumes are tried before the built-in volume types. The first plugin that supports a
	// volume handles it. They require Root. Optional.
	Volumes []volumes.Plugin
	// Credentials are used after the pod's imagePullSecrets, in this order. Optional.
	Credentials []images.CredentialProvider
	// Observers are callbacks of all parts, for metrics and consoles. Optional.
	Observers Observers

	// Random returns random numbers in [0,1) that spread retries and syncs over time. Several
	// goroutines call it. Default: the generator of math/rand/v2.
	Random func() float64
	// Clock is the time source. Default: the system clock.
	Clock clock.WithTicker
	// Logger receives structured logs. Default: discard.
	Logger *slog.Logger
}

// StaticPodPolicy decides whether static pods are critical.
type StaticPodPolicy uint8

const (
	// CriticalStaticPods are never evicted, are admitted under pressure and preempt other
	// pods, as in the kubelet.
	CriticalStaticPods StaticPodPolicy = iota
	// OrdinaryStaticPods are treated by their priority. This suits nodes without an API server,
	// on which all pods are static.
	OrdinaryStaticPods
)

// Validate reports every problem with c, joined. It also checks the policies of the managers.
// It reads no file and calls nothing.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// problems reports problems with the fields that no manager checks.
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

// sourceProblems reports problems with Sources.
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

// hookProblems reports nil hooks and duplicate names of hooks of the same kind.
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

// nameOf returns the name of a hook, and false if it is nil.
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
