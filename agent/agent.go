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

// ErrRan is returned by a second [Agent.Run].
var ErrRan = errors.New("an Agent runs only once")

// Agent runs the pods of a node. Make it with [New]; all methods are safe for concurrent
// use. What they return is shared and must not be modified.
type Agent struct {
	cfg     Config
	pods    *podloop.Loop
	node    *nodeloop.Loop
	changes coalesce.Signal // of pods, node and health
	ran     atomic.Bool
}

// New returns an Agent that has started nothing and opened nothing. The error reports every
// problem with c.
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
	// Also without a node: all problems are reported at once.
	pods, errPods := podloop.New(a.podConfig(groups))
	if err := errors.Join(errNode, errCgroups, errPods); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	a.pods = pods
	return a, nil
}

// localHost configures the default of [Config].Host.
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

// newCgroups returns what keeps the cgroups of pods, nil if the runtime does.
func (a *Agent) newCgroups() (podloop.Cgroups, error) {
	if a.cfg.Cgroups == nil {
		return nil, nil
	}
	c := *a.cfg.Cgroups
	if a.cfg.EnforceAllocatable {
		// What eviction keeps free is not subtracted: it has to act before the kernel does.
		c.Allocatable = func() corev1.ResourceList {
			return nodestatus.Allocatable(a.Node().Status.Capacity, []corev1.ResourceList{a.cfg.Reserved})
		}
	}
	return cgroups.New(c)
}

// nodeConfig configures the node loop, and podConfig the pod loop. Each calls the other by
// functions: when they run, both exist.
func (a *Agent) nodeConfig() nodeloop.Config {
	c := &a.cfg
	return nodeloop.Config{
		NodeName: c.NodeName, Version: c.Version, Runtime: c.Runtime, Host: c.Host, State: c.State,
		TakeOver: c.TakeOver, PodLogs: c.PodLogs, ContainerLogs: c.ContainerLogs,
		MaxPods: c.MaxPods, Reserved: c.Reserved,
		Eviction: c.Eviction, ImageGC: c.ImageGC, ContainerGC: c.ContainerGC, Logs: c.Logs,
		NodeStatus: c.NodeStatus, Objects: c.Cluster.Objects, Services: c.Cluster.Services, RuntimeHandler: c.Cluster.RuntimeHandler,
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

// nodeForPods is what the pod loop asks of the node. Without a node loop, which could not be
// made, it is good enough to check the rest of the configuration.
func (a *Agent) nodeForPods() podloop.Node {
	n := podloop.Node{
		Facts: func() podrunner.Facts { return a.node.Facts() },
		Get:   a.clusterNode,
		Fresh: a.cfg.Cluster.FreshNode,
		Admit: lifecycle.AdmitFunc(func(ctx context.Context, attrs lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
			return a.node.Admit(ctx, attrs)
		}),
		Images:      a.cfg.Runtime,
		Relisted:    func(err error) { a.node.Relisted(err) },
		Ended:       func() { a.node.Ended() },
		RuntimeName: func() string { return a.node.RuntimeName() },
	}
	if a.node != nil {
		n.Images, n.Leases = a.node.Images(), a.node.Leases()
	}
	return n
}

// Run serves until ctx is done, joins what it has started and returns nil. Pods run on; the
// next agent of this Name adopts them. It returns an error if another agent uses Root, if an
// allocator can't be restored, or if a source has returned.
//
// To end the pods before Run returns, call [Agent.StopPods] before ctx is done.
func (a *Agent) Run(ctx context.Context) (err error) {
	if !a.ran.CompareAndSwap(false, true) {
		return ErrRan
	}
	unlock, err := a.lockRoot()
	if err != nil {
		return fmt.Errorf("agent: root %s: %w", a.cfg.Root, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return run(ctx,
		// The node loop comes first: pods need the node's facts. It stops last: until the
		// statuses of pods are saved the runtime's state counts.
		part{"node", a.node.Run},
		part{"pods", a.pods.Run},
	)
}

// lockRoot creates Root and keeps other agents out of it.
func (a *Agent) lockRoot() (unlock func() error, err error) {
	if a.cfg.Root == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(a.cfg.Root, 0o755); err != nil {
		return nil, err
	}
	return filelock.Lock(filepath.Join(a.cfg.Root, "lock"))
}

// StopPods ends all pods in the order of their priority, and returns when no container runs
// and the statuses of the pods are published. From its call until Run ends no pod is
// admitted, and the node is not ready. If ctx is cancelled first, the agent goes on: pods that
// were not told to end run on, and static pods that have ended begin again. A machine can call
// its shutdown off.
//
// A zero how gives each pod its own grace period, and also removes everything that is left of
// the pods. With any other how their logs and exited containers stay.
//
// Call it while Run runs. The context of Run has to outlive it:
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
	err := a.pods.StopPods(ctx, how)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && !errors.Is(err, podloop.ErrStopping) {
		a.node.ShutdownEnded()
	}
	return fmt.Errorf("agent: stop pods: %w", err)
}

// Kill ends one pod for good, as an eviction does, and returns when none of its containers
// runs. The error reports that the pod is unknown, or that ctx is done first.
func (a *Agent) Kill(ctx context.Context, pod types.UID, how podworker.KillOptions) error {
	if err := a.pods.Kill(ctx, pod, how); err != nil {
		return fmt.Errorf("agent: kill pod %s: %w", pod, err)
	}
	return nil
}

// Sync reports that something has changed on which these pods depend: an object, a device, a
// credential, their status at the API server. A refused static pod is asked about again; any
// other pod is synced, and its status is published again. It never blocks, and may be called
// from any hook; a sink that calls it in each Publish for the same pod has that pod published
// for ever. Before Run it does nothing.
func (a *Agent) Sync(pods ...types.UID) { a.pods.Sync(pods...) }

// SyncAll is Sync for all pods. It also has the node computed again.
func (a *Agent) SyncAll() {
	a.node.Recompute()
	a.pods.SyncAll()
}

// Changes returns a channel that holds a message whenever the result of Pods, Node or Health
// has changed since the last message was taken, and one at the beginning. It is closed when
// ctx is done.
func (a *Agent) Changes(ctx context.Context) <-chan struct{} { return a.changes.Subscribe(ctx) }
