package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/page"
	"github.com/kubeparts/kubeparts/status"
)

// serverConfig returns the configuration of the HTTP server.
func (p *program) serverConfig() kubeletapi.Config {
	cfg := kubeletapi.Config{
		Agent: p.agent,
		Info: func() api.Agent {
			return api.Agent{Name: p.opts.AgentName, Version: version(), Started: p.started, Adopted: int(p.adopted.Load())}
		},
		Runtime:  api.Runtime{Name: p.machine.Version.GetRuntimeName(), Version: p.machine.Version.GetRuntimeVersion(), Endpoint: p.machine.Endpoint},
		Events:   p.events,
		Problems: p.problems,
		Checks:   []kubeletapi.Check{{Name: "manifests", Run: p.sourcesError, Notes: p.problemNotes}},
		Configz:  p.configz,
		Metrics:  p.metrics.Main(), ProbeMetrics: p.metrics.Probes(),
		ResourceMetrics: p.metrics.Resource(p.agent.Summary),
		Page:            page.Handler(),
		SLIMetrics:      p.metrics.Health(),
		Pprof:           p.opts.EnableProfilingHandler && p.opts.EnableDebuggingHandlers,
		NoDebugging:     !p.opts.EnableDebuggingHandlers,
		Flags:           p.flags,
		Observer:        kubeletapi.Observer{Request: p.metrics.Request, Checked: p.metrics.Checked},
		Access:          p.opts.Access,
		Logger:          p.log,
	}
	if p.host.Cgroups != nil { // nil on operating systems without cgroups
		cfg.CadvisorMetrics = p.metrics.Cadvisor(metrics.CadvisorSource{Usage: p.host.Cgroups, Pods: p.agent.Pods, Node: p.agent.Node})
	}
	if p.opts.EnableDebuggingHandlers {
		cfg.PodLogs = p.machine.PodLogs
		if p.opts.Access.Authenticates() { // without this check, all users of this machine could run commands in containers and restart pods
			cfg.Streams, cfg.Operations = p.machine.Runtime, p.agent
			cfg.WebSocketStream = p.metrics.WebSocketStream
			p.serveDebugging(&cfg)
		}
	}
	return cfg
}

// listen opens the listeners of the HTTP server. For each listener it returns a function that
// serves the listener.
func (p *program) listen(ctx context.Context) (serve []func(context.Context) error, err error) {
	listener, err := p.server.Listen(ctx, p.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	opened := []net.Listener{listener}
	serve = append(serve, func(ctx context.Context) error { return p.server.Run(ctx, listener) })
	p.console.printf("listening on %s", p.opts.Access.URL(listener.Addr()))
	for _, more := range []struct {
		flag, address, serves string
		run                   func(context.Context, net.Listener) error
	}{
		{"--healthz-port", p.opts.HealthListen, "health checks", p.server.RunHealth},
		{"--read-only-port", p.opts.ReadOnlyListen, "health, pods, statistics and metrics to everybody", p.server.RunReadOnly},
	} {
		if more.address == "" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", more.address)
		if err != nil {
			for _, l := range opened {
				err = errors.Join(err, l.Close())
			}
			return nil, fmt.Errorf("%s: %w", more.flag, err)
		}
		opened = append(opened, listener)
		serve = append(serve, func(ctx context.Context) error { return more.run(ctx, listener) })
		p.console.printf("serving %s on http://%s", more.serves, listener.Addr())
	}
	return serve, nil
}

// configz returns the configuration in use, in the kubelet's format. Values that may be secret are
// masked or left out.
func (p *program) configz() map[string]any {
	settings := p.opts.Settings
	settings.StaticPodURL = withoutSecrets(settings.StaticPodURL)
	settings.StaticPodURLHeader = map[string][]string{}
	for name := range p.opts.StaticPodURLHeader {
		settings.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return map[string]any{"kubeletconfig": settings}
}

// withoutSecrets returns a URL without its query, and with its password masked. An invalid URL
// becomes the empty string.
func withoutSecrets(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	u.RawQuery = ""
	return u.Redacted()
}

// problems returns the errors in manifests, and what the agent reports about its sources: pods that
// are not valid or that more than one source defines.
func (p *program) problems() (all []kubeletapi.Problem) {
	for _, problem := range p.manifests.problems() {
		err := problem.Err
		if problem.Document > 0 {
			err = fmt.Errorf("document %d: %w", problem.Document, err)
		}
		all = append(all, kubeletapi.Problem{File: problem.File, Err: err})
	}
	for _, note := range p.health("sources").Notes {
		all = append(all, kubeletapi.Problem{File: "the agent", Err: errors.New(note)})
	}
	return all
}

// Until the agent has read the folder and the URL of manifests once, sourcesError returns the
// problem of the folder or the URL. Afterwards sourcesError returns nil, even if a later read
// fails.
func (p *program) sourcesError() error {
	if p.health("sources").Err == nil {
		return nil
	}
	for _, problem := range p.manifests.problems() {
		if problem.File == p.manifests.dir {
			return problem
		}
	}
	if p.manifests.url != nil {
		for _, problem := range p.manifests.url.Problems() {
			return problem
		}
	}
	return nil
}

// health returns the health check of a part of the agent.
func (p *program) health(part string) agent.Check {
	for _, c := range p.agent.Health() {
		if c.Name == part {
			return c
		}
	}
	return agent.Check{}
}

func (p *program) problemNotes() (notes []string) {
	for _, problem := range p.manifests.problems() {
		notes = append(notes, problem.Error())
	}
	return notes
}

// observers returns callbacks that print changes of pods and of the node.
func (p *program) observers() agent.Observers {
	return agent.Observers{
		Statuses: status.Observer{StatusChanged: p.console.changed},
		Pod:      p.podMoved,
		Eviction: eviction.Observer{
			ConditionsChanged: func(conditions []corev1.NodeConditionType) { p.console.pressure(p.opts.NodeName, conditions) },
		},
	}
}

// podMoved prints a line when the agent has adopted or removed a pod.
func (p *program) podMoved(m agent.Move) {
	switch {
	case m.Adopted && m.To == agent.Admitted:
		p.adopted.Add(1)
		p.console.line(m.Pod.Namespace, m.Pod.Name, "adopted: the pod ran before this agent started")
	case m.Pod.Name == "": // the agent knows only the UID: it has removed files of a pod that ended before this agent started
	case m.From == agent.Ended: // the pod is removed, or will start again
		p.console.removed(m.Pod)
	}
}

// defined returns how many pods the manifests define.
func (p *program) defined() (n int) {
	for _, pod := range p.agent.Pods() {
		if pod.Source != "" {
			n++
		}
	}
	return n
}

// showNode prints the number of defined pods when the agent has read all sources. It prints each
// change of the runtime's readiness, until ctx is done.
func (p *program) showNode(ctx context.Context) error {
	counted, down := false, false
	for range p.agent.Changes(ctx) {
		if !counted && p.health("sources").Err == nil {
			counted = true
			p.console.printf("pods defined in %s: %d", strings.Join(p.manifests.places(), " and "), p.defined())
		}
		err := p.health("runtime").Err
		switch {
		case errors.Is(err, agent.ErrRuntimeStatusUnknown):
		case err != nil && !down:
			p.console.node(p.opts.NodeName, fmt.Sprintf("the runtime is not ready: %v", err))
			down = true
		case err == nil && down:
			p.console.node(p.opts.NodeName, "the runtime is ready again")
			down = false
		}
	}
	return nil
}
