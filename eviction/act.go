package eviction

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cleanupTimeout is how long the disk space of an ended pod is waited for.
const cleanupTimeout = 30 * time.Second

// A kill is the eviction of a pod that is under way, or was until a moment ago.
type kill struct {
	pod      *corev1.Pod
	eviction Eviction
	flight   InFlight
	began    time.Time
	calls    int // of the killer, under way
	overdue  bool
	adopted  bool // a manager before this one has begun it
}

// deadline is when an eviction that was begun now is no longer counted on.
func deadline(now time.Time, grace int64) time.Time {
	return now.Add(max(10*time.Second, time.Duration(grace)*time.Second*3/2))
}

// act begins what was decided.
func (m *Manager) act(ctx context.Context, d *Decision, stats map[types.UID]*PodStats) {
	if r := d.urgent; r != nil && m.tell(r.Threshold.Signal.resource(), d.At) && r.Why == whyNobody {
		m.cfg.Logger.WarnContext(ctx, "no pod can be evicted, the node stays short",
			"threshold", r.Threshold.String(), "available", r.Threshold.Signal.amount(r.Observation.Available))
	}
	for _, r := range d.Reclaim {
		m.tell(r.Signal.resource(), d.At)
		m.reclaim(ctx, r, d.At)
	}
	if d.Signal != "" {
		m.tell(d.Signal.resource(), d.At)
	}
	for _, uid := range d.Escalate {
		m.escalate(ctx, uid, d.At)
	}
	for _, l := range d.Limits {
		e := Eviction{Signal: l.Signal, GracePeriodSeconds: immediateGrace, Message: l.Message, At: d.At, generation: l.Pod.Generation}
		m.evict(ctx, l.Pod, e, InFlight{Hard: true, Frees: frees(l.Pod, stats[l.Pod.UID], d.Layout)})
	}
	for i := range d.Victims {
		v := &d.Victims[i]
		e := evictionFor(d, v, stats[v.Pod.UID])
		m.evict(ctx, v.Pod, e, InFlight{Hard: d.Threshold.Threshold.Hard(), Frees: frees(v.Pod, stats[v.Pod.UID], d.Layout)})
	}
}

// tell records that something is short, not more often than it is useful, and reports
// whether it did.
func (m *Manager) tell(resource corev1.ResourceName, now time.Time) bool {
	if last, ok := m.told[resource]; ok && now.Sub(last) < m.cfg.EventPeriod {
		return false
	}
	m.told[resource] = now
	if m.cfg.Events != nil && m.cfg.Node != nil {
		m.cfg.Events.Eventf(m.cfg.Node, corev1.EventTypeWarning, EvictionThresholdMet, "Attempting to reclaim %s", resource)
	}
	return true
}

// evict has the pod killed. A pod that could not be killed before was announced
// then.
func (m *Manager) evict(ctx context.Context, pod *corev1.Pod, e Eviction, f InFlight) {
	f.UID, f.Name = pod.UID, name(pod)
	f.Since, f.Deadline = e.At, deadline(e.At, e.GracePeriodSeconds)
	k := &kill{pod: pod, eviction: e, began: e.At, calls: 1, flight: f}
	m.mu.Lock()
	_, again := m.failed[pod.UID]
	m.kills = append(m.kills, k)
	m.mu.Unlock()
	if !again {
		m.announce(pod, e)
	}
	m.cfg.Observer.Evicting(pod, e)
	m.call(ctx, k, e)
}

func (m *Manager) announce(pod *corev1.Pod, e Eviction) {
	switch {
	case m.cfg.AnnotatedEvents != nil:
		m.cfg.AnnotatedEvents.AnnotatedEventf(pod, e.Annotations, corev1.EventTypeWarning, Reason, "%s", e.Message)
	case m.cfg.Events != nil:
		m.cfg.Events.Eventf(pod, corev1.EventTypeWarning, Reason, "%s", e.Message)
	}
}

