package podmanager

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Manager holds the pods that this node should run and their mirror pods. Make it with
// [New]; all methods are safe for concurrent use.
//
// The Manager retains the pods that callers pass. The pods and slices that it returns are
// shared. Callers must modify none of them. UIDs must be unique; a pod without a UID is
// stored under the UID "".
type Manager struct {
	mu      sync.RWMutex
	pods    *index // without mirrors
	mirrors *index
	changes coalesce.Signal
}

// New returns a Manager without pods.
func New() *Manager {
	return &Manager{pods: newIndex(0), mirrors: newIndex(0)}
}

// SetPods replaces all pods and mirror pods with the given pods and mirror pods. If a UID
// occurs twice, the later pod is used. The slice itself is not retained.
func (m *Manager) SetPods(pods []*corev1.Pod) {
	next := Manager{pods: newIndex(len(pods)), mirrors: newIndex(0)}
	for _, pod := range pods {
		next.set(pod)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods, m.mirrors = next.pods, next.mirrors
	m.changes.Notify()
}

// AddPod adds a pod or a mirror pod. It does the same as [Manager.UpdatePod], because
// sources may add a pod more than once.
func (m *Manager) AddPod(pod *corev1.Pod) { m.UpdatePod(pod) }

// UpdatePod replaces the pod or mirror pod with the same UID, or adds pod if the UID is
// unknown.
func (m *Manager) UpdatePod(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set(pod) {
		m.changes.Notify()
	}
}

// RemovePod removes the pod or mirror pod with pod's UID. It does nothing if the UID is
// unknown. Only the UID of pod is used.
func (m *Manager) RemovePod(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	removed := m.pods.remove(pod.UID)
	if m.mirrors.remove(pod.UID) || removed {
		m.changes.Notify()
	}
}

// set is UpdatePod with the lock held. It reports whether anything changed. A pod whose
// mirror annotation was added or removed moves to the other index.
func (m *Manager) set(pod *corev1.Pod) bool {
	if podspec.IsMirror(pod) {
		m.pods.remove(pod.UID)
		return m.mirrors.set(pod)
	}
	m.mirrors.remove(pod.UID)
	return m.pods.set(pod)
}

// snapshot returns the pods and the mirrors at the same moment. The slices are shared.
func (m *Manager) snapshot() (pods, mirrors []*corev1.Pod) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pods.all(), m.mirrors.all()
}

// GetPods returns all pods that are not mirrors, in the order in which they were added. The
// slice is shared and never changes.
func (m *Manager) GetPods() []*corev1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pods.all()
}

// GetPodsAndMirrorPods returns all pods, all mirror pods, and the orphaned mirror pods. A
// mirror pod is orphaned if no pod has its name.
func (m *Manager) GetPodsAndMirrorPods() (pods, mirrors, orphans []*corev1.Pod) {
	pods, mirrors = m.snapshot()
	if len(mirrors) == 0 {
		return pods, mirrors, nil
	}
	podOf := lastOfName(pods)
	for _, mirror := range mirrors {
		if podOf[nameOf(mirror)] == nil {
			orphans = append(orphans, mirror)
		}
	}
	return pods, mirrors, orphans
}

// GetPodByUID returns the pod with the given UID, and reports whether it exists. It does
// not return mirror pods: see [Manager.TranslatePodUID].
func (m *Manager) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byUID[uid]
	return pod, ok
}

// GetPodByName returns the pod with the given name that was added last, and reports whether
// it exists.
func (m *Manager) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byName[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, ok
}

// GetPodByFullName is [Manager.GetPodByName] for a name of the form "name_namespace" (see
// [podspec.FullName]). For a name of another form it returns false.
func (m *Manager) GetPodByFullName(fullName string) (*corev1.Pod, bool) {
	// A namespace contains no underscore, so a second underscore matches no pod.
	name, namespace, ok := strings.Cut(fullName, "_")
	if !ok || name == "" || namespace == "" {
		return nil, false
	}
	return m.GetPodByName(namespace, name)
}

// GetPodAndMirrorPod returns a pod and its mirror pod, and reports whether the caller passed
// the mirror pod. The caller may pass either of the two pods. GetPodAndMirrorPod returns the
// passed pod unchanged, even if the Manager does not contain the passed pod. The other pod is
// nil if the Manager does not contain it.
func (m *Manager) GetPodAndMirrorPod(either *corev1.Pod) (pod, mirror *corev1.Pod, wasMirror bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if podspec.IsMirror(either) {
		return m.pods.byName[nameOf(either)], either, true
	}
	return either, m.mirrors.byName[nameOf(either)], false
}

// GetMirrorPodByPod returns the mirror pod with pod's name, and reports whether it exists.
func (m *Manager) GetMirrorPodByPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mirror, ok := m.mirrors.byName[nameOf(pod)]
	return mirror, ok
}

// GetPodByMirrorPod returns the pod with mirror's name, and reports whether it exists.
func (m *Manager) GetPodByMirrorPod(mirror *corev1.Pod) (*corev1.Pod, bool) {
	return m.GetPodByName(mirror.Namespace, mirror.Name)
}

// GetStaticPodToMirrorPodMap returns a map from each static pod to its mirror, or to nil if
// the pod has no mirror. The caller owns the map.
func (m *Manager) GetStaticPodToMirrorPodMap() map[*corev1.Pod]*corev1.Pod {
	pods, mirrors := m.snapshot()
	mirrorOf, statics := lastOfName(mirrors), make(map[*corev1.Pod]*corev1.Pod)
	for _, pod := range pods {
		if podspec.IsStatic(pod) {
			statics[pod] = mirrorOf[nameOf(pod)]
		}
	}
	return statics
}

// TranslatePodUID returns the UID of the pod whose mirror has the given UID. Any other UID
// is returned unchanged: the UID of a pod or of an orphaned mirror, an unknown or an empty
// UID.
func (m *Manager) TranslatePodUID(uid types.UID) types.UID {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if mirror, ok := m.mirrors.byUID[uid]; ok {
		if pod, ok := m.pods.byName[nameOf(mirror)]; ok {
			return pod.UID
		}
	}
	return uid
}

// GetUIDTranslations returns a map from the UID of each pod that has a mirror to the UID of
// the mirror, and a map in the opposite direction. The first map also contains each static
// pod without a mirror, with an empty UID. An orphaned mirror is in neither map. The caller
// owns the maps.
func (m *Manager) GetUIDTranslations() (podToMirror, mirrorToPod map[types.UID]types.UID) {
	pods, mirrors := m.snapshot()
	podOf := lastOfName(pods)
	podToMirror, mirrorToPod = make(map[types.UID]types.UID), make(map[types.UID]types.UID)
	for _, pod := range pods {
		if podspec.IsStatic(pod) {
			podToMirror[pod.UID] = ""
		}
	}
	// The newest mirror comes last: if two mirrors have the same name, podToMirror contains
	// the newest mirror, as in lookups by name.
	for _, mirror := range mirrors {
		if pod, ok := podOf[nameOf(mirror)]; ok {
			podToMirror[pod.UID] = mirror.UID
			mirrorToPod[mirror.UID] = pod.UID
		}
	}
	return podToMirror, mirrorToPod
}
