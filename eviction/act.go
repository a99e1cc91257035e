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

// cleanupTimeout is the maximum time for which the disk space of a terminated pod counts as
// being freed.
const cleanupTimeout = 30 * time.Second

// kill is an eviction that is in progress, or whose pod has terminated and may still have
// data on disk.
type kill struct {
	pod      *corev1.Pod
	eviction Eviction
	inFlight InFlight
	began    time.Time
	calls    int // calls of the killer in progress
	overdue  bool
	adopted  bool // started by an earlier manager, before a restart
}

// deadline returns the time from which an eviction that starts now is no longer expected
// to free anything.
func deadline(now time.Time, grace int64) time.Time {
	return now.Add(max(10*time.Second, time.Duration(grace)*time.Second*3/2))
}

// act starts the actions of d.
func (m *Manager) act(ctx context.Context, d *Decision, stats map[types.UID]*PodStats) {
	if r := d.urgent; r != nil && m.sendThresholdEvent(r.Threshold.Signal.resource(), d.At) && r.Why == whyNoVictim {
		m.cfg.Logger.WarnContext(ctx, "no pod can be evicted, the node remains under pressure",
			"threshold", r.Threshold.String(), "available", r.Threshold.Signal.amount(r.Observation.Available))
	}
	for _, r := range d.Reclaim {
		m.sendThresholdEvent(r.Signal.resource(), d.At)
		m.reclaim(ctx, r, d.At)
	}
	if d.Signal != "" {
		m.sendThresholdEvent(d.Signal.resource(), d.At)
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

// sendThresholdEvent sends the event EvictionThresholdMet, at most once per EventPeriod
// and resource. It returns false if the last event about the resource was sent less than
// EventPeriod ago.
func (m *Manager) sendThresholdEvent(resource corev1.ResourceName, now time.Time) bool {
	if last, ok := m.thresholdEventAt[resource]; ok && now.Sub(last) < m.cfg.EventPeriod {
		return false
	}
	m.thresholdEventAt[resource] = now
	if m.cfg.Events != nil && m.cfg.Node != nil {
		m.cfg.Events.Eventf(m.cfg.Node, corev1.EventTypeWarning, EvictionThresholdMet, "Attempting to reclaim %s", resource)
	}
	return true
}

// evict starts the kill of a pod. It sends the event about the eviction, but not again for a
// retry.
func (m *Manager) evict(ctx context.Context, pod *corev1.Pod, e Eviction, f InFlight) {
	f.UID, f.Name = pod.UID, name(pod)
	f.Since, f.Deadline = e.At, deadline(e.At, e.GracePeriodSeconds)
	k := &kill{pod: pod, eviction: e, began: e.At, calls: 1, inFlight: f}
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

// frees returns the amounts, by signal, that are expected to become free when the pod is
// deleted.
func frees(pod *corev1.Pod, stats *PodStats, layout Layout) map[Signal]int64 {
	all := map[Signal]int64{}
	for _, s := range allSignals() {
		if u, _ := s.measure(layout).usage(pod, stats); u.Known() {
			all[s] = u.Value
		}
	}
	return all
}

// escalate shortens the grace period of an eviction in progress.
func (m *Manager) escalate(ctx context.Context, uid types.UID, now time.Time) {
	m.mu.Lock()
	i := slices.IndexFunc(m.kills, func(k *kill) bool { return k.inFlight.UID == uid && !k.inFlight.Ended })
	if i < 0 {
		m.mu.Unlock()
		return
	}
	k := m.kills[i]
	k.inFlight.Hard, k.inFlight.Deadline = true, deadline(now, immediateGrace)
	k.eviction.GracePeriodSeconds = immediateGrace
	k.calls++
	k.overdue = false
	e := k.eviction
	m.mu.Unlock()
	m.cfg.Observer.Evicting(k.pod, e)
	m.call(ctx, k, e)
}

// call calls the Killer on a new goroutine. The first call that succeeds marks the pod as
// terminated. If all calls fail, the kill may be retried later.
func (m *Manager) call(ctx context.Context, k *kill, e Eviction) {
	m.work.start(func() {
		err := m.cfg.Killer.Kill(ctx, k.pod, e)
		now := m.cfg.Clock.Now()
		m.mu.Lock()
		k.calls--
		ended := k.inFlight.Ended
		if err == nil && !ended {
			k.inFlight.Ended, k.inFlight.Deadline = true, now.Add(cleanupTimeout)
		}
		over := !ended && (err == nil || k.calls == 0)
		if over && err != nil {
			m.kills = slices.DeleteFunc(m.kills, func(other *kill) bool { return other == k })
			m.failed[k.inFlight.UID] = now.Add(m.cfg.KillRetry)
		}
		if over && err == nil {
			delete(m.failed, k.inFlight.UID)
		}
		m.mu.Unlock()
		if !over {
			return
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			m.cfg.Logger.ErrorContext(ctx, "could not evict pod, trying other pods first", "pod", k.inFlight.Name, "podUID", k.inFlight.UID, "err", err)
		}
		m.cfg.Observer.Evicted(k.pod, e, now.Sub(k.began), err)
		m.loop.Trigger()
	})
}

// busy reports whether kills, retries or reclaims influence the state.
func (m *Manager) busy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kills)+len(m.failed)+len(m.reclaims)+len(m.state.InFlight)+len(m.state.NotBefore)+len(m.state.Reclaims) > 0
}

// updateState updates the state with the results of kills and reclaims.
func (m *Manager) updateState(ctx context.Context, pods []*corev1.Pod, now time.Time) {
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
	overdue := m.updateKills(present, clean, now)
	m.updateRetriesAndReclaims(present, now)
	m.mu.Unlock()
	for _, k := range overdue {
		m.reportOverdue(ctx, k)
	}
}

// updateKills deletes finished kills, copies the others to the state, and returns the
// kills that have passed their deadline since the last call. The disk space of a pod that
// is cleaned up no longer counts as being freed.
func (m *Manager) updateKills(present, clean map[types.UID]bool, now time.Time) (overdue []*kill) {
	m.state.InFlight = nil
	m.kills = slices.DeleteFunc(m.kills, func(k *kill) bool {
		f := &k.inFlight
		if clean[f.UID] && f.Deadline.After(now) {
			f.Deadline = now
		}
		return f.Ended && !present[f.UID] && !now.Before(f.Deadline)
	})
	for _, k := range m.kills {
		if !k.inFlight.Ended && !k.overdue && !now.Before(k.inFlight.Deadline) {
			k.overdue = true
			overdue = append(overdue, k)
		}
		m.state.InFlight = append(m.state.InFlight, k.inFlight)
	}
	return overdue
}

func (m *Manager) updateRetriesAndReclaims(present map[types.UID]bool, now time.Time) {
	maps.DeleteFunc(m.failed, func(uid types.UID, _ time.Time) bool { return !present[uid] })
	m.state.NotBefore = maps.Clone(m.failed)
	m.state.Reclaims = maps.Clone(m.reclaims)
	// Old reclaims are deleted after this pass has used them. While a disk threshold is
	// due, they are not deleted, because the next observation of the disk may take long.
	isShort := slices.ContainsFunc(m.state.ThresholdsMet, func(t Threshold) bool { return t.Signal.isDisk() })
	maps.DeleteFunc(m.reclaims, func(_ ReclaimAction, r Reclaim) bool {
		return !isShort && !r.running() && now.Sub(r.Ended) >= m.cfg.Policy.ReclaimInterval
	})
}

// updateFrees updates the amounts that terminating pods are expected to free. If such a pod uses
// more than before, its amount rises to its present usage. Without this, another pod would be
// evicted for the increase.
func (m *Manager) updateFrees(obs *Observations) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := make(map[types.UID]map[Signal]int64, len(m.kills))
	for _, k := range m.kills {
		stats := obs.PodStats[k.inFlight.UID]
		if k.inFlight.Ended || stats == nil {
			continue
		}
		all := frees(k.pod, stats, m.state.layout(obs.Node.Layout))
		for s, n := range k.inFlight.Frees {
			all[s] = max(all[s], n)
		}
		k.inFlight.Frees = all
		now[k.inFlight.UID] = all
	}
	for i := range m.state.InFlight {
		f := &m.state.InFlight[i]
		if all, ok := now[f.UID]; ok {
			f.Frees = all
		}
	}
}

