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
	"github.com/kubeparts/kubeparts/agent/host"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/machine"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/settings"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// program is the agent with its manifests, its HTTP server and its console.
type program struct {
	opts    settings.Settings
	machine *machine.Machine
	host    *host.Host
	log     *slog.Logger
	level   *slog.LevelVar // of the logger
	console *console
	metrics *metrics.Pages
	events  *eventlog.Log

	manifests manifests
	agent     *agent.Agent
	server    *kubeletapi.Server
	started   time.Time
	adopted   atomic.Int64 // number of pods that were running before this agent started
}

// logger is a logger with its level.
type logger struct {
	*slog.Logger
	level *slog.LevelVar
}

// newProgram creates all parts of the program. It starts none of them.
func newProgram(o settings.Settings, m *machine.Machine, counts *metrics.Pages, c *console, log logger) (*program, error) {
	p := &program{opts: o, machine: m, log: log.Logger, level: log.level, console: c, metrics: counts, events: eventlog.New(eventlog.Config{}), started: time.Now()}
	var err error
	if p.manifests, err = newManifests(o, m.RootDir, log.Logger); err != nil {
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

// agentConfig returns the configuration of the agent for the settings.
func (p *program) agentConfig() (agent.Config, error) {
	o, policies := p.opts, p.opts.Policy
	var err error
	p.host, err = p.machine.Host()
	return agent.Config{
		Name: o.AgentName, NodeName: o.NodeName, Version: version(),
		Runtime: p.machine.Runtime, Lister: p.machine.Runtime.Lister(), Host: p.host, TakeOver: o.TakeOver,
		Root: p.machine.RootDir, PodLogs: p.machine.PodLogs, ContainerLogs: p.machine.ContainerLogs,
		Sources: p.manifests.sources(), Cluster: agent.Cluster{Objects: p.manifests.objects},
		// All pods are static here. If static pods were critical, as in the kubelet, no pod
		// could be evicted.
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

// run runs the program until ctx is done or a part of it fails. It returns the errors of all parts
// when every part has ended.
func (p *program) run(ctx context.Context) error {
	parts, err := p.listen(ctx)
	if err != nil {
		return err
	}
	parts = append(parts, p.agent.Run, p.syncObjects, p.showNode)

	// The parts keep running while shutdown stops the pods.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(working) }()
	}
	remaining := len(parts)
	select {
	case <-ctx.Done():
		err = p.shutdown(working, stop)
	case err = <-ended:
		remaining--
	}
	stop()
	for range remaining {
		err = errors.Join(err, <-ended)
	}
	return err
}

// syncObjects syncs all pods when ConfigMaps or Secrets have changed, until ctx is done. A sync
// updates volumes, and starts pods that were waiting for an object.
func (p *program) syncObjects(ctx context.Context) error {
	for range p.manifests.objects.Subscribe(ctx) {
		p.agent.SyncAll()
	}
	return nil
}

// stopMargin is the time for the runtime to stop and remove all pods, in addition to their grace
// periods.
const stopMargin = time.Minute

// shutdown stops the pods if the settings require it. The agent must be running. If the pods take
// too long, shutdown calls stop, which ends the agent.
func (p *program) shutdown(ctx context.Context, stop func()) error {
	var how podworker.ShutdownConfig // zero: each pod gets its own grace period
	flag := "--stop-pods"
	switch shutdown := p.opts.Policy.Shutdown; {
	case p.opts.StopPods:
		p.console.printf("stopping all pods; a second signal exits at once and leaves the remaining pods running")
	case shutdown.Total() > 0:
		how, flag = shutdown, "--shutdown-grace-period"
		p.console.printf("stopping all pods within %v; a second signal exits at once and leaves the remaining pods running", how.Total())
	default:
		return nil
	}
	limit := p.gracePeriod(how) + stopMargin
	late := time.AfterFunc(limit, stop)
	// The context of StopPods is never done. If stop cancelled it, StopPods would end the shutdown,
	// and pods would start again.
	err := p.agent.StopPods(context.WithoutCancel(ctx), how)
	switch {
	case !late.Stop() && err != nil:
		return fmt.Errorf("%s: some pods did not stop within %v and are left running", flag, limit)
	case err != nil:
		return fmt.Errorf("%s: %w", flag, err)
	default:
		return nil
	}
}

// gracePeriod returns how long the pods may take to end: the total time in the config if it is
// set, otherwise the longest grace period of a pod.
func (p *program) gracePeriod(how podworker.ShutdownConfig) time.Duration {
	if how.Total() > 0 {
		return how.Total()
	}
	var seconds int64
	for _, pod := range p.agent.Pods() {
		seconds = max(seconds, ptr.Deref(pod.Spec.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds))
	}
	return time.Duration(seconds) * time.Second
}
