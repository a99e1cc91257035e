package podmanager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletpod "k8s.io/kubernetes/pkg/kubelet/pod"

	"github.com/kubeparts/kubeparts/podmanager"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// manager is the methods of both managers. Methods that differ have a common form.
type manager interface {
	SetPods([]*corev1.Pod)
	AddPod(*corev1.Pod)
	UpdatePod(*corev1.Pod)
	RemovePod(*corev1.Pod)
	GetPods() []*corev1.Pod
	GetPodByUID(types.UID) (*corev1.Pod, bool)
	GetPodByName(namespace, name string) (*corev1.Pod, bool)
	GetPodByFullName(string) (*corev1.Pod, bool)
	GetPodAndMirrorPod(*corev1.Pod) (pod, mirror *corev1.Pod, wasMirror bool)
	GetMirrorPodByPod(*corev1.Pod) (*corev1.Pod, bool)
	GetPodByMirrorPod(*corev1.Pod) (*corev1.Pod, bool)
	GetStaticPodToMirrorPodMap() map[*corev1.Pod]*corev1.Pod
	all() (pods, mirrors []*corev1.Pod, orphans []string)
	translate(types.UID) types.UID
	translations() (podToMirror, mirrorToPod map[types.UID]types.UID)
	mirrors(mirror, pod *corev1.Pod) bool
}

type kubeletManager struct{ kubeletpod.Manager }

func (m kubeletManager) all() (pods, mirrors []*corev1.Pod, orphans []string) {
	return m.GetPodsAndMirrorPods()
}

func (m kubeletManager) translate(uid types.UID) types.UID { return types.UID(m.TranslatePodUID(uid)) }

func (m kubeletManager) translations() (podToMirror, mirrorToPod map[types.UID]types.UID) {
	p, q := m.GetUIDTranslations()
	podToMirror, mirrorToPod = map[types.UID]types.UID{}, map[types.UID]types.UID{}
	for k, v := range p {
		podToMirror[types.UID(k)] = types.UID(v)
	}
	for k, v := range q {
		mirrorToPod[types.UID(k)] = types.UID(v)
	}
	return podToMirror, mirrorToPod
}

func (kubeletManager) mirrors(mirror, pod *corev1.Pod) bool {
	return kubeletpod.IsMirrorPodOf(mirror, pod)
}

type ourManager struct {
	*podmanager.Manager
	changes <-chan struct{}
}

// told reports whether the manager has notified its subscriber of a change since the last
// call.
func (m ourManager) told() bool {
	select {
	case <-m.changes:
		return true
	default:
		return false
	}
}

func (m ourManager) all() (pods, mirrors []*corev1.Pod, orphans []string) {
	pods, mirrors, lost := m.GetPodsAndMirrorPods()
	for _, pod := range lost {
		orphans = append(orphans, pod.Name+"_"+pod.Namespace)
	}
	return pods, mirrors, orphans
}

func (m ourManager) translate(uid types.UID) types.UID { return m.TranslatePodUID(uid) }

func (m ourManager) translations() (podToMirror, mirrorToPod map[types.UID]types.UID) {
	return m.GetUIDTranslations()
}

func (ourManager) mirrors(mirror, pod *corev1.Pod) bool { return podmanager.Mirrors(mirror, pod) }

func kubeletSide(_ *testing.T, w *world) []judge.Facts {
	return play(w, kubeletManager{kubeletpod.NewBasicPodManager()})
}

func oursSide(t *testing.T, w *world) []judge.Facts {
	t.Helper()
	m := podmanager.New()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ours := ourManager{m, m.Subscribe(ctx)}
	ours.told() // the first notification is immediate
	return play(w, ours)
}

