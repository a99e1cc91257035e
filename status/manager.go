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

// Manager holds what the node says about each of its pods. Make it with [New];
// its methods are safe for concurrent use.
//
// It keeps copies of the statuses that it is given, and pods themselves, which
// callers must not modify afterwards. A kept status never changes, it is
// replaced. [Manager.GetPodStatus] and [Manager.Update] hand out copies that are
// the caller's own; what [Manager.SetPodStatus] and [Manager.TerminatePod] return
// and an [Observer] sees is the kept status itself, shared with others and not to
// be modified.
type Manager struct {
	cfg Config

	step      sync.Mutex  // serializes writers, and is held during callbacks
	observers []*Observer // replaced, never changed; guarded by step

	mu      sync.RWMutex // guards what follows, and is never held during callbacks
	pods    map[types.UID]*entry
	resizes map[types.UID]resize
}

// entry is what is known of a pod. It never changes.
type entry struct {
	pod      *corev1.Pod
	status   corev1.PodStatus
	version  uint64
	finished bool
}

// New returns an empty manager.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid config: %w", err)
	}
	m := &Manager{cfg: cfg.withDefaults(), pods: map[types.UID]*entry{}, resizes: map[types.UID]resize{}}
	m.observers = []*Observer{&m.cfg.Observer}
	return m, nil
}

// GetPodStatus returns a copy of the status of the pod that was set last, or of the saved
// one if none was set in this process. It reports false if there is neither. The UID of a
// mirror pod stands for that of its static pod.
func (m *Manager) GetPodStatus(uid types.UID) (corev1.PodStatus, bool) {
	uid = m.cfg.TranslateUID(uid)
	if s := m.reported(m.entry(uid), uid); s != nil {
		return *s.DeepCopy(), true
	}
	return corev1.PodStatus{}, false
}

// PodPhase returns the phase of [Manager.GetPodStatus] without a copy of the rest, and
// none if nothing is said of the pod.
func (m *Manager) PodPhase(uid types.UID) corev1.PodPhase {
	uid = m.cfg.TranslateUID(uid)
	if s := m.reported(m.entry(uid), uid); s != nil {
		return s.Phase
	}
	return ""
}

// SetPodStatus sets the status of the pod, and returns what it is then and whether that is
// a change. These rules hold for it, whatever status has:
//
//   - a pod that has ended, here or as the API server shows it in pod, keeps its
//     phase, and is not Ready; a status with another phase also loses its reason and
//     message, which belong to that phase;
//   - a start time stays as it was first set, and is now if it is unknown;
//   - a condition's transition time moves only with its status;
//   - the observed generation is the pod's, and never decreases;
//   - it is normalized (see [Normalize]).
//
// A status that [CheckTransition] objects to is refused: what is returned is the status
// that was set before, or for a pod of which none was set in this process, status with the
// pod's generation. One that is [Equal] to the status that was set last is no change.
// Neither pod nor status is modified; pod is retained.
func (m *Manager) SetPodStatus(pod *corev1.Pod, status corev1.PodStatus) (stored corev1.PodStatus, changed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	next := status.DeepCopy()
	next.ObservedGeneration = pod.Generation
	return m.store(m.entry(pod.UID), pod, next, false)
}

// Update changes the status of a pod by fn, atomically: fn gets a copy, changes
// it, and the result is stored as by [Manager.SetPodStatus]. It reports whether
// that was a change; for a pod of which no status was set in this process, fn is not called. fn
// must not call writing methods, and delays other writers for as long as it takes.
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

// TerminatePod says that the pod has ended and that nothing of it is left. Its
// containers that were not seen to end are shown as ended with 137, but init
// containers that had no turn stay as they are. Unless it has succeeded or is
// static, it has failed. It returns the new status. Nothing is modified; pod is
// retained.
func (m *Manager) TerminatePod(pod *corev1.Pod) corev1.PodStatus {
	m.step.Lock()
	defer m.step.Unlock()
	e := m.entry(pod.UID)
	next := m.previous(e, pod).DeepCopy()
	terminate(pod, next)
	stored, _ := m.store(e, pod, next, true)
	return stored
}

// RemovePodStatus forgets a pod and says whether there was a status of it. It is for a
// pod that begins a new life under its old UID.
func (m *Manager) RemovePodStatus(uid types.UID) (removed bool) {
	m.step.Lock()
	defer m.step.Unlock()
	return m.remove(uid)
}

// RemoveOrphanedStatuses forgets every pod that keep does not want and returns
// how many those were. keep may call reading methods.
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

// remove forgets a pod and says whether there was a status of it: the manager may hear
// of a resize before that. The caller holds step.
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

// reported returns what was reported of a pod last, which an earlier process may have
// done, nil if nothing was.
func (m *Manager) reported(e *entry, uid types.UID) *corev1.PodStatus {
	if e != nil {
		return &e.status
	}
	if saved, ok := m.cfg.Saved(uid); ok {
		return &saved
	}
	return nil
}

// previous returns what was reported of pod last, else what the API server shows.
func (m *Manager) previous(e *entry, pod *corev1.Pod) *corev1.PodStatus {
	return cmp.Or(m.reported(e, pod.UID), &pod.Status)
}

// store replaces e, nil if there is none, by next, which is the manager's own from now
// on. The caller holds step.
func (m *Manager) store(e *entry, pod *corev1.Pod, next *corev1.PodStatus, finished bool) (corev1.PodStatus, bool) {
	old := m.previous(e, pod)
	if err := CheckTransition(pod, old, next); err != nil {
		m.cfg.Logger.Warn("status update refused", "pod", pod.Namespace+"/"+pod.Name, "podUID", pod.UID, "err", err)
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
			m.keep(&entry{pod: pod, status: same, version: e.version, finished: e.finished})
			return same, false
		}
	}
	m.keep(&entry{pod: pod, status: *next, version: change.Version, finished: change.Finished})
	m.tell(old, &change)
	return *next, true
}

// withOthers returns next with our conditions as old has them. Those of other writers
// are no change of ours, but readiness gates are among them, and the next probe result
// is judged by them.
func withOthers(old, next []corev1.PodCondition) []corev1.PodCondition {
	for i := range next {
		if was := Condition(old, next[i].Type); was != nil && owner(was.Type) != foreign {
			next[i] = *was
		}
	}
	return next
}

func (m *Manager) keep(e *entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[e.pod.UID] = e
}

// reconcile makes next follow old: what never goes back does not, what was there
// before keeps its times.
func (m *Manager) reconcile(pod *corev1.Pod, old, next *corev1.PodStatus) {
	for _, end := range []*corev1.PodStatus{&pod.Status, old} { // what was said last weighs most
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
	settle(pod, next)
	stamp(next.Conditions, old.Conditions, now)
	Normalize(pod, next)
}
