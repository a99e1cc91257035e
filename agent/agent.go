package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/internal/nodeloop"
	"github.com/kubeparts/kubeparts/agent/internal/podloop"
	"github.com/kubeparts/kubeparts/internal/coalesce"
	"github.com/kubeparts/kubeparts/internal/filelock"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// ErrAlreadyRan is returned when [Agent.Run] is called a second time.
var ErrAlreadyRan = errors.New("an Agent runs only once")

// Agent runs the pods of a node. Create it with [New]. All methods are safe for concurrent use.
// The results of methods are shared and must not be modified.
type Agent struct {
	cfg     Config
	pods    *podloop.Loop
	node    *nodeloop.Loop
	changes coalesce.Signal // signals changes of pods, node and health
	ran     atomic.Bool
	running atomic.Pointer[context.Context] // the context of Run
}

// New returns an Agent. It starts nothing and opens nothing. The error reports the problems with c.
func New(c Config) (*Agent, error) {
	if err := c.problems(); err != nil {
		return nil, err
	}
	a := &Agent{cfg: c.withDefaults()}
	if a.cfg.Host == nil {
		local, err := host.Local(a.localHost())
		if err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
		a.cfg.Host = local
	}
	node, errNode := nodeloop.New(a.nodeConfig())
	if errNode == nil {
		a.node = node
	}
	groups, errCgroups := a.newCgroups()
	// If the node loop could not be created, continue without it, so that the problems of the
	// pod loop are reported too.
	pods, errPods := podloop.New(a.podConfig(groups))
	if err := errors.Join(errNode, errCgroups, errPods); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.pods = pods
	return a, nil
}

// localHost returns the configuration of the default [Config].Host.
func (a *Agent) localHost() host.LocalConfig {
	c := host.LocalConfig{
		Runtime: a.cfg.Runtime, Images: a.cfg.Runtime, NodeName: a.cfg.NodeName,
		Root: a.cfg.Root, PodLogs: a.cfg.PodLogs, Thresholds: a.cfg.Eviction.Thresholds,
		Clock: a.cfg.Clock, Logger: a.cfg.Logger,
	}
	if a.cfg.Cgroups != nil {
		c.PodsCgroup = path.Join("/", a.cfg.Cgroups.Parent, "kubepods")
	}
	return c
}

// newCgroups returns the manager of pod cgroups. It returns nil if Config.Cgroups is nil.
func (a *Agent) newCgroups() (podloop.Cgroups, error) {
	if a.cfg.Cgroups == nil {
		return nil, nil
	}
	c := *a.cfg.Cgroups
	if a.cfg.EnforceAllocatable {
		// Do not subtract the eviction thresholds: the agent must evict pods before the pods
		// reach the limit that the kernel enforces.
		c.Allocatable = func() corev1.ResourceList {
			return nodestatus.Allocatable(a.Node().Status.Capacity, []corev1.ResourceList{a.cfg.Reserved})
		}
		limited := c.Limited
		c.Limited = func(cgroup string, err error) {
			a.recordEnforced(cgroup, err)
			if limited != nil {
				limited(cgroup, err)
			}
		}
	}
	groups, err := cgroups.New(c)
	if err != nil || a.cfg.Observers.Cgroups == nil {
		return groups, err
	}
	return observedCgroups{groups, a.cfg.Clock, a.cfg.Observers.Cgroups}, nil
}

// recordEnforced records an event about the limits of the cgroup of all pods.
func (a *Agent) recordEnforced(cgroup string, err error) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.NodeName}}
	if err != nil {
		recorder{a.cfg.Events}.Eventf(node, corev1.EventTypeWarning, "FailedNodeAllocatableEnforcement", "Failed to update Node Allocatable Limits %q: %v", cgroup, err)
		return
	}
	recorder{a.cfg.Events}.Eventf(node, corev1.EventTypeNormal, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods")
}

