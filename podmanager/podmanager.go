package podmanager

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// Manager knows the pods that should be on this node. Make it with [New]; all
// methods are safe for concurrent use.
//
// Pods that are given to it are kept and those that it returns are shared: neither
// may be modified. The same holds for the slices that it returns. A UID is taken
// to be unique; a pod without one is a pod with the UID "".
type Manager struct {
	mu      sync.RWMutex
	pods    *index // without mirrors
	mirrors *index
	changes coalesce.Signal
}

// New returns a Manager that knows no pod.
func New() *Manager {
	return &Manager{pods: newIndex(0), mirrors: newIndex(0)}
}

// SetPods replaces all pods and mirror pods by those in pods. Where a UID occurs
// twice, the later one counts. The slice itself is not kept.
func (m *Manager) SetPods(pods []*corev1.Pod) {
	fresh := Manager{pods: newIndex(len(pods)), mirrors: newIndex(0)}
	for _, pod := range pods {
		fresh.set(pod)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods, m.mirrors = fresh.pods, fresh.mirrors
	m.changes.Notify()
}

// AddPod makes pod known, a mirror or not. It is the same as [Manager.UpdatePod]:
// sources repeat themselves.
func (m *Manager) AddPod(pod *corev1.Pod) { m.UpdatePod(pod) }

// UpdatePod puts pod in the place of the one with the same UID, or adds it if there
// is none.
func (m *Manager) UpdatePod(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.set(pod) {
		m.changes.Notify()
	}
}

// RemovePod forgets the pod with pod's UID. It does nothing if there is none;
// the rest of pod may be out of date.
func (m *Manager) RemovePod(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	removed := m.pods.remove(pod.UID)
	if m.mirrors.remove(pod.UID) || removed {
		m.changes.Notify()
	}
}

// set is UpdatePod under the lock, and says whether anything changed. A pod whose
// mirror annotation came or went moves to the other index.
func (m *Manager) set(pod *corev1.Pod) bool {
	if podspec.IsMirror(pod) {
		m.pods.remove(pod.UID)
		return m.mirrors.set(pod)
	}
	m.mirrors.remove(pod.UID)
	return m.pods.set(pod)
}

// snapshot lends both lists, as of one moment.
func (m *Manager) snapshot() (pods, mirrors []*corev1.Pod) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pods.all(), m.mirrors.all()
}

// GetPods returns all pods that are not mirrors, in the order in which they were
// added. The slice is shared and does not change any more.
func (m *Manager) GetPods() []*corev1.Pod {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.pods.all()
}

// GetPodsAndMirrorPods returns all pods, all mirror pods, and those of the mirror
// pods that are orphans: no pod has their name.
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

// GetPodByUID returns the pod with the given UID and whether there is one. A
// mirror is not found by its UID: see [Manager.TranslatePodUID].
func (m *Manager) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byUID[uid]
	return pod, ok
}

// GetPodByName returns the pod of the given name that was added last, and whether
// there is one.
func (m *Manager) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	pod, ok := m.pods.byName[types.NamespacedName{Namespace: namespace, Name: name}]
	return pod, ok
}

// GetPodByFullName is [Manager.GetPodByName] for a name of the form
// "name_namespace" (see [podspec.FullName]). No pod has a name of another form.
func (m *Manager) GetPodByFullName(fullName string) (*corev1.Pod, bool) {
	// An underscore in what follows the first one is in no pod's namespace.
	name, namespace, ok := strings.Cut(fullName, "_")
	if !ok || name == "" || namespace == "" {
		return nil, false
	}
	return m.GetPodByName(namespace, name)
}

// GetPodAndMirrorPod returns both sides of a pod, given one of them, and whether
// that was the mirror. The side that is given is returned as it is, known or not;
// the other is nil if there is none.
func (m *Manager) GetPodAndMirrorPod(either *corev1.Pod) (pod, mirror *corev1.Pod, wasMirror bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if podspec.IsMirror(either) {
		return m.pods.byName[nameOf(either)], either, true
	}
	return either, m.mirrors.byName[nameOf(either)], false
}

// GetMirrorPodByPod returns the mirror of pod's name and whether there is one.
func (m *Manager) GetMirrorPodByPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	mirror, ok := m.mirrors.byName[nameOf(pod)]
	return mirror, ok
}

// GetPodByMirrorPod returns the pod of mirror's name and whether there is one.
func (m *Manager) GetPodByMirrorPod(mirror *corev1.Pod) (*corev1.Pod, bool) {
	return m.GetPodByName(mirror.Namespace, mirror.Name)
}

// GetStaticPodToMirrorPodMap returns every static pod with its mirror, which is nil
// where there is none. The map is the caller's.
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

// TranslatePodUID returns the UID of the pod whose mirror has the given one. Any
// other UID is returned as it is: that of a pod, of a mirror without one, an
// unknown or an empty one.
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

// GetUIDTranslations returns the UIDs of all pods that have a mirror with those of
// the mirrors, and the reverse. A static pod without a mirror is in the first map,
// with an empty UID, and an orphaned mirror in neither. The maps are the caller's.
func (m *Manager) GetUIDTranslations() (podToMirror, mirrorToPod map[types.UID]types.UID) {
	pods, mirrors := m.snapshot()
	podOf := lastOfName(pods)
	podToMirror, mirrorToPod = make(map[types.UID]types.UID), make(map[types.UID]types.UID)
	for _, pod := range pods {
		if podspec.IsStatic(pod) {
			podToMirror[pod.UID] = ""
		}
	}
	// Newest last: where two mirrors share a name, the pod's is the one it is
	// looked up by.
	for _, mirror := range mirrors {
		if pod, ok := podOf[nameOf(mirror)]; ok {
			podToMirror[pod.UID] = mirror.UID
			mirrorToPod[mirror.UID] = pod.UID
		}
	}
	return podToMirror, mirrorToPod
}
