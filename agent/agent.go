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

// ErrAlreadyRan is returned when [Agent.Run] is called a second time.
var ErrAlreadyRan = errors.New("an Agent runs only once")

// Agent runs the pods of a node. Create it with [New]. All methods are safe for concurrent use.
// Their results are shared and must not be modified.
type Agent struct {
	cfg     Config
	pods    *podloop.Loop
	node    *nodeloop.Loop
	changes coalesce.Signal // signals changes of pods, node and health
	ran     atomic.Bool
}

// New returns an Agent. It starts nothing and opens nothing. The error reports every problem
// with c.
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
	// Continue without a node loop, so that all problems are reported at once.
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

// newCgroups returns the manager of pod cgroups, nil if the runtime manages them.
func (a *Agent) newCgroups() (podloop.Cgroups, error) {
	if a.cfg.Cgroups == nil {
		return nil, nil
	}
	c := *a.cfg.Cgroups
	if a.cfg.EnforceAllocatable {
		// Eviction thresholds are not subtracted: eviction must act before the kernel does.
		c.Allocatable = func() corev1.ResourceList {
			return nodestatus.Allocatable(a.Node().Status.Capacity, []corev1.ResourceList{a.cfg.Reserved})
		}
	}
	return cgroups.New(c)
}

// nodeConfig returns the configuration of the node loop. The node loop and the pod loop call
// each other through functions, which are only called when both exist.
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

// nodeForPods returns the node's functions for the pod loop. If the node loop could not be
// created, the result only serves to validate the rest of the configuration.
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

// Run serves until ctx is done, then joins its goroutines and returns nil. Pods keep running;
// the next agent of this Name adopts them. Run returns an error if another agent uses Root, if
// an allocator can't be restored, or if a source has returned.
//
// To stop the pods before Run returns, call [Agent.StopPods] before ctx is done.
func (a *Agent) Run(ctx context.Context) (err error) {
	if !a.ran.CompareAndSwap(false, true) {
		return ErrAlreadyRan
	}
	unlock, err := a.lockRoot()
	if err != nil {
		return fmt.Errorf("agent: root %s: %w", a.cfg.Root, err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return run(ctx,
		// The node loop starts first, because pods need the node's facts. It stops last,
		// because the runtime's state matters until the pods' statuses are saved.
		part{"node", a.node.Run},
		part{"pods", a.pods.Run},
	)
}

// lockRoot creates Root and locks it against other agents.
func (a *Agent) lockRoot() (unlock func() error, err error) {
	if a.cfg.Root == "" {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(a.cfg.Root, 0o755); err != nil {
		return nil, err
	}
	return filelock.Lock(filepath.Join(a.cfg.Root, "lock"))
}

// StopPods stops all pods in the order of their priority. It returns when no container runs and
// the statuses of the pods are published. From this call until Run returns, no pod is admitted
// and the node is not ready.
//
// If ctx is cancelled first, for example because the machine's shutdown was called off, the
// agent continues: pods that were not yet stopped keep running, and static pods that have ended
// start again.
//
// With a zero how each pod has its own grace period, and all data of the pods is removed. With
// any other how their logs and exited containers are kept.
//
// Call StopPods while Run runs. The context of Run must outlive it:
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

// Kill stops one pod for good, as an eviction does, and returns when none of its containers
// runs. It returns an error if the pod is unknown or if ctx is done first.
func (a *Agent) Kill(ctx context.Context, pod types.UID, how podworker.KillOptions) error {
	if err := a.pods.Kill(ctx, pod, how); err != nil {
		return fmt.Errorf("agent: kill pod %s: %w", pod, err)
	}
	return nil
}

// Sync reports a change of something that these pods depend on: an object, a device, a
// credential, their status at the API server. A refused static pod goes through admission
// again; any other pod is synced and its status is published again. Sync never blocks and may
// be called from any callback of [Config] except NodeStatus. A sink must not call it in each
// Publish for the same pod, or the agent publishes that pod's status without end. Before Run it
// does nothing.
func (a *Agent) Sync(pods ...types.UID) { a.pods.Sync(pods...) }

// SyncAll is Sync for all pods. It also recomputes the node.
func (a *Agent) SyncAll() {
	a.node.Recompute()
	a.pods.SyncAll()
}

// Changes returns a channel that receives a message at the beginning, and whenever the result
// of Pods, Node or Health has changed since the last message was received. It is closed when
// ctx is done.
func (a *Agent) Changes(ctx context.Context) <-chan struct{} { return a.changes.Subscribe(ctx) }
