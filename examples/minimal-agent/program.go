package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// program is the agent with its manifests, its HTTP server and its console.
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
		Events:     recorder{p.events, p.console},
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
// part has ended, with the errors of all of them.
func (p *program) run(ctx context.Context) error {
	listener, err := p.server.Listen(ctx, p.opts.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.console.say("listening on %s", p.opts.Access.URL(listener.Addr()))

	// The parts go on while the pods are ended.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.server.Run(ctx, listener) },
		p.agent.Run, p.syncObjects, p.showNode,
	}
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(working) }()
	}
	left := len(parts)
	select {
	case <-ctx.Done():
		err = p.farewell(working, stop)
	case err = <-ended:
		left--
	}
	stop()
	for range left {
		err = errors.Join(err, <-ended)
	}
	return err
}

// syncObjects has pods synced when ConfigMaps and Secrets have changed: volumes show the new
// ones, and pods that waited for one start.
func (p *program) syncObjects(ctx context.Context) error {
	for range p.manifests.objects.Subscribe(ctx) {
		p.agent.SyncAll()
	}
	return nil
}

// stopMargin is what the runtime may take to stop and remove all pods, in addition to the time
// that they have to end.
const stopMargin = time.Minute

// farewell ends the pods if the settings say so. The agent runs meanwhile; stop ends it if the
// pods take too long.
func (p *program) farewell(ctx context.Context, stop func()) error {
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
	limit := p.endTime(how) + stopMargin
	late := time.AfterFunc(limit, stop)
	// With a context that is done, StopPods would be called off, and pods begin again.
	err := p.agent.StopPods(context.WithoutCancel(ctx), how)
	switch {
	case !late.Stop() && err != nil:
		return fmt.Errorf("%s: pods were still running after %v", flag, limit)
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	default:
		return nil
	}
}

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
