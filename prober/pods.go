package prober

import (
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// AddPod adds the probes that the pod's containers and sidecars ask for. It may be
// called as often as one likes, and should be on every sync: probes that are there
// go on, by the newest spec, and those that are missing are added. A pod that is
// being deleted gets readiness probes only. The pod is retained and must not be
// modified any more.
func (m *Manager) AddPod(spec *corev1.Pod) {
	for _, key := range m.add(spec) {
		m.cfg.Observer.Removed(key)
	}
	m.loop.Trigger()
}

// add returns what is not wanted any more.
func (m *Manager) add(spec *corev1.Pod) (removed []Key) {
	var options []Options // asked for without the lock
	for c, k := range wanted(spec) {
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
	for c, k := range wanted(spec) {
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
	m.agenda.put(p, m.cfg.Clock.Now())
}

// prune drops probes whose container, or that of an older spec, does not ask for
// them any more.
func (m *Manager) prune(known *pod) (removed []Key) {
	for _, p := range slices.Clone(known.probes) {
		stays := false
		for c, k := range wanted(known.spec) {
			stays = stays || c == p.container && k == p.kind
		}
		if !stays {
			removed = append(removed, p.key())
			m.drop(p)
		}
	}
	return removed
}

// wanted yields the probes that the pod asks for, in the order in which they are
// added.
func wanted(spec *corev1.Pod) iter.Seq2[*corev1.Container, Kind] {
	return func(yield func(*corev1.Container, Kind) bool) {
		for c := range probed(spec) {
			for k := Startup; k <= Liveness; k++ {
				if k.of(c) != nil && !yield(c, k) {
					return
				}
			}
		}
	}
}

// probed yields the containers that may have probes: regular ones and sidecars.
func probed(spec *corev1.Pod) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for c, init := range podspec.Containers(&spec.Spec) {
			if (!init || podspec.IsSidecar(c)) && !yield(c) {
				return
			}
		}
	}
}

// StopLivenessAndStartup ends these probes of all containers of the pod, sidecars
// included, because it is being ended; nothing is to be killed for them any more.
// Readiness goes on, unless [Config].UnreadyOnStop is set. What is in flight is cut
// short.
func (m *Manager) StopLivenessAndStartup(uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	if known == nil && m.cfg.UnreadyOnStop {
		known = &pod{} // one without probes was ready all the time
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

// unready says whether nothing of the pod is ready because it is being ended.
func (m *Manager) unready(known *pod) bool { return known.stopping && m.cfg.UnreadyOnStop }

// RemovePod ends all probes of the pod, at once. What is in flight is cut short
// and counts for nothing.
func (m *Manager) RemovePod(uid types.UID) {
	m.remove(uid, func(*pod, *probe) bool { return true })
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}

// CleanupPods removes the pods that keep does not want and returns how many those
// were. keep may call the Manager.
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
				m.drop(p)
			}
		}
	}
	m.mu.Unlock()
	for _, key := range keys {
		m.cfg.Observer.Removed(key)
	}
}

// drop takes p out. It needs mu.
func (m *Manager) drop(p *probe) {
	p.removed = true
	m.agenda.Remove(p)
	p.interrupt()
	p.pod.probes = slices.DeleteFunc(p.pod.probes, func(q *probe) bool { return q == p })
}

// Refresh looks at the pod's containers now. Call it when they have changed, as
// seen by the pod lifecycle events: it makes an ended container unready and gives
// a new one its first run exactly when its initial delay is over. Without it, both
// are seen within [Config].PollPeriod or a period.
func (m *Manager) Refresh(uid types.UID) {
	m.mu.Lock()
	known := m.pods[uid]
	if known == nil {
		m.mu.Unlock()
		return
	}
	known.looks++
	looks := known.looks
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
		if ok && known.looks == looks { // or a later Refresh is under way
			m.see(known, name, &target, m.cfg.Clock.Now())
		}
		m.mu.Unlock()
	}
	m.loop.Trigger()
}

// see applies what is known of a container to all its probes. It needs mu.
func (m *Manager) see(known *pod, container string, t *Target, now time.Time) {
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
		if p.first && p.eligible.IsZero() { // it runs now and did not before
			p.eligible = m.firstRun(p, t, now)
			p.due = p.eligible
			if p.run == nil {
				m.agenda.put(p, p.eligible)
			}
		}
		if p.exited && p.kind == Readiness && p.count.result != Failure {
			p.count.result = Failure
			m.publish(p)
		}
	}
}

// adopt makes p that of a new container. What is known of its predecessor says
// nothing about it.
func (m *Manager) adopt(p *probe, t *Target) {
	p.interrupt()
	p.command = nil
	p.id, p.exited, p.first, p.eligible, p.turn = t.ID, false, true, time.Time{}, time.Time{}
	p.count = count{result: initial(p.kind)}
	switch {
	case !m.predates(t):
		if p.kind == Readiness {
			m.publish(p)
		}
	case p.kind == Startup && t.Started:
		p.count = count{result: Success, hold: true}
	default:
		p.count.result = Unknown
	}
}

// predates says whether the container was there before the Manager. What was said
// of it by another one then stands until there is evidence (KEP-4781).
func (m *Manager) predates(t *Target) bool {
	return !t.StartedAt.IsZero() && t.StartedAt.Before(m.start)
}

// firstRun returns when the first run on a container that runs is due: when its
// initial delay is over, or, on one that was there before the Manager, a little
// later, because there are many of those at once.
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
		kind: p.kind, pod: p.pod.spec, container: p.container, target: *t, known: known,
		stopping: p.pod.stopping, hold: p.count.hold, started: s == nil && p.kind != Startup || s != nil && s.count.result == Success,
		eligible: p.eligible, now: now,
	}
}

// Trigger has the probe run now, in addition to its schedule. A failure of that run is not
// counted, since the thresholds count failures a period apart. It does nothing if the probe
// runs, is due, or does not exist.
func (m *Manager) Trigger(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, now := m.find(key), m.cfg.Clock.Now()
	if p == nil || p.run != nil || !p.due.After(now) {
		return
	}
	p.turn = p.due
	m.agenda.put(p, now)
	m.loop.Trigger()
}

// Result returns what the probe's runs amount to for the container with the given
// CRI id; Unknown if they are about another one.
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

// History returns the last runs of the probe, oldest first.
func (m *Manager) History(key Key) []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.find(key)
	if p == nil {
		return nil
	}
	return slices.Clone(p.history)
}
