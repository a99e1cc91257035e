package podmanager

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A model is a pod manager that behaves as the documentation of ours specifies: two lists in
// the order of additions. A name refers to the last pod with that name.
type model struct{ pods, copies []*corev1.Pod }

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[mirrorAnnotation]
	return ok
}

func isStatic(pod *corev1.Pod) bool {
	source, ok := pod.Annotations[sourceAnnotation]
	return ok && source != "api"
}

func (m *model) SetPods(pods []*corev1.Pod) {
	m.pods, m.copies = nil, nil
	for _, pod := range pods {
		m.UpdatePod(pod)
	}
}

func (m *model) AddPod(pod *corev1.Pod) { m.UpdatePod(pod) }

func (m *model) UpdatePod(pod *corev1.Pod) {
	list, other := &m.pods, &m.copies
	if isMirror(pod) {
		list, other = other, list
	}
	without(other, pod.UID)
	i := slices.IndexFunc(*list, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	if i >= 0 && (*list)[i].Name == pod.Name && (*list)[i].Namespace == pod.Namespace {
		(*list)[i] = pod
		return
	}
	without(list, pod.UID)
	*list = append(*list, pod)
}

func without(list *[]*corev1.Pod, uid types.UID) {
	*list = slices.DeleteFunc(*list, func(p *corev1.Pod) bool { return p.UID == uid })
}

func (m *model) RemovePod(pod *corev1.Pod) {
	without(&m.pods, pod.UID)
	without(&m.copies, pod.UID)
}

func last(list []*corev1.Pod, namespace, name string) (pod *corev1.Pod, ok bool) {
	for _, p := range list {
		if p.Name == name && p.Namespace == namespace {
			pod = p
		}
	}
	return pod, pod != nil
}

func (m *model) GetPods() []*corev1.Pod { return slices.Clone(m.pods) }

func (m *model) GetPodByUID(uid types.UID) (*corev1.Pod, bool) {
	i := slices.IndexFunc(m.pods, func(p *corev1.Pod) bool { return p.UID == uid })
	if i < 0 {
		return nil, false
	}
	return m.pods[i], true
}

func (m *model) GetPodByName(namespace, name string) (*corev1.Pod, bool) {
	return last(m.pods, namespace, name)
}

func (m *model) GetPodByFullName(full string) (*corev1.Pod, bool) {
	for _, pod := range m.pods {
		if full == pod.Name+"_"+pod.Namespace && pod.Name != "" && pod.Namespace != "" {
			return last(m.pods, pod.Namespace, pod.Name)
		}
	}
	return nil, false
}

func (m *model) GetPodAndMirrorPod(pod *corev1.Pod) (p, mirror *corev1.Pod, wasMirror bool) {
	if isMirror(pod) {
		p, _ = last(m.pods, pod.Namespace, pod.Name)
		return p, pod, true
	}
	mirror, _ = last(m.copies, pod.Namespace, pod.Name)
	return pod, mirror, false
}

func (m *model) GetMirrorPodByPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	return last(m.copies, pod.Namespace, pod.Name)
}

func (m *model) GetPodByMirrorPod(pod *corev1.Pod) (*corev1.Pod, bool) {
	return last(m.pods, pod.Namespace, pod.Name)
}

func (m *model) GetStaticPodToMirrorPodMap() map[*corev1.Pod]*corev1.Pod {
	all := map[*corev1.Pod]*corev1.Pod{}
	for _, pod := range m.pods {
		if isStatic(pod) {
			all[pod], _ = last(m.copies, pod.Namespace, pod.Name)
		}
	}
	return all
}

func (m *model) all() (pods, mirrors []*corev1.Pod, orphans []string) {
	for _, mirror := range m.copies {
		if _, ok := last(m.pods, mirror.Namespace, mirror.Name); !ok {
			orphans = append(orphans, mirror.Name+"_"+mirror.Namespace)
		}
	}
	return slices.Clone(m.pods), slices.Clone(m.copies), orphans
}

func (m *model) translate(uid types.UID) types.UID {
	if _, mirrorToPod := m.translations(); mirrorToPod[uid] != "" {
		return mirrorToPod[uid]
	}
	for _, mirror := range m.copies {
		if pod, ok := last(m.pods, mirror.Namespace, mirror.Name); ok && mirror.UID == uid {
			return pod.UID
		}
	}
	return uid
}

func (m *model) translations() (podToMirror, mirrorToPod map[types.UID]types.UID) {
	podToMirror, mirrorToPod = map[types.UID]types.UID{}, map[types.UID]types.UID{}
	for _, pod := range m.pods {
		if isStatic(pod) {
			podToMirror[pod.UID] = ""
		}
	}
	for _, mirror := range m.copies {
		if pod, ok := last(m.pods, mirror.Namespace, mirror.Name); ok {
			podToMirror[pod.UID], mirrorToPod[mirror.UID] = mirror.UID, pod.UID
		}
	}
	return podToMirror, mirrorToPod
}

func (*model) mirrors(mirror, pod *corev1.Pod) bool {
	hash := mirror.Annotations[mirrorAnnotation]
	return mirror.Name == pod.Name && mirror.Namespace == pod.Namespace && hash != "" && hash == pod.Annotations[hashAnnotation]
}
