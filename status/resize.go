package status

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// resize holds the conditions of a pod's resize (KEP-1287). It never changes.
type resize struct {
	pending, inProgress *corev1.PodCondition
}

// ResizeConditions returns copies of the conditions PodResizePending and
// PodResizeInProgress of the pod, nil where it has none.
func (m *Manager) ResizeConditions(uid types.UID) (pending, inProgress *corev1.PodCondition) {
	r := m.resizeOf(uid)
	return r.pending.DeepCopy(), r.inProgress.DeepCopy()
}

// CountResizes returns how many pods wait for a resize, by reason, and how many
// are being resized.
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

// SetPodResizePending says that a resize of the pod waits, with reason
// PodReasonInfeasible if it can never be done on this node; any other reason is
// PodReasonDeferred. generation is that of the pod that asks for it. It returns
// whether the condition is new or has another reason or generation. It may be said
// of a pod before its status is.
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

// SetPodResizeInProgress says that the pod is being resized. Without a reason and
// a message those said before stay, and so does the generation until
// [Manager.ClearPodResizeInProgress]: it is that of the resize which began. It
// returns whether anything but times has changed.
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

// ClearPodResizePending says that no resize of the pod waits, and returns whether
// one did.
func (m *Manager) ClearPodResizePending(uid types.UID) (changed bool) {
	return m.setResize(uid, func(r *resize) bool {
		was := r.pending
		r.pending = nil
		return was != nil
	})
}

// ClearPodResizeInProgress says that the pod is not being resized, and returns
// whether it was.
func (m *Manager) ClearPodResizeInProgress(uid types.UID) (changed bool) {
	return m.setResize(uid, func(r *resize) bool {
		was := r.inProgress
		r.inProgress = nil
		return was != nil
	})
}

// resizeCondition returns the condition that follows was: it counts from when it
// got its reason.
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

// setResize changes the resize conditions of a pod by fn and shows them in its
// status, if it has one.
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
	m.resizes[uid] = r // also one that is over: the first report must not show it again
	m.mu.Unlock()
	if e != nil {
		m.store(e, e.pod, e.status.DeepCopy(), false)
	}
	return changed
}

// resizeOf returns the resize of a pod. Until the pod is reported, that is the one which
// was reported before this process started.
func (m *Manager) resizeOf(uid types.UID) resize {
	m.mu.RLock()
	r, heard := m.resizes[uid]
	_, known := m.pods[uid]
	m.mu.RUnlock()
	if heard || known {
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

// showResize makes the resize conditions in next those that were said. Other
// writers see a pod's status at one moment and write it at another; they neither
// bring back a resize that is over nor lose a new one. At a pod's first status
// those that the API server shows count; an ended pod has none.
func (m *Manager) showResize(uid types.UID, old, next *corev1.PodStatus) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, heard := m.resizes[uid]
	if _, known := m.pods[uid]; !known && !heard {
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
