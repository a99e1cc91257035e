package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// program is an agent, what tells it which pods to run, and what shows how it is.
type program struct {
	opts    settings.Settings
	machine *machine.Machine
	log     *slog.Logger
	console *console
	metrics *exporter
	events  *eventlog.Log

	manifests manifests
	agent     *agent.Agent
	server    *kubeletapi.Server
	began     time.Time
	adopted   atomic.Int64 // how many pods ran before this agent
}

// newProgram wires everything, and starts nothing.
func newProgram(o settings.Settings, m *machine.Machine, counts *exporter, c *console, log *slog.Logger) (*program, error) {
	p := &program{opts: o, machine: m, log: log, console: c, metrics: counts, events: eventlog.New(eventlog.Config{}), began: time.Now()}
	var err error
	if p.manifests, err = newManifests(o, m.RootDir, log); err != nil {
		return nil, err
	}
	cfg, err := p.agentConfig()
	if err != nil {
		return nil, err
	}
	if p.agent, err = agent.New(cfg); err != nil {
		return nil, err
	}
	counts.AddAgent(p.agent)
	p.server, err = kubeletapi.New(p.serverConfig())
	return p, err
}

// agentConfig returns what the command line and the file say in terms of the engine.
func (p *program) agentConfig() (agent.Config, error) {
	o, policies := p.opts, p.opts.Policy
	host, err := p.machine.Host()
	return agent.Config{
		Name: o.AgentName, NodeName: o.NodeName, Version: version(),
		Runtime: p.machine.Runtime, Lister: p.machine.Runtime.Lister(), Host: host, TakeOver: o.TakeOver,
		Root: p.machine.RootDir, PodLogs: p.machine.PodLogs, ContainerLogs: p.machine.ContainerLogs,
		Sources: p.manifests.sources(), Cluster: agent.Cluster{Objects: p.manifests.objects},
		// All pods come from manifests. If they were critical, none could be evicted.
		StaticPods: agent.OrdinaryStaticPods,
		Events:     recorder{p.events, p.console, p.log},
		MaxPods:    policies.MaxPods, Reserved: policies.Reserved,
		Pods: policies.Pods, Images: policies.Images, Restarts: policies.Restarts, SyncPeriod: policies.SyncPeriod,
		Eviction: policies.Eviction, ImageGC: policies.ImageGC, Logs: policies.Logs,
		ContainerGC: containergc.Policy{MaxPerPodContainer: &o.DeadPerContainer, MaxContainers: &o.DeadAll},
		Cgroups:     policies.Cgroups, EnforceAllocatable: policies.EnforceAllocatable,
		Observers: p.metrics.Observers(p.observers()),
		Logger:    p.log,
	}, err
}

// run serves until ctx is done or a part of the program can't go on. It returns when every
// part has ended.
func (p *program) run(ctx context.Context) error {
	listener, err := kubeletapi.Listen(ctx, p.opts.Listen, p.opts.Access)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.console.say("listening on %s", p.opts.Access.URL(listener.Addr()))

	// The parts go on while the pods are ended.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var parts sync.WaitGroup
	for _, part := range []func(context.Context) error{
		func(ctx context.Context) error { return p.server.Run(ctx, listener) },
		p.agent.Run, p.syncObjects, p.showNode,
	} {
		parts.Go(func() {
			if err := part(working); err != nil {
				stop(err)
			}
		})
	}
	select {
	case <-ctx.Done():
		stop(p.farewell(working))
	case <-working.Done():
	}
	parts.Wait()
	if cause := context.Cause(working); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// syncObjects has pods synced when ConfigMaps and Secrets have changed: volumes show the new
// ones, and pods that waited for one start.
func (p *program) syncObjects(ctx context.Context) error {
	for range p.manifests.objects.Subscribe(ctx) {
		p.agent.SyncAll()
	}
	return nil
}

// stopMargin is what the runtime may take to stop and remove all pods, on top of the time that
// they have to end.
const stopMargin = time.Minute

// endTime returns how long the pods may take to end.
func (p *program) endTime(how podworker.ShutdownConfig) time.Duration {
	if how.Total() > 0 {
		return how.Total()
	}
	var seconds int64
	for _, pod := range p.agent.Pods() {
		seconds = max(seconds, ptr.Deref(pod.Spec.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
	return time.Duration(seconds) * time.Second
}

// farewell ends the pods if the options say so. The agent still runs.
func (p *program) farewell(ctx context.Context) error {
	var how podworker.ShutdownConfig // the zero value: each pod has its own grace period
	flag := "--stop-pods"
	switch shutdown := p.opts.Policy.Shutdown; {
	case p.opts.StopPods:
		p.console.say("taking the pods down; another signal leaves them as they are")
	case shutdown.Total() > 0:
		how, flag = shutdown, "--shutdown-grace-period"
		p.console.say("ending the pods within %v; another signal leaves them as they are", how.Total())
	default:
		return nil
	}
	p.metrics.ShutdownStarted()
	defer p.metrics.ShutdownEnded()
	ctx, cancel := context.WithTimeoutCause(ctx, p.endTime(how)+stopMargin, errors.New("it takes too long"))
	defer cancel()
	if err := p.agent.StopPods(ctx, how); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