// frees is what is expected to become free when the pod ends.
func frees(pod *corev1.Pod, stats *PodStats, layout Layout) map[Signal]int64 {
	all := map[Signal]int64{}
	for _, s := range allSignals() {
		if u, _ := s.measure(layout).usage(pod, stats); u.Known() {
			all[s] = u.Value
		}
	}
	return all
}

// escalate has a pod end at once that is ending slowly.
func (m *Manager) escalate(ctx context.Context, uid types.UID, now time.Time) {
	m.mu.Lock()
	i := slices.IndexFunc(m.kills, func(k *kill) bool { return k.flight.UID == uid && !k.flight.Ended })
	if i < 0 {
		m.mu.Unlock()
		return
	}
	k := m.kills[i]
	k.flight.Hard, k.flight.Deadline = true, deadline(now, immediateGrace)
	k.eviction.GracePeriodSeconds = immediateGrace
	k.calls++
	k.overdue = false
	e := k.eviction
	m.mu.Unlock()
	m.cfg.Observer.Evicting(k.pod, e)
	m.call(ctx, k, e)
}

// call calls the killer. The first call that succeeds ends the pod, the last one
// that fails leaves it for another try.
func (m *Manager) call(ctx context.Context, k *kill, e Eviction) {
	m.work.start(func() {
		err := m.cfg.Killer.Kill(ctx, k.pod, e)
		now := m.cfg.Clock.Now()
		m.mu.Lock()
		k.calls--
		ended := k.flight.Ended
		if err == nil && !ended {
			k.flight.Ended, k.flight.Deadline = true, now.Add(cleanupTimeout)
		}
		over := !ended && (err == nil || k.calls == 0)
		if over && err != nil {
			m.kills = slices.DeleteFunc(m.kills, func(other *kill) bool { return other == k })
			m.failed[k.flight.UID] = now.Add(m.cfg.KillRetry)
		}
		if over && err == nil {
			delete(m.failed, k.flight.UID)
		}
		m.mu.Unlock()
		if !over {
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			m.cfg.Logger.ErrorContext(ctx, "pod could not be evicted", "pod", k.flight.Name, "podUID", k.flight.UID, "err", err)
		}
		m.cfg.Observer.Evicted(k.pod, e, now.Sub(k.began), err)
		m.loop.Trigger()
	})
}

// busy says whether the state depends on what else goes on.
func (m *Manager) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kills)+len(m.failed)+len(m.reclaims)+len(m.state.InFlight)+len(m.state.NotBefore)+len(m.state.Reclaims) > 0
}

// settle brings into the state what has become of kills and reclaims.
func (m *Manager) settle(ctx context.Context, pods []*corev1.Pod, now time.Time) {
	present := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		if pod != nil {
			present[pod.UID] = true
		}
	}
	clean := map[types.UID]bool{}
	for _, uid := range m.endedPods(present, now) {
		clean[uid] = m.cfg.CleanedUp(uid)
	}
	m.mu.Lock()
	late := m.settleKills(present, clean, now)
	m.settleRest(present, now)
	m.mu.Unlock()
	for _, k := range late {
		m.late(ctx, k)
	}
}

// settleKills forgets kills that nothing is left of, and returns those that have
// just become late. All that a clean pod held is free.
func (m *Manager) settleKills(present, clean map[types.UID]bool, now time.Time) (late []*kill) {
	m.state.InFlight = nil
	m.kills = slices.DeleteFunc(m.kills, func(k *kill) bool {
		f := &k.flight
		if clean[f.UID] && f.Deadline.After(now) {
			f.Deadline = now
		}
		return f.Ended && !present[f.UID] && !now.Before(f.Deadline)
	})
	for _, k := range m.kills {
		if !k.flight.Ended && !k.overdue && !now.Before(k.flight.Deadline) {
			k.overdue = true
			late = append(late, k)
		}
		m.state.InFlight = append(m.state.InFlight, k.flight)
	}
	return late
}

