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

// DefaultMaxPods is how many pods a node runs unless [Config].MaxPods is set: the kubelet's
// default.
const DefaultMaxPods = 110

// Config configures an Agent. The zero value of an optional field is its default. What the
// fields refer to is retained and must not be modified afterwards.
type Config struct {
	// Name marks what this agent creates on the runtime, as the label io.kubeparts.agent.
	// Agents that share a runtime have different names. It is a valid label value. Required.
	Name string
	// NodeName is the name of the node, a DNS subdomain. Pods carry it, and events and the
	// node's status do. Required.
	NodeName string
	// Runtime is the container runtime. Required.
	Runtime Runtime
	// Sources define the pods that the node runs. No pod is ended for being undefined before
	// each source has called set once. Of two sources that define one pod, the source that
	// defined it first has it. Required.
	Sources []Source

	// Lister lists pods in place of Runtime in relists, at less cost. The CRI client of
	// package agent/cri has one. Optional.
	Lister pleg.Lister
	// Host is the machine. Default: [host.Local] with the folders of this Config.
	Host *host.Host
	// Root is the folder of what the agent keeps for pods: volumes, hosts files, termination
	// messages, seccomp profiles. It is created if it does not exist, and locked while Run
	// runs. Empty: pods have no hosts files and no termination messages, and pods with
	// volumes of the built-in types are refused. Otherwise absolute.
	Root string
	// PodLogs is the folder of container logs, such as /var/log/pods. Folders in it that
	// belong to no pod are removed, so that no two agents may share one. Empty: containers
	// have no logs, and logs are neither rotated nor removed. Otherwise absolute.
	PodLogs string
	// ContainerLogs is the folder with a link to the log of each container, such as
	// /var/log/containers, where log shippers look. Empty: there are no links. Otherwise
	// absolute, with PodLogs.
	ContainerLogs string
	// State stores what a restarted agent must know: statuses, back-offs, ages of images,
	// pull records, the position in the kernel's log. Default: files below Root, or memory
	// if Root is empty.
	State state.Store
	// TakeOver has the agent treat all pods of the runtime as its own, as a kubelet does,
	// and not only those that carry its Name. It ends and removes pods that no source
	// defines, whatever program created them.
	TakeOver bool

	// Cluster finds what pods refer to beyond this node. Optional.
	Cluster Cluster
	// Statuses receives the status of each pod when it has changed, such as
	// [status.APIServer]. State receives them too. Optional.
	Statuses status.Sink
	// Events receives the events that a kubelet would record, from several goroutines.
	// Optional.
	Events EventRecorder
	// NodeStatus changes the node that [Agent.Node] returns and admission uses: extended
	// resources, labels, conditions of its own, ports. It is called with a node that it may
	// modify, whenever the node is computed. It does no I/O and calls no method of the
	// Agent. Call [Agent.SyncAll] when what it would do has changed. Pods get an extended
	// resource only if an allocator hands it out. Optional.
	NodeStatus func(*corev1.Node)
	// Version is the agent's own version, which the node reports as its kubeletVersion.
	// Optional.
	Version string

	// Reserved is kept from pods for the system and for the agent: it is subtracted from the
	// node's capacity. Optional.
	Reserved corev1.ResourceList
	// MaxPods is how many pods may run at once. Default [DefaultMaxPods].
	MaxPods int
	// StaticPods decides whether pods of other sources than the API server are critical.
	// Default [CriticalStaticPods].
	StaticPods StaticPodPolicy
	// Pods is the policy for containers and sandboxes: DNS, sysctls, seccomp, limits.
	Pods podrunner.Policy
	// Eviction is the policy for ending pods before the node runs out of a resource. Its
	// zero value has no thresholds; [eviction.ParseThresholds] with no settings returns the
	// kubelet's defaults.
	Eviction eviction.Policy
	// ImageGC is the policy for removing unused images, ContainerGC that for containers that
	// have exited.
	ImageGC     imagegc.Policy
	ContainerGC containergc.Policy
	// Images is the policy for pulls.
	Images images.Policy
	// Restarts delays restarts of containers. Its Clock is that of this Config.
	Restarts lifecycle.BackoffConfig
	// Logs is the policy for rotating the logs of running containers.
	Logs logrotate.Policy
	// SyncPeriod is the longest time between two syncs of a pod. Default 1m.
	SyncPeriod time.Duration
	// Cgroups has the agent create a cgroup for each pod. Nil: the runtime places
	// containers, and nothing limits a pod as a whole.
	Cgroups *cgroups.Config
	// EnforceAllocatable limits all pods together to what the node has for them: it fills in
	// Allocatable of Cgroups, which it needs.
	EnforceAllocatable bool

	// Admission is asked about each pod after the built-in handlers, in this order, for one
	// pod at a time. A handler that hangs delays other admissions only; after 30 seconds the
	// pod is refused. An admitted pod whose spec is edited is asked about again, as a pod that
	// is added: if the edit is refused, the version before it runs on. Optional.
	Admission []lifecycle.NamedHandler
	// Allocators are asked after Admission, in this order, and hand out shares of the node
	// to containers. Optional.
	Allocators []resources.Allocator
	// Volumes are asked before the built-in volume types. The first that supports a volume
	// gets it. They need a Root. Optional.
	Volumes []volumes.Plugin
	// Credentials are asked after the pod's imagePullSecrets, in this order. Optional.
	Credentials []images.CredentialProvider
	// Observers are callbacks of all parts, for metrics and consoles. Optional.
	Observers Observers

	// Random returns random numbers from 0 up to 1, which spread retries and syncs in time.
	// Several goroutines call it. Default: that of math/rand/v2.
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
	// OrdinaryStaticPods are treated by their priority: for nodes without an API server, on
	// which all pods are static.
	OrdinaryStaticPods
)

// Validate reports every problem with c, joined. The policies of the managers are checked
// too; it reads no file and calls nothing.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// problems reports what is wrong with the fields that no manager checks.
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
		errs = append(errs, fmt.Errorf("agent: StaticPods is %d, which is no policy", c.StaticPods))
	}
	if c.EnforceAllocatable && c.Cgroups == nil {
		errs = append(errs, errors.New("agent: EnforceAllocatable needs Cgroups"))
	}
	return errors.Join(append(errs, c.hookProblems()...)...)
}

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

// hookProblems reports hooks that are nil, and names that two hooks of a kind share.
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
				errs = append(errs, fmt.Errorf("agent: %s[%d]: another one has the name %q", field, i, name))
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

// withDefaults fills in what is not set.
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
