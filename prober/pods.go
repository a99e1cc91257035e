package prober

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// AddPod adds the probes in the specs of the pod's containers and sidecars. Call it on every
// sync of the pod. Existing probes continue with the newest spec, missing probes are added,
// and probes that the spec no longer contains are removed. If the pod is being deleted, or
// [Manager.StopLivenessAndStartup] was called for it, AddPod adds only readiness probes, or
// no probes if [Config].UnreadyOnStop is set. The Manager retains the pod; the caller must
// not modify the pod afterwards.
func (m *Manager) AddPod(spec *corev1.Pod) {
	for _, key := range m.add(spec) {
		m.cfg.Observer.Removed(key)
	}
	m.loop.Trigger()
}

// add adds the missing probes. It removes the probes that the spec no longer contains, and
// returns their keys.
func (m *Manager) add(spec *corev1.Pod) (removed []Key) {
	var options []Options // requested without holding the lock
	for c, k := range probesOf(spec) {
		options = append(options, m.cfg.Options(spec, c.Name, k))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[spec.UID]
	if known == nil && len(options) == 0 {
		return nil
	}
	if known == nil {
		known = &pod{}
		m.pods[spec.UID] = known
	}
	known.spec = spec
	known.stopping = known.stopping || spec.DeletionTimestamp != nil
	for c, k := range probesOf(spec) {
		switch p := known.find(c.Name, k); {
		case p != nil:
			p.container = c
		case k == Readiness && !m.unready(known) || !known.stopping:
			m.insert(known, c, k, options[0])
		}
		options = options[1:]
	}
	return m.prune(known)
}

// insert adds a probe.
func (m *Manager) insert(known *pod, c *corev1.Container, k Kind, o Options) {
	p := &probe{pod: known, container: c, kind: k, opts: o, count: count{result: Unknown}}
	known.probes = append(known.probes, p)
	m.schedule.put(p, m.cfg.Clock.Now())
}

// prune removes the probes that the newest spec no longer contains, and returns their keys.
func (m *Manager) prune(known *pod) (removed []Key) {
	for _, p := range slices.Clone(known.probes) {
		keep := false
		for c, k := range probesOf(known.spec) {
			keep = keep || c == p.container && k == p.kind
		}
		if !keep {
			removed = append(removed, p.key())
			m.removeProbe(p)
		}
	}
	return removed
}

// probesOf yields the probes in the pod's spec, in the order in which they are added.
func probesOf(spec *corev1.Pod) iter.Seq2[*corev1.Container, Kind] {
	return func(yield func(*corev1.Container, Kind) bool) {
		for c := range probedContainers(spec) {
			for k := Startup; k <= Liveness; k++ {
				if k.of(c) != nil && !yield(c, k) {
					return
				}
			}
		}
	}
}

// probedContainers yields the containers that may have probes: regular containers and
// sidecars.
func probedContainers(spec *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for c, init := range podspec.Containers(&spec.Spec) {
			if (!init || podspec.IsSidecar(c)) && !yield(c) {
				return
			}
		}
	}
}

// StopLivenessAndStartup removes the liveness and startup probes of all containers of the
// pod, including sidecars. Call it when the termination of the pod begins, so that the agent
// kills no container because of a probe any more. Runs in progress are cancelled. Readiness
// probes continue unless [Config].UnreadyOnStop is set.
func (m *Manager) StopLivenessAndStartup(uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	if known == nil && m.cfg.UnreadyOnStop {
		known = &pod{} // a pod without probes was ready until now and must become not ready
		m.pods[uid] = known
	}
	if known != nil {
		known.stopping = true
	}
	m.mu.Unlock()
	m.remove(uid, func(known *pod, p *probe) bool {
		if p.kind != Readiness {
			return true
		}
		unready := m.unready(known)
		if unready && p.id != "" && p.count.result != Failure {
			p.count.result = Failure
			m.publish(p)
		}
		return unready
	})
}

// unready reports whether UnreadyOnStop makes all containers of the pod not ready because the
// pod is terminating.
func (m *Manager) unready(known *pod) bool { return known.stopping && m.cfg.UnreadyOnStop }