func (m *Manager) settleRest(present map[types.UID]bool, now time.Time) {
	maps.DeleteFunc(m.failed, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	m.state.NotBefore = maps.Clone(m.failed)
	m.state.Reclaims = maps.Clone(m.reclaims)
	// The next settling forgets those that count no more, too. While a disk is short, its
	// next figure may be long in coming.
	isShort := slices.ContainsFunc(m.state.ThresholdsMet, func(t Threshold) bool { return t.Signal.isDisk() })
	maps.DeleteFunc(m.reclaims, func(_ ReclaimAction, r Reclaim) bool {
		return !isShort && !r.running() && now.Sub(r.Ended) >= m.cfg.Policy.ReclaimInterval
	})
}

// regain counts on what pods that are ending hold by now: one that grows until its end
// frees more than when it was told to end, and nobody else has to go for that.
func (m *Manager) regain(obs *Observations) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[types.UID]map[Signal]int64, len(m.kills))
	for _, k := range m.kills {
		stats := obs.PodStats[k.flight.UID]
		if k.flight.Ended || stats == nil {
			continue
		}
		all := frees(k.pod, stats, m.state.layout(obs.Node.Layout))
		for s, n := range k.flight.Frees {
			all[s] = max(all[s], n)
		}
		k.flight.Frees = all
		now[k.flight.UID] = all
	}
	for i := range m.state.InFlight {
		f := &m.state.InFlight[i]
		if all, ok := now[f.UID]; ok {
			f.Frees = all
		}
	}
}

// endedPods returns the pods that have ended and may have something on disks yet. No
// killer tells of the end of adopted ones.
func (m *Manager) endedPods(present map[types.UID]bool, now time.Time) (uids []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kills {
		f := &k.flight
		if k.adopted && !f.Ended && !present[f.UID] {
			f.Ended, f.Deadline = true, now.Add(cleanupTimeout)
		}
		if f.Ended {
			uids = append(uids, f.UID)
		}
	}
	return uids
}

// late tells of a pod that did not end in time.
func (m *Manager) late(ctx context.Context, k *kill) {
	m.cfg.Logger.WarnContext(ctx, "evicted pod has not ended in time", "pod", k.flight.Name, "podUID", k.flight.UID)
	if m.cfg.Events != nil {
		m.cfg.Events.Eventf(k.pod, corev1.EventTypeWarning, ExceededGracePeriod, overdueMessage)
	}
	m.cfg.Observer.Overdue(k.pod, k.eviction)
}

// pretend notes reclaims that this mode leaves out as done, so that what would come
// after them can be seen.
func (m *Manager) pretend(d *Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range d.Reclaim {
		m.reclaims[r.Action] = Reclaim{Began: d.At, Ended: d.At}
	}
}

// reclaim has a disk reclaimed.
func (m *Manager) reclaim(ctx context.Context, r ReclaimPlan, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reclaims[r.Action] = Reclaim{Began: now}
	m.work.start(func() {
		err := m.delete(ctx, r)
		end := m.cfg.Clock.Now()
		m.mu.Lock()
		m.reclaims[r.Action] = Reclaim{Began: now, Ended: end}
		m.mu.Unlock()
		if err != nil && !errors.Is(err, context.Canceled) {
			m.cfg.Logger.ErrorContext(ctx, "disk could not be reclaimed", "action", r.Action, "err", err)
		}
		m.cfg.Observer.Reclaimed(r, end.Sub(now), err)
		m.loop.Trigger()
	})
}

func (m *Manager) delete(ctx context.Context, r ReclaimPlan) error {
	if r.Action == DeleteContainers {
		return m.cfg.ContainerGC.DeleteAllUnusedContainers(ctx)
	}
	return m.cfg.ImageGC.DeleteUnusedImages(ctx, r)
}
