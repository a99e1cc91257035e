package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

var (
	// ErrAlreadyRan is returned when [Cluster.Run] is called a second time.
	ErrAlreadyRan = errors.New("a Cluster runs only once")
	// errNotListed is the error of a lookup before the first list or watch request has returned.
	errNotListed = errors.New("the API server has not answered yet")
)

// Cluster connects an agent with the API server of a cluster, so that the agent is a node of the
// cluster. Create it with [New]. All methods are safe for concurrent use.
type Cluster struct {
	cfg Config

	pods    *pods
	sink    *status.APIServer
	node    *node
	lease   *lease
	mirrors *mirrors
	objects *objects
	tokens  *tokens
	events  *events

	services       *services
	runtimeClasses *runtimeClasses

	agent atomic.Pointer[agent.Agent] // nil before Run
	ran   atomic.Bool
}

// New returns a Cluster. It starts nothing and sends no request. The error reports the problems
// with cfg.
func New(cfg Config) (*Cluster, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	c := &Cluster{
		cfg: cfg, pods: newPods(cfg), objects: newObjects(cfg), tokens: newTokens(cfg),
		events:   &events{client: cfg.Events, nodeName: cfg.NodeName},
		services: newServices(cfg), runtimeClasses: newRuntimeClasses(cfg),
	}
	c.node = newNode(cfg, c.events)
	c.lease = &lease{cfg: cfg, owner: c.node.owner}
	c.objects.changed, c.objects.released = c.sync, c.tokens.release
	var errSink, errMirrors error
	c.sink, errSink = status.NewAPIServer(status.APIServerConfig{
		Pods:   func(namespace string) status.PodClient { return cfg.Client.CoreV1().Pods(namespace) },
		Mirror: c.pods.mirrorOf,
		MayRun: c.mayRun,
		Clock:  cfg.Clock,
	})
	c.mirrors, errMirrors = newMirrors(cfg, c.pods, c.node)
	if err := errors.Join(errSink, errMirrors); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c.pods.services, c.pods.classes = c.services, c.runtimeClasses
	c.pods.sink, c.pods.mirrorsChanged, c.pods.overwritten = c.sink, c.mirrors.trigger, c.sync
	return c, nil
}

// Join completes the config of an agent: it adds the source of the pods that are bound to the node,
// and sets Cluster, Statuses and Events. It returns an error if one of these fields is set already,
// or if the names of the node differ. To add a status sink or an event recorder of your own,
// replace the field after Join. Your sink or recorder must also call the value that Join has set.
func (c *Cluster) Join(cfg *agent.Config) error {
	var errs []error
	if cfg.NodeName != c.cfg.NodeName {
		errs = append(errs, fmt.Errorf("cluster: the NodeName of the agent is %q, want %q", cfg.NodeName, c.cfg.NodeName))
	}
	if cfg.Statuses != nil {
		errs = append(errs, errors.New("cluster: Join sets the agent's Statuses, so it must not be set before"))
	}
	if cfg.Events != nil {
		errs = append(errs, errors.New("cluster: Join sets the agent's Events, so it must not be set before"))
	}
	if k := cfg.Cluster; k.Node != nil || k.FreshNode != nil || k.Objects != nil || k.Tokens != nil || k.Services != nil || k.RuntimeHandler != nil {
		errs = append(errs, errors.New("cluster: Join sets the agent's Cluster, so none of its fields must be set before"))
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	cfg.Sources = append(slices.Clip(cfg.Sources), agent.Source{Name: podspec.SourceAPI, Run: c.runPods})
	cfg.Statuses, cfg.Events = c.sink, c.events
	cfg.Cluster = agent.Cluster{
		Node: c.node.cached, FreshNode: c.node.fresh,
		Objects: c.objects, Tokens: c.tokens.token,
		Services: c.services.list, RuntimeHandler: c.runtimeClasses.handler,
	}
	return nil
}

// Run runs the agent as a node of the cluster until ctx is done or the agent has stopped. It
// registers the node, reports its status, renews its lease, and maintains the mirror pods of static
// pods. When the agent has stopped, Run joins its goroutines and returns the error of
// [agent.Agent.Run]. Create the agent from a config that [Cluster.Join] has completed.
//
// If the API server can't be reached, the agent runs the static pods and the pods that it has
// received, and Run repeats its requests.
func (c *Cluster) Run(ctx context.Context, a *agent.Agent) error {
	if !c.ran.CompareAndSwap(false, true) {
		return ErrAlreadyRan
	}
	c.agent.Store(a)
	// The parts stop after the agent, because the agent uses them until it has published its last
	// statuses.
	parts, stop := context.WithCancel(c.withLogger(context.WithoutCancel(ctx)))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, run := range []func(context.Context){
		c.events.run, c.node.watched.run, c.services.run, c.runtimeClasses.run, c.objects.run,
		func(ctx context.Context) { c.node.run(ctx, a, func() { wg.Go(func() { c.lease.run(ctx) }) }) },
		func(ctx context.Context) { c.mirrors.run(ctx, a) },
	} {
		wg.Go(func() { run(parts) })
	}
	return a.Run(ctx)
}

// runPods is the Run of the source of pods.
func (c *Cluster) runPods(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
	return c.pods.run(c.withLogger(ctx), set)
}

// withLogger returns a context with which client-go logs to the logger of the config.
func (c *Cluster) withLogger(ctx context.Context) context.Context {
	return logr.NewContext(ctx, logr.FromSlogHandler(c.cfg.Logger.Handler()))
}

// sync calls the agent's Sync for the given pods. Before Run, it does nothing.
func (c *Cluster) sync(pods ...types.UID) {
	if a := c.agent.Load(); a != nil {
		a.Sync(pods...)
	}
}

// mayRun reports whether a pod may still have running containers or other resources of the node.
func (c *Cluster) mayRun(pod types.UID) bool {
	a := c.agent.Load()
	if a == nil {
		return true // nothing is known yet
	}
	p, known := a.Pod(pod)
	// Containers of an earlier agent may run in a pod that was refused.
	return known && (p.State.MayRun() || p.Runtime.Running())
}
