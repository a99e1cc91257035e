package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// adopt adds the evictions that an earlier Manager started before the agent was restarted: the
// evictions of active pods whose status shows that they were evicted. An adopted eviction gets
// the deadline of a soft eviction. Until this deadline, the Manager expects the adopted pods to
// free what they use, and evicts no other pods in their place. The Manager calls Killer for the
// adopted pods only to shorten their grace period. It does not send the events about their
// evictions again.
func (m *Manager) adopt(pods []*corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range pods {
		if pod == nil || pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != Reason || m.isTracked(pod.UID) {
			continue
		}
		grace := m.cfg.Policy.grace(pod, false)
		k := &kill{
			pod: pod, adopted: true, began: now,
			eviction: Eviction{GracePeriodSeconds: grace, Message: pod.Status.Message, Disruption: disrupted(pod), At: now, generation: pod.Generation},
			inFlight: InFlight{UID: pod.UID, Name: name(pod), Since: now, Deadline: deadline(now, grace)},
		}
		m.kills = append(m.kills, k)
		m.state.InFlight = append(m.state.InFlight, k.inFlight)
	}
}

// isTracked reports whether the Manager already has an eviction of the pod, in progress or
// failed. The caller holds mu.
func (m *Manager) isTracked(uid types.UID) bool {
	_, failed := m.failed[uid]
	return failed || slices.ContainsFunc(m.kills, func(k *kill) bool { return k.inFlight.UID == uid })
}

func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}
