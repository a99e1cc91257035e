package podmanager_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func apiPod(name, uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(uid),
		Annotations: map[string]string{podspec.SourceAnnotation: "api"},
	}}
}

func staticPod(name, uid string) *corev1.Pod {
	pod := apiPod(name, uid)
	pod.Annotations = map[string]string{podspec.SourceAnnotation: "file", podspec.HashAnnotation: uid}
	return pod
}

func mirrorPod(name, uid, hash string) *corev1.Pod {
	pod := apiPod(name, uid)
	pod.Annotations[podspec.MirrorAnnotation] = hash
	return pod
}

func TestManager_ReadsAgree(t *testing.T) {
	t.Parallel()
	api, static, mirror := apiPod("api", "u1"), staticPod("web-n1", "u2"), mirrorPod("web-n1", "u3", "u2")
	lonely, orphan := staticPod("dns-n1", "u4"), mirrorPod("gone-n1", "u5", "u9")
	m := podmanager.New()
	m.AddPod(apiPod("forgotten", "u0"))
	m.SetPods([]*corev1.Pod{api, mirror, static, lonely, orphan})

	require.Equal(t, []*corev1.Pod{api, static, lonely}, m.GetPods())
	pods, mirrors, orphans := m.GetPodsAndMirrorPods()
	require.Equal(t, []*corev1.Pod{api, static, lonely}, pods)
	require.Equal(t, []*corev1.Pod{mirror, orphan}, mirrors)
	require.Equal(t, []*corev1.Pod{orphan}, orphans)
	require.Equal(t, map[*corev1.Pod]*corev1.Pod{static: mirror, lonely: nil}, m.GetStaticPodToMirrorPodMap())

	podToMirror, mirrorToPod := m.GetUIDTranslations()
	require.Equal(t, map[types.UID]types.UID{"u2": "u3", "u4": ""}, podToMirror)
	require.Equal(t, map[types.UID]types.UID{"u3": "u2"}, mirrorToPod)

	for _, pod := range pods {
		requireFound(t, m, pod)
	}
	_, ok := m.GetPodByUID("u0")
	require.False(t, ok, "a pod from before SetPods must be removed")
}

func requireFound(t *testing.T, m *podmanager.Manager, want *corev1.Pod) {
	t.Helper()
	pod, ok := m.GetPodByUID(want.UID)
	require.True(t, ok)
	require.Same(t, want, pod)
	pod, ok = m.GetPodByName(want.Namespace, want.Name)
	require.True(t, ok)
	require.Same(t, want, pod)
	pod, ok = m.GetPodByFullName(podspec.FullName(want))
	require.True(t, ok)
	require.Same(t, want, pod)
}

func TestManager_MirrorsAreNotFoundAsPods(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	m.AddPod(mirrorPod("web-n1", "u3", "u2"))
	_, ok := m.GetPodByUID("u3")
	require.False(t, ok)
	_, ok = m.GetPodByName("default", "web-n1")
	require.False(t, ok)
	require.Empty(t, m.GetPods())
}

func TestGetPodAndMirrorPod(t *testing.T) {
	t.Parallel()
	static, mirror := staticPod("web-n1", "u2"), mirrorPod("web-n1", "u3", "u2")
	m := podmanager.New()
	requireSides := func(given, wantPod, wantMirror *corev1.Pod, wantWasMirror bool) {
		t.Helper()
		pod, other, wasMirror := m.GetPodAndMirrorPod(given)
		require.Same(t, wantPod, pod)
		require.Same(t, wantMirror, other)
		require.Equal(t, wantWasMirror, wasMirror)
	}
	requireSides(static, static, nil, false)
	requireSides(mirror, nil, mirror, true)
	_, ok := m.GetMirrorPodByPod(static)
	require.False(t, ok)
	_, ok = m.GetPodByMirrorPod(mirror)
	require.False(t, ok)

	m.AddPod(static)
	m.AddPod(mirror)
	requireSides(static, static, mirror, false)
	requireSides(mirror, static, mirror, true)
	got, ok := m.GetMirrorPodByPod(static)
	require.True(t, ok)
	require.Same(t, mirror, got)
	got, ok = m.GetPodByMirrorPod(mirror)
	require.True(t, ok)
	require.Same(t, static, got)
}

func TestGetPodByFullName_InvalidName(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	m.AddPod(apiPod("web", "u1"))
	for _, name := range []string{"", "_", "web", "web_", "_default", "web_default_", "web_default_x", "web__default", "default_web"} {
		_, ok := m.GetPodByFullName(name)
		require.False(t, ok, name)
	}
}

func TestUpdatePod_ReplacesInPlace(t *testing.T) {
	t.Parallel()
	for name, update := range map[string]func(*podmanager.Manager, *corev1.Pod){
		"AddPod":    (*podmanager.Manager).AddPod,
		"UpdatePod": (*podmanager.Manager).UpdatePod,
	} {
		first, second, changed := apiPod("a", "u1"), apiPod("b", "u2"), apiPod("a", "u1")
		m := podmanager.New()
		m.SetPods([]*corev1.Pod{first, second})
		before := m.GetPods()
		update(m, changed)

		requireFound(t, m, changed)
		after := m.GetPods()
		require.Same(t, changed, after[0], name)
		require.Same(t, second, after[1], name)
		require.Same(t, first, before[0], "a returned list must not change")
	}
}

