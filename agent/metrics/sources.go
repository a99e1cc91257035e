package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// Source has the functions that return the state of one agent. Metrics calls the functions
// during a scrape, in any goroutine, so they must not block. Metrics neither retains nor modifies
// their results. If a function is nil, its metrics are missing.
type Source struct {
	// NodeName is the label of kubelet_node_name. If NodeName is empty, the metric is missing.
	NodeName string
	// Desired returns the pods that should run, as GetPods of podmanager does.
	Desired func() []*corev1.Pod
	// Mirrors returns the number of mirror pods, or 0 if the agent has no API server.
	Mirrors func() int
	// Known returns the state of the pod workers, as [podworker.Workers.KnownPods] does.
	Known func() map[types.UID]podworker.Known
	// Observed returns the state of pods in the runtime, as [podcache.Cache.Statuses] does.
	Observed func() []*podcache.Status
	// RelistedAt returns the start time of the newest successful relist, as in pleg.Stats. It
	// returns zero if no relist has succeeded yet.
	RelistedAt func() time.Time
	// CgroupVersion returns the version of cgroups on the machine: 1 or 2, or 0 if the version
	// is unknown.
	CgroupVersion func() int
	// LogBytes returns the disk usage of the logs of containers.
	LogBytes func() []agent.LogUsage
}

// Add includes an agent in each scrape until remove is called. Values of several agents are added,
// with two exceptions. kubelet_pleg_last_seen_seconds has the oldest relist of all agents.
// kubelet_cgroup_version has the version of the last added agent that knows its version. Call
// remove when the agent has stopped. remove also deletes the series and records of the agent's pods.
// It gets the UIDs of these pods by a last call of Desired, Known and Observed.
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
	for uid := range gone {
		m.dropVolumes(uid)
		delete(m.starting, uid)
		delete(m.userPods, uid)
	}
}

// pods returns the UIDs of all pods of the source.
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

// added returns the sources in the order in which they were added.
func (m *Metrics) added() []*Source {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sources)
}

// state is the collector of the sources' metrics.
type state struct {
	metrics *Metrics

	node, lastSeen                      *prometheus.Desc
	desired, active, mirrors, ephemeral *prometheus.Desc
	working                             *prometheus.Desc
	pods, containers, oom               *prometheus.Desc
	cgroups, logs                       *prometheus.Desc
}

func newState(m *Metrics, prefix string) *state {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prefix+name, alpha+help, labels, nil)
	}
	return &state{
		metrics:    m,
		node:       desc("node_name", "The node's name as a label. The value is always 1.", "node"),
		lastSeen:   desc("pleg_last_seen_seconds", "Unix time at which the last successful relist started."),
		desired:    desc("desired_pods", "Pods that should run. static is true for pods that do not come from an API server.", "static"),
		active:     desc("active_pods", "Desired pods that have not ended and were not refused. Admission counts their resources.", "static"),
		mirrors:    desc("mirror_pods", "Mirror pods in the API server."),
		ephemeral:  desc("managed_ephemeral_containers", "Ephemeral containers in the specs of the desired pods."),
		working:    desc("working_pods", "Pods with a worker, by lifecycle phase, by config (desired; orphan: no longer desired; runtime_only: without a known spec), and whether they are static.", "lifecycle", "config", "static"),
		pods:       desc("running_pods", "Pods with a running sandbox."),
		cgroups:    desc("cgroup_version", "Version of cgroups on the machine."),
		logs:       desc("container_log_filesystem_used_bytes", "Bytes used by the logs of a container, rotated logs included.", "uid", "namespace", "pod", "container"),
		containers: desc("running_containers", "Containers in the runtime, by their state.", "container_state"),
		oom: prometheus.NewDesc("container_oom_events_total",
			alpha+"OOM kills by container. Kills without a container have empty labels.", []string{"container", "namespace", "pod"}, nil),
	}
}

// Describe implements [prometheus.Collector].
func (s *state) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.node, s.lastSeen, s.desired, s.active, s.mirrors, s.ephemeral, s.working, s.pods, s.containers, s.oom, s.cgroups, s.logs,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
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
	if t.cgroupVersion > 0 {
		ch <- gauge(s.cgroups, t.cgroupVersion)
	}
	for l, bytes := range t.logs {
		ch <- prometheus.MustNewConstMetric(s.logs, prometheus.GaugeValue, float64(bytes), l.uid, l.namespace, l.pod, l.container)
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
	hits := map[labels]uint64{} // two pods may have the same name for a while and then share a series
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
