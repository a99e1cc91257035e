package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

// startMetrics has the pod startup latency of Kubernetes' scalability SLOs, see
// https://github.com/kubernetes/community/blob/master/sig-scalability/slos/pod_startup_latency.md.
type startMetrics struct {
	sli, total   prometheus.Histogram
	firstNetwork prometheus.Gauge
}

func newStarts(f *maker) startMetrics {
	buckets := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	return startMetrics{
		sli: f.histogram("pod_start_sli_duration_seconds",
			"Time from the creation of a pod until all its containers had started, without image pulls and init containers.", buckets),
		total: f.histogram("pod_start_total_duration_seconds",
			"Time from the creation of a pod until all its containers had started, with image pulls and init containers.", buckets),
		firstNetwork: f.gauge("first_network_pod_start_sli_duration_seconds",
			"Value of pod_start_sli_duration_seconds for the first pod that did not use the network of the node."),
	}
}

// starting has the times of a pod whose containers have not all started yet.
type starting struct {
	began     time.Time // creation of the pod
	pulls     []images.PullWait
	initTimes map[string]time.Duration // durations of init containers, by container ID
}

// statusChanged records the start of a pod. A pod that ran before the agent started is not
// recorded.
func (m *Metrics) statusChanged(c status.Change) {
	if c.Pod == nil {
		return
	}
	uid, terminal := c.Pod.UID, podspec.IsTerminal(c.New.Phase)
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.starting[uid]
	if c.Version == 1 && !terminal && !m.startedBefore(c) {
		s = &starting{began: m.createdAt(c.Pod), initTimes: map[string]time.Duration{}}
		m.starting[uid] = s
	}
	switch {
	case s == nil:
	case terminal:
		delete(m.starting, uid)
	default:
		s.addInit(c)
		if allStarted(c.New) {
			delete(m.starting, uid)
			m.recordStart(c.Pod, s)
		}
	}
}

// startedBefore reports whether the pod of a change was started by an earlier agent.
func (m *Metrics) startedBefore(c status.Change) bool {
	limit := m.began.Truncate(time.Second) // times in a status have whole seconds
	return c.New.StartTime != nil && c.New.StartTime.Time.Before(limit) ||
		slices.ContainsFunc(c.New.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Running != nil && s.State.Running.StartedAt.Time.Before(limit)
		})
}

// createdAt returns when a pod was created: the creation time of its API object. For a static pod,
// it returns the time at which the agent received the pod.
func (m *Metrics) createdAt(pod *corev1.Pod) time.Time {
	if at := pod.CreationTimestamp.Time; !at.IsZero() {
		return at
	}
	if seen, ok := firstSeen(pod); ok {
		return seen
	}
	return m.cfg.Clock.Now()
}

// allStarted reports whether all regular containers run.
func allStarted(s corev1.PodStatus) bool {
	return len(s.ContainerStatuses) > 0 && !slices.ContainsFunc(s.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.State.Running == nil || c.State.Running.StartedAt.IsZero()
	})
}

// addInit adds the durations of the terminated instances of init containers. A running sidecar does
// not count, because it runs beside the other containers.
func (s *starting) addInit(c status.Change) {
	for i := range c.New.InitContainerStatuses {
		init := &c.New.InitContainerStatuses[i]
		for _, state := range []corev1.ContainerState{init.LastTerminationState, init.State} {
			if t := state.Terminated; t != nil {
				s.initTimes[t.ContainerID] = max(0, t.FinishedAt.Sub(t.StartedAt.Time))
			}
		}
	}
}

// recordStart records that all containers of a pod have started. Callers hold mu.
func (m *Metrics) recordStart(pod *corev1.Pod, s *starting) {
	took := m.cfg.Clock.Since(s.began)
	m.starts.total.Observe(max(0, took).Seconds())
	if isStateful(pod) {
		return
	}
	took -= totalOf(s.pulls)
	for _, d := range s.initTimes {
		took -= d
	}
	took = max(0, took)
	m.starts.sli.Observe(took.Seconds())
	if !pod.Spec.HostNetwork && !m.networkPodStarted {
		m.networkPodStarted = true
		m.starts.firstNetwork.Set(took.Seconds())
	}
}

// isStateful reports whether a pod has a volume of another type than Secret, ConfigMap, downward
// API, emptyDir and projected. The SLO does not apply to stateful pods.
func isStateful(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Secret == nil && v.ConfigMap == nil && v.DownwardAPI == nil && v.EmptyDir == nil && v.Projected == nil
	})
}

// totalOf returns the time in which at least one of the pulls ran.
func totalOf(pulls []images.PullWait) (total time.Duration) {
	slices.SortFunc(pulls, func(a, b images.PullWait) int { return cmp.Or(a.Began.Compare(b.Began), a.Ended.Compare(b.Ended)) })
	var end time.Time
	for _, p := range pulls {
		if p.Began.Before(end) {
			p.Began = end
		}
		if p.Ended.After(p.Began) {
			total += p.Ended.Sub(p.Began)
			end = p.Ended
		}
	}
	return total
}

// awaited records a pull of a pod that is starting.
func (m *Metrics) awaited(p images.PullWait) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.starting[p.PodUID]; s != nil {
		s.pulls = append(s.pulls, p)
	}
}

// statusRemoved deletes the times of a pod that was removed before all its containers had started.
func (m *Metrics) statusRemoved(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.starting, uid)
}