// endedPods returns the terminated pods that may still have data on disk. An adopted pod
// counts as terminated when it is no longer active, because no call of the Killer reports
// its termination.
func (m *Manager) endedPods(present map[types.UID]bool, now time.Time) (uids []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.kills {
		f := &k.inFlight
		if k.adopted && !f.Ended && !present[f.UID] {
			f.Ended, f.Deadline = true, now.Add(cleanupTimeout)
		}
		if f.Ended {
			uids = append(uids, f.UID)
		}
	}
	return uids
}

// reportOverdue reports a pod that did not terminate by its deadline.
func (m *Manager) reportOverdue(ctx context.Context, k *kill) {
	m.cfg.Logger.WarnContext(ctx, "evicted pod did not terminate in time, still waiting for it", "pod", k.inFlight.Name, "podUID", k.inFlight.UID)
	if m.cfg.Events != nil {
		m.cfg.Events.Eventf(k.pod, corev1.EventTypeWarning, ExceededGracePeriod, overdueMessage)
	}
	m.cfg.Observer.Overdue(k.pod, k.eviction)
}

// skipReclaims records the reclaims of d as done without running them, so that ObserveOnly
// and DryRun also make the decisions that follow a reclaim.
func (m *Manager) skipReclaims(d *Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range d.Reclaim {
		m.reclaims[r.Action] = Reclaim{Began: d.At, Ended: d.At}
	}
}

// reclaim starts a node-level reclaim.
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
			m.cfg.Logger.ErrorContext(ctx, "could not free disk space, will evict pods if the node stays under pressure", "action", r.Action, "err", err)
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
