package eviction

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// adopt counts on pods that are ending because a manager before this one has evicted
// them, as their status says: when an agent starts anew, nobody else has to go in
// their place, for as long as one that it tells to end slowly. Whoever ended them then
// goes on with it; nothing is announced again.
func (m *Manager) adopt(pods []*corev1.Pod, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range pods {
		if pod == nil || pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != Reason || m.knows(pod.UID) {
			continue
		}
		grace := m.cfg.Policy.grace(pod, false)
		k := &kill{
			pod: pod, adopted: true, began: now,
			eviction: Eviction{GracePeriodSeconds: grace, Message: pod.Status.Message, Disruption: disrupted(pod), At: now, generation: pod.Generation},
			flight:   InFlight{UID: pod.UID, Name: name(pod), Since: now, Deadline: deadline(now, grace)},
		}
		m.kills = append(m.kills, k)
		m.state.InFlight = append(m.state.InFlight, k.flight)
	}
}

// knows says whether the manager has itself to do with the pod's end. It needs mu.
func (m *Manager) knows(uid types.UID) bool {
	_, failed := m.failed[uid]
	return failed || slices.ContainsFunc(m.kills, func(k *kill) bool { return k.flight.UID == uid })
}

func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}
