package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/api"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/describe"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server"
	"github.com/kubeparts/kubeparts/examples/minimal-agent/server/page"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/prober"
)

// lastEvents is how many events a pod is shown with.
const lastEvents = 5

// newServer wires what the agent says over HTTP.
func (a *agent) newServer() (err error) {
	a.answers = answers{
		summary: newShared(a.summary), running: newShared(a.runningPods), garbage: newShared(a.planGC), pressure: newShared(a.evaluate),
	}
	a.addMetrics()
	cfg := server.Config{
		Checks:       a.checks(),
		Status:       a.status,
		Explain:      a.explain,
		Events:       a.events.ring,
		Pods:         a.podsWithStatus,
		RunningPods:  a.answers.running.get,
		Summary:      a.answers.summary.get,
		Configz:      a.configz,
		EvictionPlan: a.planEviction,
		GCPlan:       a.answers.garbage.get,
		Metrics:      a.node.metrics.page(a.node.metrics.registry), ProbeMetrics: a.node.metrics.page(a.node.metrics.probes),
		ResourceMetrics: a.resourceMetrics(),
		Page:            page.Handler(),

		Pprof:  a.opts.EnableProfilingHandler && a.opts.EnableDebuggingHandlers,
		Access: a.opts.access,
		Logger: a.log,
	}
	if a.opts.EnableDebuggingHandlers {
		cfg.Logs = a.findLog
	}
	a.server, err = server.New(cfg)
	return err
}

// configz is the configuration in use, in the kubelet's form, without what may be
// secret.
func (a *agent) configz() map[string]any {
	settings := a.opts.Settings
	settings.StaticPodURLHeader = map[string][]string{}
	for name := range a.opts.StaticPodURLHeader {
		settings.StaticPodURLHeader[name] = []string{"<masked>"}
	}
	return map[string]any{"kubeletconfig": settings}
}

// checks are the parts of the agent and how they are, in the order of what depends on
// what.
func (a *agent) checks() []server.Check {
	return []server.Check{
		{Name: "runtime", Run: a.runtime.get, Patient: a.runtimeDown},
		{Name: "pleg", Run: a.pleg.Healthy, Notes: a.plegNotes},
		{Name: "manifests", Run: a.sourceReady, Notes: a.problems},
		{Name: "workers", Run: alive, Notes: func() []string { return []string{fmt.Sprintf("%d pods", len(a.pods.GetPods()))} }},
		{Name: "probes", Run: alive},
		{Name: "eviction", Run: alive, Notes: a.evictionNotes},
		{Name: "images", Run: alive, Notes: a.passes.notes("images")},
		{Name: "containers", Run: alive, Notes: a.passes.notes("containers")},
		{Name: "logs", Run: alive, Notes: a.passes.notes("logs")},
		{Name: "oom", Run: alive, Notes: a.oomNotes},
		{Name: "publish", Run: alive},
	}
}

