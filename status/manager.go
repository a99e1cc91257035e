package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Manager stores the status that the node reports for each of its pods. Create it with
// [New]. Its methods are safe for concurrent use.
//
// It stores copies of the statuses that it receives. It retains the pods themselves, which
// callers must not modify afterwards. The Manager replaces a stored status, and never modifies
// it. [Manager.Update] passes a copy that the caller may modify. The statuses that all other
// methods return, and that the callbacks of an [Observer] receive, are the stored statuses. They
// are shared and must not be modified.
type Manager struct {
	cfg Config

	step      sync.Mutex  // serializes writers, and is held during callbacks
	observers []*Observer // replaced, never modified; guarded by step

	mu      sync.RWMutex // guards the fields below, and is never held during callbacks
	pods    map[types.UID]*entry
	resizes map[types.UID]resize
}

// entry is the stored state of a pod. It is immutable.
type entry struct {
	pod      *corev1.Pod
	status   corev1.PodStatus
	version  uint64
	finished bool
}

// New returns an empty manager, or an error if cfg is invalid.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid config: %w", err)
	}
	m := &Manager{cfg: cfg.withDefaults(), pods: map[types.UID]*entry{}, resizes: map[types.UID]resize{}}
	m.observers = []*Observer{&m.cfg.Observer}
	return m, nil
}

// GetPodStatus returns the pod's current status, or the saved status if no status was set
// in this process. It returns false if neither exists. The UID may be the UID of a mirror
// pod.
func (m *Manager) GetPodStatus(uid types.UID) (corev1.PodStatus, bool) {
	uid = m.cfg.TranslateUID(uid)
	if s := m.reported(m.entry(uid), uid); s != nil {
		return *s, true
	}
	return corev1.PodStatus{}, false
}

// SetPodStatus sets the status of the pod. It returns the stored status and whether it has
// changed. The stored status follows these rules, whatever the given status contains:
//
//   - if the phase in the previous status or in pod.Status is terminal, that phase is kept, and
//     the pod is not Ready. If the given status has another phase, the reason and message that
//     belong to the kept phase are stored with it;
//   - the start time never changes after it was set; if it is not set, it becomes the
//     current time;
//   - the transition time of the node's conditions, except resize conditions, changes only
//     with their status;
//   - the observed generation is the pod's, and never decreases;
//   - the status is normalized (see [Normalize]).
//
// If [CheckTransition] returns an error, the status is rejected. SetPodStatus then returns the
// previous status; if no status was set in this process, it returns the given status with
// the pod's generation. A status that is [Equal] to the last status that was set in this
// process is a change only if the pod was deleted since then. Neither pod nor status is
// modified; pod is retained.
func (m *Manager) SetPodStatus(pod *corev1.Pod, status corev1.PodStatus) (stored corev1.PodStatus, changed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	next := status.DeepCopy()
	next.ObservedGeneration = pod.Generation
	return m.store(m.entry(pod.UID), pod, next, false)
}

// Update modifies the status of a pod atomically: fn modifies a copy, and the result is
// stored as by [Manager.SetPodStatus]. It reports whether the status has changed. If no
// status of the pod was set in this process, fn is not called. fn must not call writing
// methods. Other writers wait until fn has returned.
func (m *Manager) Update(uid types.UID, fn func(*corev1.PodStatus)) (changed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	e := m.entry(uid)
	if e == nil {
		return false
	}
	next := e.status.DeepCopy()
	fn(next)
	_, changed = m.store(e, e.pod, next, false)
	return changed
}

// TerminatePod records that the pod has ended and that no container of the pod runs any
// more. Init and regular containers whose termination was not observed become terminated
// with exit code 137. Regular containers do not change if the init containers have not
// completed. Init containers that were never started do not change either, except the first
// one. If the phase is not terminal, it becomes Failed, except for a static pod.
// TerminatePod returns the new status. It retains pod and does not modify it.
func (m *Manager) TerminatePod(pod *corev1.Pod) corev1.PodStatus {
	m.step.Lock()
	defer m.step.Unlock()
	e := m.entry(pod.UID)
	next := m.previous(e, pod).DeepCopy()
	terminate(pod, next)
	stored, _ := m.store(e, pod, next, true)
	return stored
}

// RemovePodStatus removes the status of a pod and reports whether the pod had a status.
// Call it when a pod is started again with the same UID.
func (m *Manager) RemovePodStatus(uid types.UID) (removed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	return m.remove(uid)
}