// RemovePod removes all probes of the pod at once. Runs in progress are cancelled and not
// counted.
func (m *Manager) RemovePod(uid types.UID) {
	m.remove(uid, func(*pod, *probe) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// CleanupPods removes the pods for which the function keep returns false, and returns the
// number of removed pods. The function may call the Manager.
func (m *Manager) CleanupPods(keep func(types.UID) bool) (removed int) {
	m.mu.Lock()
	uids := make([]types.UID, 0, len(m.pods))
	for uid := range m.pods {
		uids = append(uids, uid)
	}
	m.mu.Unlock()
	slices.Sort(uids)
	for _, uid := range uids {
		if !keep(uid) {
			m.RemovePod(uid)
			removed++
		}
	}
	return removed
}

func (m *Manager) remove(uid types.UID, which func(*pod, *probe) bool) {
	m.mu.Lock()
	var keys []Key
	if known := m.pods[uid]; known != nil {
		for _, p := range slices.Clone(known.probes) {
			if which(known, p) {
				keys = append(keys, p.key())
				m.removeProbe(p)
			}
		}
	}
	m.mu.Unlock()
	for _, key := range keys {
		m.cfg.Observer.Removed(key)
	}
}

// removeProbe removes p. The caller holds mu.
func (m *Manager) removeProbe(p *probe) {
	p.removed = true
	m.schedule.Remove(p)
	p.interrupt()
	p.pod.probes = slices.DeleteFunc(p.pod.probes, func(q *probe) bool { return q == p })
}

// Refresh looks up the pod's containers now. Call it when containers have changed, for
// example after a pod lifecycle event. The readiness probe of an exited container becomes
// [Failure] at once, and the first run on a new container is due exactly when the initial
// delay is over. Without Refresh, the Manager notices exited and new containers within
// [Config].PollPeriod or the period of the probe.
func (m *Manager) Refresh(uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	if known == nil {
		m.mu.Unlock()
		return
	}
	known.refreshes++
	refreshes := known.refreshes
	var names []string
	for _, p := range known.probes {
		if !slices.Contains(names, p.container.Name) {
			names = append(names, p.container.Name)
		}
	}
	m.mu.Unlock()
	for _, name := range names {
		target, ok := m.cfg.Lookup(uid, name)
		m.mu.Lock()
		if ok && known.refreshes == refreshes { // if the numbers differ, a later Refresh has begun
			m.updateContainer(known, name, &target, m.cfg.Clock.Now())
		}
		m.mu.Unlock()
	}
	m.loop.Trigger()
}

// updateContainer applies the state of a container to all its probes. The caller holds mu.
func (m *Manager) updateContainer(known *pod, container string, t *Target, now time.Time) {
	for _, p := range known.probes {
		if p.container.Name != container {
			continue
		}
		if t.ID != "" && p.id != t.ID {
			m.adopt(p, t)
		}
		if t.State == Waiting || p.exited {
			continue
		}
		p.exited = t.State == Exited
		if p.exited {
			p.interrupt()
		}
		if p.isFirstRun && p.eligible.IsZero() { // the container has started
			p.eligible = m.firstRun(p, t, now)
			p.due = p.eligible
			if p.run == nil {
				m.schedule.put(p, p.eligible)
			}
		}
		if p.exited && p.kind == Readiness && p.count.result != Failure {
			p.count.result = Failure
			m.publish(p)
		}
	}
}

// adopt makes p a probe of a new container. It discards the state of the previous container,
// except the history.
func (m *Manager) adopt(p *probe, t *Target) {
	p.interrupt()
	p.command = nil
	p.id, p.exited, p.isFirstRun, p.eligible, p.scheduledFor = t.ID, false, true, time.Time{}, time.Time{}
	p.count = count{result: initialResult(p.kind)}
	switch {
	case !m.predates(t):
		if p.kind == Readiness {
			m.publish(p)
		}
	case p.kind == Startup && t.Started:
		p.count = count{result: Success, final: true}
	default:
		p.count.result = Unknown
	}
}

// predates reports whether the container was started before the Manager was created. Such a
// container keeps its reported state until its probes have a result (KEP-4781).
func (m *Manager) predates(t *Target) bool {
	return !t.StartedAt.IsZero() && t.StartedAt.Before(m.start)
}

// firstRun returns when the first run on a running container is due: when the initial delay
// is over. If the container was started before the Manager was created, the first run is due
// no earlier than a random time of up to ten seconds from now, because the Manager finds many
// such containers at once.
func (m *Manager) firstRun(p *probe, t *Target, now time.Time) time.Time {
	timing := p.timing()
	at := now.Add(timing.delay - max(0, now.Sub(t.StartedAt)))
	if m.predates(t) {
		return later(at, now.Add(spread(m.seed, p.key(), min(timing.period, adoptSpread))))
	}
	return at
}

func (p *probe) facts(t *Target, known bool, now time.Time) facts {
	s := p.pod.find(p.container.Name, Startup)
	return facts{
		kind: p.kind, target: *t, known: known,
		stopping: p.pod.stopping, final: p.count.final, started: s == nil && p.kind != Startup || s != nil && s.count.result == Success,
		eligible: p.eligible, now: now,
	}
}

// Trigger requests a run of the probe now, in addition to its schedule. A failure of that run
// is not counted, because thresholds count failures that are a period apart. Trigger does
// nothing if the probe does not exist, is due, or has a run in progress.
func (m *Manager) Trigger(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.find(key), m.cfg.Clock.Now()
	if p == nil || p.run != nil || !p.due.After(now) {
		return
	}
	p.scheduledFor = p.due
	m.schedule.put(p, now)
	m.loop.Trigger()
}

// Result returns the result of the probe for the container with the given CRI ID. It
// returns Unknown if the probe has no state of that container, and NoProbe if the probe
// does not exist. For readiness in a terminating pod, it always returns Failure if
// [Config].UnreadyOnStop is set.
func (m *Manager) Result(key Key, id string) Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.result(key, id)
}

func (m *Manager) result(key Key, id string) Result {
	if known := m.pods[key.PodUID]; known != nil && key.Kind == Readiness && m.unready(known) {
		return Failure
	}
	switch p := m.find(key); {
	case p == nil:
		return NoProbe
	case p.id != id:
		return Unknown
	default:
		return p.count.result
	}
}

// History returns the last runs of the probe, the oldest first, or nil if the probe does not
// exist.
func (m *Manager) History(key Key) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.find(key)
	if p == nil {
		return nil
	}
	return slices.Clone(p.history)
}
