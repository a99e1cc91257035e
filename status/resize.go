package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// resize contains the conditions of a pod's resize (KEP-1287). It is immutable.
type resize struct {
	pending, inProgress *corev1.PodCondition
}

// ResizeConditions returns copies of the conditions PodResizePending and PodResizeInProgress
// of the pod. A condition that is not set is nil.
func (m *Manager) ResizeConditions(uid types.UID) (pending, inProgress *corev1.PodCondition) {
	r := m.resizeOf(uid)
	return r.pending.DeepCopy(), r.inProgress.DeepCopy()
}

// CountResizes returns the number of pods with a pending resize, by reason, and the number
// of pods with a resize in progress.
func (m *Manager) CountResizes() (pending map[string]int, inProgress int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pending = map[string]int{}
	for _, r := range m.resizes {
		if r.pending != nil {
			pending[r.pending.Reason]++
		}
		if r.inProgress != nil {
			inProgress++
		}
	}
	return pending, inProgress
}

// SetPodResizePending sets the condition PodResizePending of the pod. The reason is
// PodReasonInfeasible if the resize is not possible on this node; any other reason becomes
// PodReasonDeferred. generation is the generation of the pod that requests the resize.
// SetPodResizePending reports whether the condition is new or has another reason or
// generation. It may be called before a status of the pod is set.
func (m *Manager) SetPodResizePending(uid types.UID, reason, message string, generation int64) (changed bool) {
	if reason != corev1.PodReasonInfeasible {
		reason = corev1.PodReasonDeferred
	}
	return m.setResize(uid, func(r *resize) bool {
		was := r.pending
		r.pending = m.resizeCondition(corev1.PodResizePending, was, reason, message, generation)
		return was == nil || was.Reason != reason || was.ObservedGeneration != generation
	})
}

// SetPodResizeInProgress sets the condition PodResizeInProgress of the pod. If reason and
// message are empty, the previous reason and message are kept. The first call sets the
// generation, which is then kept until [Manager.ClearPodResizeInProgress].
// SetPodResizeInProgress reports whether the condition is new or has another reason or
// message.
func (m *Manager) SetPodResizeInProgress(uid types.UID, reason, message string, generation int64) (changed bool) {
	return m.setResize(uid, func(r *resize) bool {
		was := r.inProgress
		if was != nil {
			generation = was.ObservedGeneration
			if reason == "" && message == "" {
				reason, message = was.Reason, was.Message
			}
		}
		r.inProgress = m.resizeCondition(corev1.PodResizeInProgress, was, reason, message, generation)
		return was == nil || was.Reason != reason || was.Message != message
	})
}

// ClearPodResizePending removes the condition PodResizePending of the pod and reports
// whether it was set.
func (m *Manager) ClearPodResizePending(uid types.UID) (changed bool) {
	return m.setResize(uid, func(r *resize) bool {
		was := r.pending
		r.pending = nil
		return was != nil
	})
}

// ClearPodResizeInProgress removes the condition PodResizeInProgress of the pod and reports
// whether it was set.
func (m *Manager) ClearPodResizeInProgress(uid types.UID) (changed bool) {
	return m.setResize(uid, func(r *resize) bool {
		was := r.inProgress
		r.inProgress = nil
		return was != nil
	})
}

// resizeCondition returns the new condition. The second argument is the previous
// condition, or nil. The transition time changes only with the reason.
func (m *Manager) resizeCondition(
	t corev1.PodConditionType, was *corev1.PodCondition, reason, message string, generation int64,
) *corev1.PodCondition {
	now := metav1.Time{Time: m.cfg.Clock.Now()}
	truncate(&now)
	c := &corev1.PodCondition{
		Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message,
		ObservedGeneration: generation, LastProbeTime: now, LastTransitionTime: now,
	}
	if was != nil && was.Reason == reason {
		c.LastTransitionTime = was.LastTransitionTime
	}
	return c
}

// setResize modifies the resize conditions of a pod with fn, and updates the pod's status, if the
// pod has a status. It does nothing if the phase in the status is terminal.
func (m *Manager) setResize(uid types.UID, fn func(*resize) bool) (changed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	e := m.entry(uid)
	if e != nil && podspec.IsTerminal(e.status.Phase) {
		return false
	}
	r := m.resizeOf(uid)
	changed = fn(&r)
	m.mu.Lock()
	m.resizes[uid] = r // even if empty: the first status must not restore an old resize
	m.mu.Unlock()
	if e != nil {
		m.store(e, e.pod, e.status.DeepCopy(), false)
	}
	return changed
}

// resizeOf returns the resize of a pod. Until a status or a resize condition of the pod is set in
// this process, it returns the resize that an earlier process reported.
func (m *Manager) resizeOf(uid types.UID) resize {
	m.mu.RLock()
	r, isSet := m.resizes[uid]
	_, known := m.pods[uid]
	m.mu.RUnlock()
	if isSet || known {
		return r
	}
	if saved := m.reported(nil, uid); saved != nil {
		return resizeIn(saved)
	}
	if pod, ok := m.cfg.Pod(uid); ok {
		return resizeIn(&pod.Status)
	}
	return resize{}
}

func resizeIn(s *corev1.PodStatus) resize {
	return resize{
		pending:    Condition(s.Conditions, corev1.PodResizePending).DeepCopy(),
		inProgress: Condition(s.Conditions, corev1.PodResizeInProgress).DeepCopy(),
	}
}

// showResize replaces the resize conditions in the new status with the stored conditions. A
// caller may set a status that it computed earlier; such a status must not restore a finished
// resize or lose a new resize. For a pod's first status, the previously reported conditions
// are used if none are stored. A pod with a terminal phase has no resize conditions.
func (m *Manager) showResize(uid types.UID, old, next *corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, isSet := m.resizes[uid]
	if _, known := m.pods[uid]; !known && !isSet {
		r = resizeIn(old)
	}
	if podspec.IsTerminal(next.Phase) {
		r = resize{}
	}
	if m.resizes[uid] = r; r == (resize{}) {
		delete(m.resizes, uid)
	}
	next.Conditions = slices.DeleteFunc(next.Conditions, func(c corev1.PodCondition) bool { return isResize(c.Type) })
	for _, c := range []*corev1.PodCondition{r.pending, r.inProgress} {
		if c != nil {
			next.Conditions = append(next.Conditions, *c)
		}
	}
}

func isResize(t corev1.PodConditionType) bool {
	return t == corev1.PodResizePending || t == corev1.PodResizeInProgress
}