// nodeConfig returns the configuration of the node loop. The node loop and the pod loop call
// each other through functions. These functions are only called when both loops exist.
func (a *Agent) nodeConfig() nodeloop.Config {
	c := &a.cfg
	return nodeloop.Config{
		NodeName: c.NodeName, Version: c.Version, Runtime: c.Runtime, Host: c.Host, State: c.State,
		TakeOver: c.TakeOver, PodLogs: c.PodLogs, ContainerLogs: c.ContainerLogs,
		MaxPods: c.MaxPods, Reserved: c.Reserved,
		Eviction: c.Eviction, ImageGC: c.ImageGC, ContainerGC: c.ContainerGC, Logs: c.Logs,
		MaxNodeImages: c.MaxNodeImages, NodeStatus: c.NodeStatus, Objects: c.Cluster.Objects, Services: c.Cluster.Services, RuntimeHandler: c.Cluster.RuntimeHandler,
		Pods: nodeloop.Pods{
			Active: func() []*corev1.Pod { return a.pods.Active() },
			Evict: func(ctx context.Context, pod *corev1.Pod, how podworker.KillOptions) error {
				return a.pods.Evict(ctx, pod, how)
			},
			Observed: func() []*podcache.Status { return a.pods.Observed() },
			Await: func(ctx context.Context, uid types.UID, since time.Time) (*podcache.Status, error) {
				return a.pods.Await(ctx, uid, since)
			},
			Find:             func(uid types.UID) (*corev1.Pod, bool) { return a.pods.Find(uid) },
			CleanedUp:        func(uid types.UID) bool { return a.pods.CleanedUp(uid) },
			ContentRemovable: func(uid types.UID) bool { return a.pods.ContentRemovable(uid) },
			RuntimeRemovable: func(uid types.UID) bool { return a.pods.RuntimeRemovable(uid) },
			RunHook:          func(ctx context.Context, hook lifecycle.Hook) { a.pods.RunHook(ctx, hook) },
			Ready:            func() error { return a.pods.Ready() },
			RuntimeHealth:    func() error { return a.pods.Healthy() },
		},
		Events:          recorder{c.Events},
		Changed:         a.changes.Notify,
		PressureChanged: func() { a.pods.NodeChanged() },
		Observers: c.Observers.node(func(uid types.UID, containerID string) (*corev1.Pod, string, bool) {
			return a.node.Victim(uid, containerID)
		}),
		Clock: c.Clock, Logger: c.Logger,
	}
}

// podConfig returns the configuration of the pod loop.
func (a *Agent) podConfig(groups podloop.Cgroups) podloop.Config {
	c := &a.cfg
	config := podloop.Config{
		Name: c.Name, NodeName: c.NodeName, Runtime: c.Runtime, Lister: c.Lister, State: c.State,
		TakeOver: c.TakeOver, OrdinaryStaticPods: c.StaticPods == OrdinaryStaticPods,
		Root: c.Root, PodLogs: c.PodLogs, ContainerLogs: c.ContainerLogs,
		Pods: c.Pods, Images: c.Images, Restarts: c.Restarts, SyncPeriod: c.SyncPeriod,
		Cgroups: groups, Mounter: c.mounter(), Volumes: c.Volumes, Credentials: c.Credentials,
		Objects: c.Cluster.Objects, Tokens: c.Cluster.Tokens,
		Admission: c.Admission, Allocators: c.Allocators,
		Node:   a.nodeForPods(),
		Sink:   c.Statuses,
		Dial:   c.Host.Dial,
		Events: recorder{c.Events}, Changed: a.changes.Notify,
		Observers: c.Observers.pods(),
		Random:    c.Random,
		Clock:     c.Clock, Logger: c.Logger,
	}
	for _, s := range c.Sources {
		config.Sources = append(config.Sources, podloop.Source(s))
	}
	return config
}

// nodeForPods returns the functions of the node loop for the pod loop. If the node loop could
// not be created, the result is only used to validate the rest of the configuration.
func (a *Agent) nodeForPods() podloop.Node {
	n := podloop.Node{
		Facts: func() podrunner.Facts { return a.node.Facts() },
		Get:   a.clusterNode,
		Fresh: a.cfg.Cluster.FreshNode,
		Admit: lifecycle.AdmitFunc(func(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
			return a.node.Admit(ctx, attrs)
		}),
		Images:             a.cfg.Runtime,
		Relisted:           func(err error) { a.node.Relisted(err) },
		EvaluateThresholds: func() { a.node.EvaluateThresholds() },
		RuntimeName:        func() string { return a.node.RuntimeName() },
	}
	if a.node != nil {
		n.Images, n.Leases = a.node.Images(), a.node.Leases()
	}
	return n
}