func TestUpdatePod_ChangedNameFreesTheOldOne(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	m.AddPod(apiPod("a", "u1"))
	m.UpdatePod(apiPod("b", "u1"))
	_, ok := m.GetPodByName("default", "a")
	require.False(t, ok)
	require.Len(t, m.GetPods(), 1)
}

func TestUpdatePod_PodBecomesAMirror(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	m.AddPod(apiPod("a", "u1"))
	m.UpdatePod(mirrorPod("a", "u1", "h"))
	pods, mirrors, _ := m.GetPodsAndMirrorPods()
	require.Empty(t, pods)
	require.Len(t, mirrors, 1)

	m.UpdatePod(apiPod("a", "u1"))
	pods, mirrors, _ = m.GetPodsAndMirrorPods()
	require.Len(t, pods, 1)
	require.Empty(t, mirrors)
}

func TestManager_ReturnedListsNeverChange(t *testing.T) {
	t.Parallel()
	a, b, c := apiPod("a", "u1"), apiPod("b", "u2"), apiPod("c", "u3")
	m := podmanager.New()
	m.SetPods([]*corev1.Pod{a, b})
	list := m.GetPods()
	_ = append(list, apiPod("mine", "u9")) // must not write into the Manager's array
	m.AddPod(c)
	m.RemovePod(a)
	m.UpdatePod(apiPod("b", "u2"))
	require.Equal(t, []*corev1.Pod{a, b}, list)
	require.Same(t, b, list[1])
	require.Len(t, m.GetPods(), 2)
	requireFound(t, m, c)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	api, static, mirror := apiPod("api", "u1"), staticPod("web-n1", "u2"), mirrorPod("web-n1", "u3", "u2")
	for _, removed := range []*corev1.Pod{api, static, mirror} {
		m := podmanager.New()
		m.SetPods([]*corev1.Pod{api, static, mirror})
		m.RemovePod(apiPod("stale copy", string(removed.UID)))
		m.RemovePod(removed) // a second removal has no effect
		pods, mirrors, _ := m.GetPodsAndMirrorPods()
		require.Len(t, append(pods, mirrors...), 2)
		require.NotContains(t, append(pods, mirrors...), removed)
	}
}

// In the kubelet the successor vanishes from the name index and its live mirror
// is listed as an orphan.
func TestRemovePod_OlderPodOfANameKeepsTheNewer(t *testing.T) {
	t.Parallel()
	old, successor, mirror := staticPod("web-n1", "u1"), staticPod("web-n1", "u2"), mirrorPod("web-n1", "u3", "u2")
	m := podmanager.New()
	for _, pod := range []*corev1.Pod{old, mirror, successor} {
		m.AddPod(pod)
	}
	m.UpdatePod(staticPod("web-n1", "u1")) // an update of the old pod does not change this either
	requireFound(t, m, successor)
	m.RemovePod(old)
	requireFound(t, m, successor)
	_, _, orphans := m.GetPodsAndMirrorPods()
	require.Empty(t, orphans)
	require.Equal(t, types.UID("u2"), m.TranslatePodUID("u3"))
}

func TestRemovePod_NewerPodOfANameRestoresTheOlder(t *testing.T) {
	t.Parallel()
	old, successor := apiPod("web", "u1"), apiPod("web", "u2")
	m := podmanager.New()
	m.AddPod(old)
	m.AddPod(successor)
	m.RemovePod(successor)
	requireFound(t, m, old)
}

// In the kubelet the live mirror is not found.
func TestRemovePod_OlderMirrorKeepsTheNewer(t *testing.T) {
	t.Parallel()
	static, old, live := staticPod("web-n1", "u1"), mirrorPod("web-n1", "u2", "u1"), mirrorPod("web-n1", "u3", "u1")
	m := podmanager.New()
	m.SetPods([]*corev1.Pod{static, old, live})
	podToMirror, mirrorToPod := m.GetUIDTranslations()
	require.Equal(t, map[types.UID]types.UID{"u1": "u3"}, podToMirror)
	require.Equal(t, map[types.UID]types.UID{"u2": "u1", "u3": "u1"}, mirrorToPod)

	m.RemovePod(old)
	got, ok := m.GetMirrorPodByPod(static)
	require.True(t, ok)
	require.Same(t, live, got)
}

// After the static pod was removed, the kubelet still translates the UID of the mirror pod to
// the UID of the removed pod.
func TestTranslatePodUID_OrphanedMirror(t *testing.T) {
	t.Parallel()
	static := staticPod("web-n1", "u1")
	m := podmanager.New()
	m.SetPods([]*corev1.Pod{static, mirrorPod("web-n1", "u2", "u1")})
	require.Equal(t, types.UID("u1"), m.TranslatePodUID("u2"))
	m.RemovePod(static)
	require.Equal(t, types.UID("u2"), m.TranslatePodUID("u2"))
	podToMirror, mirrorToPod := m.GetUIDTranslations()
	require.Empty(t, podToMirror)
	require.Empty(t, mirrorToPod)
}

func TestTranslatePodUID_DoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	static, mirror := staticPod("web-n1", "u1"), mirrorPod("web-n1", "u2", "u1")
	for _, order := range [][]*corev1.Pod{{static, mirror}, {mirror, static}} {
		m := podmanager.New()
		for _, pod := range order {
			m.AddPod(pod)
		}
		require.Equal(t, types.UID("u1"), m.TranslatePodUID("u2"))
		require.Equal(t, types.UID("u1"), m.TranslatePodUID("u1"))
		require.Equal(t, types.UID("unknown"), m.TranslatePodUID("unknown"))
		require.Empty(t, m.TranslatePodUID(""))
	}
}
