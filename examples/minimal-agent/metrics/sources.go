package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// Sources are asked when a scrape comes. What they return is read before the scrape is
// answered and not kept or modified. A nil one has nothing to say, and its metrics are
// missing.
type Sources struct {
	// Desired returns the pods that are to run: podmanager's GetPods.
	Desired func() []*corev1.Pod
	// Mirrors returns the number of mirror pods: 0 without an API server.
	Mirrors func() int
	// Known returns what the workers know: [podworker.Workers.KnownPods].
	Known func() map[types.UID]podworker.Known
	// Observed returns what the runtime shows: [podcache.Cache.Statuses].
	Observed func() []*podcache.Status
	// Summary measures what node, pods and containers use; with an error what it
	// could measure all the same. stats.Provider's method of that name fits.
	Summary func(context.Context) (*statsapi.Summary, error)
}

// state collects what the sources say of pods.
type state struct {
	Sources
	kills func([]*podcache.Status) map[victim]uint64

	desired, active, mirrors, ephemeral *prometheus.Desc
	working                             *prometheus.Desc
	pods, containers, oom               *prometheus.Desc
}

func newState(s Sources, prefix string, kills func([]*podcache.Status) map[victim]uint64) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, alpha+help, labels, nil)
	}
	return &state{
		Sources: s, kills: kills,
		desired:    desc("desired_pods", "Pods that are to run. static is true for those of no API server.", "static"),
		active:     desc("active_pods", "Desired pods that have not ended and were not refused: those that a new one has to fit in with.", "static"),
		mirrors:    desc("mirror_pods", "Pods in the API server that stand for static ones."),
		ephemeral:  desc("managed_ephemeral_containers", "Ephemeral containers in the specs of the desired pods."),
		working:    desc("working_pods", "Pods that have a worker, by how far they have come, by whether they are still desired (orphan: not any more; runtime_only: nobody knows their spec), and whether they are static.", "lifecycle", "config", "static"),
		pods:       desc("running_pods", "Pods with a sandbox that runs."),
		containers: desc("running_containers", "Containers in the runtime, by their state.", "container_state"),
		oom: prometheus.NewDesc("container_oom_events_total",
			alpha+"Kills for want of memory, by container; without one those that hit none.", []string{"container", "namespace", "pod"}, nil),
	}
}

// Describe is for [prometheus.Collector].
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.desired, s.active, s.mirrors, s.ephemeral, s.working, s.pods, s.containers, s.oom} {
		ch <- d
	}
}

// Collect is for [prometheus.Collector].
func (s *state) Collect(ch chan<- prometheus.Metric) {
	var known map[types.UID]podworker.Known
	if s.Known != nil {
		known = s.Known()
		s.collectKnown(ch, known)
	}
	if s.Desired != nil {
		s.collectDesired(ch, known)
	}
	if s.Mirrors != nil {
		ch <- gauge(s.mirrors, s.Mirrors())
	}
	if s.Observed != nil {
		s.collectObserved(ch, s.Observed())
	}
}

func gauge(d *prometheus.Desc, n int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func (s *state) collectDesired(ch chan<- prometheus.Metric, known map[types.UID]podworker.Known) {
	desired, active := map[string]int{"": 0, "true": 0}, map[string]int{"": 0, "true": 0}
	ephemeral := 0
	for _, p := range s.Desired() {
		if p == nil {
			continue
		}
		desired[static(p)]++
		ephemeral += len(p.Spec.EphemeralContainers)
		if k, ok := known[p.UID]; ok && k.Phase < podworker.Terminated {
			active[static(p)]++
		}
	}
	for label, n := range desired {
		ch <- gauge(s.desired, n, label)
		if s.Known != nil {
			ch <- gauge(s.active, active[label], label)
		}
	}
	ch <- gauge(s.ephemeral, ephemeral)
}

// A standing is how a pod stands with its worker: the labels of working_pods.
type standing struct{ lifecycle, config, static string }

func (s *state) collectKnown(ch chan<- prometheus.Metric, known map[types.UID]podworker.Known) {
	counts := map[standing]int{}
	for _, phase := range []podworker.Phase{podworker.Syncing, podworker.Terminating, podworker.Terminated} {
		counts[stands(podworker.Known{Phase: phase})] = 0
		for _, orphan := range []bool{false, true} {
			for _, static := range []bool{false, true} {
				counts[stands(podworker.Known{Phase: phase, Orphan: orphan, Static: static, HasConfig: true})] = 0
			}
		}
	}
	for _, k := range known {
		counts[stands(k)]++
	}
	for l, n := range counts {
		ch <- gauge(s.working, n, l.lifecycle, l.config, l.static)
	}
}

func stands(k podworker.Known) standing {
	s := standing{lifecycle: "terminated", config: "desired"}
	switch k.Phase {
	case podworker.Syncing:
		s.lifecycle = "sync"
	case podworker.Terminating:
		s.lifecycle = "terminating"
	case podworker.Terminated, podworker.Finished:
	}
	switch {
	case !k.HasConfig:
		s.config, s.static = "runtime_only", "unknown"
		return s
	case k.Orphan:
		s.config = "orphan"
	}
	if k.Static {
		s.static = "true"
	}
	return s
}

func (s *state) collectObserved(ch chan<- prometheus.Metric, pods []*podcache.Status) {
	running, states := 0, map[string]int{"created": 0, "running": 0, "exited": 0, "unknown": 0}
	names := make(map[types.UID]*podcache.Status, len(pods))
	for _, p := range pods {
		names[p.UID] = p
		if p.ReadySandbox() != nil {
			running++
		}
		for _, c := range p.Containers {
			states[containerState(c.GetState())]++
		}
	}
	ch <- gauge(s.pods, running)
	for state, n := range states {
		ch <- gauge(s.containers, n, state)
	}
	type labels struct{ container, namespace, pod string }
	hits := map[labels]uint64{} // of pods of one name, of which there may be two for a while, together
	for v, n := range s.kills(pods) {
		l := labels{container: safe(v.container)}
		if p := names[v.uid]; p != nil {
			l.namespace, l.pod = safe(p.Namespace), safe(p.Name)
		}
		hits[l] += n
	}
	for l, n := range hits {
		ch <- prometheus.MustNewConstMetric(s.oom, prometheus.CounterValue, float64(n), l.container, l.namespace, l.pod)
	}
}

func containerState(s runtimeapi.ContainerState) string {
	switch s {
	case runtimeapi.ContainerState_CONTAINER_CREATED:
		return "created"
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		return "running"
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		return "exited"
	case runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return "unknown"
	default:
		return "unknown"
	}
}