// status is one look at the whole agent.
func (a *agent) status(ctx context.Context) api.Status {
	s := api.Status{
		Now:      time.Now(),
		Agent:    api.Agent{Name: a.opts.agentName, Version: version(), Started: a.began, Adopted: a.startup.count()},
		Runtime:  api.Runtime{Name: a.node.runtimeName, Version: a.node.runtimeVersion, Endpoint: a.node.endpoint},
		Node:     a.nodeNow(),
		Managers: []api.Manager{},
		Signals:  a.signals(),
		Pods:     []api.Pod{},
		Problems: a.problems(),
	}
	for _, c := range a.checks() {
		m := api.Manager{Name: c.Name, OK: true}
		if err := c.Run(); err != nil {
			m.OK, m.Message = false, err.Error()
		} else if c.Notes != nil {
			m.Message = strings.Join(c.Notes(), "; ")
		}
		s.Managers = append(s.Managers, m)
	}
	used := a.usage(ctx)
	for _, p := range append(a.podsWithStatus(), a.podsLeaving()...) {
		s.Pods = append(s.Pods, describe.Pod(a.podFacts(p, used)))
	}
	slices.SortFunc(s.Pods, func(a, b api.Pod) int {
		if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return s
}

// podFacts is what is known of a pod that has its newest status.
func (a *agent) podFacts(p *corev1.Pod, used podUsage) describe.Facts {
	f := describe.Facts{
		Pod: p, Terminating: a.isLeaving(p.UID) || a.workers.IsPodTerminationRequested(p.UID) && !a.workers.IsPodKnownTerminated(p.UID),
		Probes: map[string][]describe.Probe{},
		Events: a.events.ring.About("Pod", p.Namespace, p.Name, lastEvents),
	}
	f.Usage, f.Containers = used.pods[p.UID], used.containers[p.UID]
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for kind, spec := range map[prober.Kind]*corev1.Probe{
			prober.Startup: c.StartupProbe, prober.Readiness: c.ReadinessProbe, prober.Liveness: c.LivenessProbe,
		} {
			if spec == nil {
				continue
			}
			key := prober.Key{PodUID: p.UID, Container: c.Name, Kind: kind}
			f.Probes[c.Name] = append(f.Probes[c.Name], describe.Probe{
				Kind: kind, Spec: spec, Result: a.probes.Result(key, a.containerID(p.UID, c.Name)), Runs: a.probes.History(key),
			})
		}
		slices.SortFunc(f.Probes[c.Name], func(a, b describe.Probe) int { return int(a.Kind) - int(b.Kind) })
	}
	return f
}

// podsLeaving are copies of the pods that no manifest asks for any more and that are
// not gone yet, with their last status.
func (a *agent) podsLeaving() (pods []*corev1.Pod) {
	a.mu.Lock()
	leaving := slices.Collect(maps.Values(a.leaving))
	a.mu.Unlock()
	for _, p := range leaving {
		pods = append(pods, a.withStatus(p))
	}
	return pods
}

func (a *agent) isLeaving(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.leaving[uid] != nil
}

// withStatus returns a copy of the pod with its newest status.
func (a *agent) withStatus(p *corev1.Pod) *corev1.Pod {
	shown := *p
	if s, ok := a.statuses.GetPodStatus(p.UID); ok {
		shown.Status = s
	}
	return &shown
}

// containerID is the id of the newest container of that name, empty if there is none.
func (a *agent) containerID(uid types.UID, name string) string {
	s, err := a.cache.Get(uid)
	if err != nil {
		return ""
	}
	return s.Container(name).GetId()
}

// runningPods asks the runtime what runs, in the kubelet's form: names and images.
func (a *agent) runningPods(ctx context.Context) ([]*corev1.Pod, error) {
	boxes, err := a.node.cri.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: a.ownLabels(),
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	containers, err := a.node.cri.ListContainers(ctx, &runtimeapi.ContainerFilter{
		LabelSelector: a.ownLabels(),
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	byUID := map[types.UID]*corev1.Pod{}
	pods := []*corev1.Pod{}
	pod := func(labels map[string]string) *corev1.Pod {
		uid := crilabels.UID(labels)
		if p := byUID[uid]; p != nil || uid == "" {
			return p
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: labels[crilabels.PodNamespace], Name: labels[crilabels.PodName], UID: uid,
		}}
		byUID[uid], pods = p, append(pods, p)
		return p
	}
	for _, b := range boxes {
		pod(b.GetLabels())
	}
	for _, c := range containers {
		if p := pod(c.GetLabels()); p != nil {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
				Name: c.GetLabels()[crilabels.ContainerName], Image: cmp.Or(c.GetImage().GetUserSpecifiedImage(), c.GetImage().GetImage()),
			})
		}
	}
	return pods, nil
}

// gcPlan is what the collectors of garbage would do.
type gcPlan struct {
	Images     imagegc.Plan     `json:"images"`
	Containers containergc.Plan `json:"containers"`
}

func (p gcPlan) String() string {
	return fmt.Sprintf("containers:\n%s\nimages:\n%s", p.Containers, p.Images)
}

func (a *agent) planGC(ctx context.Context) (server.Plan, error) {
	images, errImages := a.imageGC.Plan(ctx)
	containers, errContainers := a.containerGC.Plan(ctx)
	return gcPlan{images, containers}, errors.Join(errImages, errContainers)
}

// notFound is the answer to a question about a pod that nobody knows.
func notFound(format string, args ...any) error {
	return &server.StatusError{Code: http.StatusNotFound, Message: fmt.Sprintf(format, args...)}
}