// RemoveOrphanedStatuses removes the statuses of all pods for which keep returns false. It
// returns the number of removed statuses. keep may call reading methods.
func (m *Manager) RemoveOrphanedStatuses(keep func(types.UID) bool) (removed int) {
	m.step.Lock()
	defer m.step.Unlock()
	m.mu.RLock()
	uids := slices.AppendSeq(slices.Collect(maps.Keys(m.pods)), maps.Keys(m.resizes))
	m.mu.RUnlock()
	slices.Sort(uids)
	for _, uid := range slices.Compact(uids) {
		if !keep(uid) && m.remove(uid) {
			removed++
		}
	}
	return removed
}

// remove removes all state of a pod and reports whether the pod had a status. A pod may
// have a resize and no status. The caller holds step.
func (m *Manager) remove(uid types.UID) (removed bool) {
	m.mu.Lock()
	_, removed = m.pods[uid]
	delete(m.pods, uid)
	delete(m.resizes, uid)
	m.mu.Unlock()
	if !removed {
		return false
	}
	for _, o := range m.observers {
		if o.StatusRemoved != nil {
			o.StatusRemoved(uid)
		}
	}
	return true
}

func (m *Manager) entry(uid types.UID) *entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pods[uid]
}

func (m *Manager) entries() map[types.UID]*entry {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return maps.Clone(m.pods)
}

// reported returns the last status of a pod that this process or an earlier process
// reported. It returns nil if the pod has no status yet.
func (m *Manager) reported(e *entry, uid types.UID) *corev1.PodStatus {
	if e != nil {
		return &e.status
	}
	if saved, ok := m.cfg.Saved(uid); ok {
		return &saved
	}
	return nil
}

// previous returns the last reported status of pod, or pod.Status if no status was
// reported.
func (m *Manager) previous(e *entry, pod *corev1.Pod) *corev1.PodStatus {
	return cmp.Or(m.reported(e, pod.UID), &pod.Status)
}

// store checks a new status, and replaces e, the entry of the pod, with a new entry. e is nil
// if the pod has no entry. The caller holds step, and must not use the new status afterwards.
func (m *Manager) store(e *entry, pod *corev1.Pod, next *corev1.PodStatus, finished bool) (corev1.PodStatus, bool) {
	old := m.previous(e, pod)
	if err := CheckTransition(pod, old, next); err != nil {
		m.cfg.Logger.Warn("pod status update rejected, the previous status remains", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "err", err)
		for _, o := range m.observers {
			if o.UpdateRefused != nil {
				o.UpdateRefused(pod, err)
			}
		}
		if e == nil {
			return *next, false
		}
		return e.status, false
	}
	m.reconcile(pod, old, next)
	change := Change{Pod: pod, New: *next, Version: 1, Finished: finished}
	if e != nil {
		change.Old, change.Version, change.Finished = e.status, e.version+1, finished || e.finished
		deleted := e.pod.DeletionTimestamp == nil && pod.DeletionTimestamp != nil
		if !deleted && change.Finished == e.finished && Equal(pod, &e.status, next) {
			same := e.status
			same.Conditions = withOthers(e.status.Conditions, next.Conditions)
			m.setEntry(&entry{pod: pod, status: same, version: e.version, finished: e.finished})
			return same, false
		}
	}
	m.setEntry(&entry{pod: pod, status: *next, version: change.Version, finished: change.Finished})
	m.notify(old, &change)
	return *next, true
}

// withOthers returns the new conditions, with the node's own conditions replaced by the old ones.
// A changed condition of another writer is not a change of the node's status. The Manager must
// store the condition nevertheless: it may belong to a readiness gate, and the Manager then needs
// it to compute Ready at the next probe result.
func withOthers(old, next []corev1.PodCondition) []corev1.PodCondition {
	for i := range next {
		if was := Condition(old, next[i].Type); was != nil && ownerOf(was.Type) != foreign {
			next[i] = *was
		}
	}
	return next
}

func (m *Manager) setEntry(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[e.pod.UID] = e
}

// reconcile applies the rules of SetPodStatus to the new status. old is the previous status.
func (m *Manager) reconcile(pod *corev1.Pod, old, next *corev1.PodStatus) {
	for _, end := range []*corev1.PodStatus{&pod.Status, old} { // old has precedence
		if podspec.IsTerminal(end.Phase) && next.Phase != end.Phase {
			next.Phase, next.Reason, next.Message = end.Phase, end.Reason, end.Message
		}
	}
	now := m.cfg.Clock.Now()
	switch {
	case old.StartTime != nil:
		next.StartTime = old.StartTime.DeepCopy()
	case next.StartTime == nil:
		next.StartTime = &metav1.Time{Time: now}
	}
	next.ObservedGeneration = max(next.ObservedGeneration, old.ObservedGeneration)
	m.showResize(pod.UID, old, next)
	markEndedUnready(pod, next)
	setTransitionTimes(next.Conditions, old.Conditions, now)
	Normalize(pod, next)
}