// play applies the changes of a world and calls all query methods after each.
func play(w *world, m manager) (all []judge.Facts) {
	var lent []*corev1.Pod // the list of the previous step, which must not change
	own := &corev1.Pod{}   // appended by a reader to a returned list
	for i, s := range w.Steps {
		before := inOrder(w, lent)
		longer := append(lent, own)
		known := objects(m)
		switch s.Call {
		case "set":
			m.SetPods(s.Pods)
		case "add":
			m.AddPod(s.Pods[0])
		case "update":
			m.UpdatePod(s.Pods[0])
		default:
			m.RemovePod(s.Pods[0])
		}
		f := judge.Facts{
			"list of before is unchanged": fmt.Sprint(inOrder(w, lent) == before && longer[len(lent)] == own),
			"told":                        fmt.Sprint(s.Call == "set" || !maps.Equal(known, objects(m))),
		}
		if notifier, ok := m.(interface{ told() bool }); ok {
			f["told"] = fmt.Sprint(notifier.told())
		}
		lent = m.GetPods()
		f["pods in order"] = inOrder(w, lent)
		_, mirrors, _ := m.all()
		f["mirrors in order"] = inOrder(w, mirrors)
		lookUp(f, w, m)
		lists(f, w, m)
		for _, pod := range w.Steps[i].Pods {
			sides(f, w, m, pod)
		}
		all = append(all, f)
	}
	return all
}

// objects returns all pods and mirror pods in a manager.
func objects(m manager) map[*corev1.Pod]bool {
	all := map[*corev1.Pod]bool{}
	_, mirrors, _ := m.all()
	for _, pod := range slices.Concat(m.GetPods(), mirrors) {
		all[pod] = true
	}
	return all
}

func found(w *world, pod *corev1.Pod, ok bool) string {
	if ok != (pod != nil) {
		return fmt.Sprintf("%t %s", ok, describe(w, pod))
	}
	return describe(w, pod)
}

func lookUp(f judge.Facts, w *world, m manager) {
	for _, uid := range uids() {
		pod, ok := m.GetPodByUID(uid)
		f["uid "+string(uid)] = found(w, pod, ok)
		f["translate "+string(uid)] = string(m.translate(uid))
	}
	for _, namespace := range []string{"ns", "other"} {
		for _, name := range names() {
			pod, ok := m.GetPodByName(namespace, name)
			f["name "+namespace+"/"+name] = found(w, pod, ok)
			pod, ok = m.GetPodByFullName(name + "_" + namespace)
			f["full name "+name+"_"+namespace] = found(w, pod, ok)
		}
	}
	for _, bad := range []string{"", "a", "a_", "_ns", "a_ns_x", "ns_a"} {
		pod, ok := m.GetPodByFullName(bad)
		f["full name "+bad] = found(w, pod, ok)
	}
	podToMirror, mirrorToPod := m.translations()
	for pod, mirror := range podToMirror {
		f["mirror of "+string(pod)] = "is " + string(mirror)
	}
	for mirror, pod := range mirrorToPod {
		f["pod of "+string(mirror)] = "is " + string(pod)
	}
}

func inOrder(w *world, pods []*corev1.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, describe(w, pod))
	}
	return strings.Join(all, "; ")
}

func sorted(w *world, pods []*corev1.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, describe(w, pod))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func lists(f judge.Facts, w *world, m manager) {
	f["pods"] = sorted(w, m.GetPods())
	pods, mirrors, orphans := m.all()
	f["all pods"], f["all mirrors"] = sorted(w, pods), sorted(w, mirrors)
	slices.Sort(orphans)
	for _, orphan := range slices.Compact(orphans) {
		f["orphan "+orphan] = "yes"
	}
	statics := m.GetStaticPodToMirrorPodMap()
	f["static pods"] = sorted(w, slices.Collect(maps.Keys(statics)))
	for static, mirror := range statics {
		f["mirror of static pod "+describe(w, static)] = describe(w, mirror)
	}
	for _, mirror := range mirrors {
		for _, pod := range pods {
			f[fmt.Sprintf("%s mirrors %s", describe(w, mirror), describe(w, pod))] = fmt.Sprint(m.mirrors(mirror, pod))
		}
	}
}

// sides records the mirror pod of a static pod, and the reverse.
func sides(f judge.Facts, w *world, m manager, pod *corev1.Pod) {
	p, mirror, wasMirror := m.GetPodAndMirrorPod(pod)
	name := describe(w, pod)
	f["both of "+name] = fmt.Sprint(describe(w, p), " and ", describe(w, mirror), wasMirror)
	mirror, ok := m.GetMirrorPodByPod(pod)
	f["mirror by pod "+name] = found(w, mirror, ok)
	p, ok = m.GetPodByMirrorPod(pod)
	f["pod by mirror "+name] = found(w, p, ok)
}
