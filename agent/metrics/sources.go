package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// A Source is what is known of one agent when a scrape comes. Its functions are called
// then, in any goroutine; they must not wait. What they return is read before the scrape is
// answered, and neither retained nor modified. The metrics of nil functions are missing.
type Source struct {
	// NodeName is the label of kubelet_node_name. Empty: the metric is missing.
	NodeName string
	// Desired returns the pods that are to run: podmanager's GetPods.
	Desired func() []*corev1.Pod
	// Mirrors returns the number of mirror pods: 0 without an API server.
	Mirrors func() int
	// Known returns what the workers know: [podworker.Workers.KnownPods].
	Known func() map[types.UID]podworker.Known
	// Observed returns what the runtime shows: [podcache.Cache.Statuses].
	Observed func() []*podcache.Status
	// RelistedAt returns when the newest relist that succeeded began: RelistedAt of
	// pleg.Stats. Zero: none has succeeded.
	RelistedAt func() time.Time
}

// Add includes an agent in each scrape from now on, until remove is called. Values of
// several agents are added up; kubelet_pleg_last_seen_seconds is that of the agent whose
// relist is the oldest. Call remove when the agent has ended: it also deletes the series of
// the agent's pods, for which it calls the functions of s a last time.
func (m *Metrics) Add(s Source) (remove func()) {
	added := &s
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = append(m.sources, added)
	return sync.OnceFunc(func() { m.remove(added) })
}

func (m *Metrics) remove(s *Source) {
	gone := s.pods()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sources = slices.DeleteFunc(m.sources, func(other *Source) bool { return other == s })
	for key := range m.runs {
		if gone[key.PodUID] {
			m.dropSeries(key)
		}
	}
	for v := range m.killed {
		if gone[v.uid] {
			delete(m.killed, v)
		}
	}
}

// pods returns the UIDs of all pods that the source has.
func (s *Source) pods() map[types.UID]bool {
	all := map[types.UID]bool{}
	if s.Desired != nil {
		for _, p := range s.Desired() {
			if p != nil {
				all[p.UID] = true
			}
		}
	}
	if s.Known != nil {
		for uid := range s.Known() {
			all[uid] = true
		}
	}
	if s.Observed != nil {
		for _, p := range s.Observed() {
			all[p.UID] = true
		}
	}
	return all
}

// added returns the sources in the order of Add.
func (m *Metrics) added() []*Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sources)
}

// state collects what the sources know.
type state struct {
	metrics *Metrics

	node, lastSeen                      *prometheus.Desc
	desired, active, mirrors, ephemeral *prometheus.Desc
	working                             *prometheus.Desc
	pods, containers, oom               *prometheus.Desc
}

func newState(m *Metrics, prefix string) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, alpha+help, labels, nil)
	}
	return &state{
		metrics:    m,
		node:       desc("node_name", "1, with the name of the node.", "node"),
		lastSeen:   desc("pleg_last_seen_seconds", "When the last look at all pods that succeeded began, as a Unix time."),
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
	for _, d := range []*prometheus.Desc{
		s.node, s.lastSeen, s.desired, s.active, s.mirrors, s.ephemeral, s.working, s.pods, s.containers, s.oom,
	} {
		ch <- d
	}
}

// Collect is for [prometheus.Collector].
func (s *state) Collect(ch chan<- prometheus.Metric) {
	t := tally{nodes: map[string]int{}}
	for _, source := range s.metrics.added() {
		t.add(source)
	}
	for node := range t.nodes {
		ch <- gauge(s.node, 1, safe(node))
	}
	if t.relisted != nil {
		ch <- prometheus.MustNewConstMetric(s.lastSeen, prometheus.GaugeValue, unixOrZero(*t.relisted))
	}
	for label, n := range t.desired {
		ch <- gauge(s.desired, n, label)
	}
	for label, n := range t.active {
		ch <- gauge(s.active, n, label)
	}
	if t.desired != nil {
		ch <- gauge(s.ephemeral, t.ephemeral)
	}
	if t.mirrors != nil {
		ch <- gauge(s.mirrors, *t.mirrors)
	}
	for l, n := range t.working {
		ch <- gauge(s.working, n, l.lifecycle, l.config, l.static)
	}
	if t.isObserved {
		s.collectObserved(ch, t.observed)
	}
}

func gauge(d *prometheus.Desc, n int, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
}

func unixOrZero(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return unix(t)
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
	for v, n := range s.metrics.kills(pods) {
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