// Run runs the agent until ctx is done, then joins its goroutines and returns nil. The pods keep
// running, and the next agent with the same Name adopts them. Run returns an error if another
// agent uses Root, if an allocator can't be restored, or if a source returns before ctx is done.
//
// To stop the pods before Run returns, call [Agent.StopPods] before ctx is done.
func (a *Agent) Run(ctx context.Context) (err error) {
	if !a.ran.CompareAndSwap(false, true) {
		return ErrAlreadyRan
	}
	a.running.Store(&ctx)
	unlock, err := a.lockRoot()
	if err != nil {
		return fmt.Errorf("agent: root %s: %w", a.cfg.Root, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return run(ctx,
		// The node loop starts first and stops last, because the pod loop uses the node's facts
		// from the start until the last statuses are saved.
		part{"node", a.node.Run},
		part{"pods", a.pods.Run},
	)
}

// lockRoot creates the folder Root and locks it, so that no other agent uses it.
func (a *Agent) lockRoot() (unlock func() error, err error) {
	if a.cfg.Root == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(a.cfg.Root, 0o755); err != nil {
		return nil, err
	}
	return filelock.Lock(filepath.Join(a.cfg.Root, "lock"))
}

// StopPods stops all pods. It returns nil when no container runs and the statuses of the pods are
// published. It returns an error if a pod does not end in time. If the ShutdownConfig is zero, this
// time is the longest grace period of all pods plus one minute. Otherwise, the ShutdownConfig has
// the time for each priority. From the start of this call until Run returns or ctx is cancelled,
// the agent admits no pod, and the node is not ready.
//
// If ctx is cancelled before all pods are stopped, the shutdown ends. The node becomes ready
// again, pods that were not stopped yet keep running, and static pods that StopPods has ended start
// again. For example, cancel ctx when the shutdown of the machine is cancelled.
//
// If the ShutdownConfig is zero, StopPods stops all pods at the same time, each with its own grace
// period, and removes all data of the pods. If it is not zero, StopPods stops the pods in the order
// of their priority, with the grace periods in the ShutdownConfig. In this case, StopPods does not
// remove the logs and exited containers of the pods.
//
// Call StopPods while Run runs. Cancel the context of Run only after StopPods has returned:
//
//	running, stop := context.WithCancel(context.WithoutCancel(ctx))
//	defer stop()
//	go func() { ended <- a.Run(running) }()
//	<-ctx.Done()
//	err := a.StopPods(running, how)
func (a *Agent) StopPods(ctx context.Context, how podworker.ShutdownConfig) error {
	if err := how.Validate(); err != nil {
		return fmt.Errorf("agent: stop pods: %w", err)
	}
	a.node.ShutdownStarted()
	if a.cfg.Observers.ShutdownStarted != nil {
		a.cfg.Observers.ShutdownStarted()
	}
	if a.cfg.Observers.ShutdownEnded != nil {
		defer a.cfg.Observers.ShutdownEnded()
	}
	err := a.pods.StopPods(ctx, how)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, podloop.ErrStopping) {
		a.node.ShutdownEnded()
	}
	return fmt.Errorf("agent: stop pods: %w", err)
}

// Kill stops a pod permanently, as an eviction does, and returns when none of the pod's containers
// runs. It returns an error if the pod is unknown or if ctx is done first. If ctx is done first,
// the agent still stops the pod.
func (a *Agent) Kill(ctx context.Context, pod types.UID, how podworker.KillOptions) error {
	if err := a.pods.Kill(ctx, pod, how); err != nil {
		return fmt.Errorf("agent: kill pod %s: %w", pod, err)
	}
	return nil
}

// Sync informs the agent that a dependency of the given pods has changed. A dependency is an
// object, a device, a credential, or the status of a pod at the API server. The agent repeats the
// admission of refused static pods and refused edits, syncs admitted pods, and publishes the status
// of each given pod again. Sync never blocks. Every callback of [Config] except NodeStatus may call
// Sync. But if a sink calls Sync for a pod in each Publish of that pod, the agent publishes the
// pod's status without end. Before Run, Sync has no effect.
func (a *Agent) Sync(pods ...types.UID) { a.pods.Sync(pods...) }

// SyncAll does the same as [Agent.Sync], for all pods. It also triggers a new computation of the
// node.
func (a *Agent) SyncAll() {
	a.node.Recompute()
	a.pods.SyncAll()
}

// Changes returns a channel of notifications. The channel has one message at first. It gets
// another message when the result of [Agent.Pods], [Agent.Node] or [Agent.Health] has changed
// after the caller received the previous message. The channel is closed when ctx is done.
func (a *Agent) Changes(ctx context.Context) <-chan struct{} { return a.changes.Subscribe(ctx) }
