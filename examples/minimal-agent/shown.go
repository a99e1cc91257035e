package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/page"
	"github.com/kubeparts/kubeparts/status"
)

// serverConfig returns what the HTTP server shows.
func (p *program) serverConfig() kubeletapi.Config {
	cfg := kubeletapi.Config{
		Agent: p.agent,
		Info: func() api.Agent {
			return api.Agent{Name: p.opts.AgentName, Version: version(), Started: p.began, Adopted: int(p.adopted.Load())}
		},
		Runtime:  api.Runtime{Name: p.machine.Version.GetRuntimeName(), Version: p.machine.Version.GetRuntimeVersion(), Endpoint: p.machine.Endpoint},
		Events:   p.events,
		Problems: p.problems,
		Checks:   []kubeletapi.Check{{Name: "manifests", Run: p.unread, Notes: p.problemNotes}},
		Configz:  p.configz,
		Metrics:  p.metrics.page(p.metrics.registry), ProbeMetrics: p.metrics.page(p.metrics.probes),
		ResourceMetrics: p.metrics.Resource(p.agent.Summary),
		Page:            page.Handler(),
		Pprof:           p.opts.EnableProfilingHandler && p.opts.EnableDebuggingHandlers,
		Access:          p.opts.Access,
		Logger:          p.log,
	}
	if p.opts.EnableDebuggingHandlers {
		cfg.PodLogs = p.machine.PodLogs
	}
	return cfg
}

// configz returns the configuration in use, in the kubelet's form, without what may be
// secret.
func (p *program) configz() map[string]any {
	settings := p.opts.Settings
	settings.StaticPodURLHeader = map[string][]string{}
	for name := range p.opts.StaticPodURLHeader {
		settings.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return map[string]any{"kubeletconfig": settings}
}

// problems returns the manifests that can't be used, and why.
func (p *program) problems() (all []kubeletapi.Problem) {
	for _, problem := range p.manifests.problems() {
		err := problem.Err
		if problem.Document > 0 {
			err = fmt.Errorf("document %d: %w", problem.Document, err)
		}
		all = append(all, kubeletapi.Problem{File: problem.File, Err: err})
	}
	return all
}

// unread returns why the manifests were not read yet, nil if they were or nobody knows.
func (p *program) unread() error {
	problems := p.manifests.problems()
	if p.health("sources") == nil || len(problems) == 0 {
		return nil
	}
	return problems[0] // the folder's
}

// health returns why a part of the agent can't do its work, nil if it can.
func (p *program) health(part string) error {
	for _, c := range p.agent.Health() {
		if c.Name == part {
			return c.Err
		}
	}
	return nil
}

func (p *program) problemNotes() (notes []string) {
	for _, problem := range p.problems() {
		notes = append(notes, problem.Error())
	}
	return notes
}

// observers print what becomes of pods and of the node.
func (p *program) observers() agent.Observers {
	return agent.Observers{
		Statuses: status.Observer{StatusChanged: p.console.changed},
		Pod:      p.moved,
		Eviction: eviction.Observer{
			ConditionsChanged: func(conditions []corev1.NodeConditionType) { p.console.pressure(p.opts.NodeName, conditions) },
			Evicted: func(pod *corev1.Pod, e eviction.Eviction, took time.Duration, err error) {
				p.log.Info("evicted", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "signal", e.Signal, "decided", e.At, "took", took, "err", err)
			},
		},
		Killed: func(k agent.OOMKill) { p.log.Warn("killed for want of memory", "kill", k.String()) },
	}
}

// moved prints which pods the agent has adopted, and of which nothing is left.
func (p *program) moved(m agent.Move) {
	switch {
	case m.Adopted && m.To == agent.Admitted:
		p.adopted.Add(1)
		p.console.line(m.Pod.Namespace, m.Pod.Name, "adopted: it ran before this agent")
	case m.From == agent.Ended: // it is removed, is gone, or begins again
		p.console.gone(m.Pod.Namespace, m.Pod.Name)
	}
}

// showNode prints, until ctx is done, how many pods there are once all sources have answered,
// and whenever the runtime stops or begins to be ready.
func (p *program) showNode(ctx context.Context) error {
	counted, down := false, false
	for range p.agent.Changes(ctx) {
		if !counted && p.health("sources") == nil {
			counted = true
			p.console.say("%d pods are asked for by %s", len(p.agent.Pods()), strings.Join(p.manifests.places(), " and "))
		}
		err := p.health("runtime")
		switch {
		case errors.Is(err, agent.ErrNotAsked):
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
