package podmanager_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podmanager"
)

// model is the naive manager: one list in order of addition, searched from its end.
type model []*corev1.Pod

func (m *model) set(pod *corev1.Pod) {
	i := slices.IndexFunc(*m, func(p *corev1.Pod) bool { return p.UID == pod.UID })
	if i >= 0 && (*m)[i].Name == pod.Name && podspec.IsMirror((*m)[i]) == podspec.IsMirror(pod) {
		(*m)[i] = pod
		return
	}
	m.remove(pod.UID)
	*m = append(*m, pod)
}

func (m *model) remove(uid types.UID) {
	*m = slices.DeleteFunc(*m, func(p *corev1.Pod) bool { return p.UID == uid })
}

func (m *model) last(mirror bool, match func(*corev1.Pod) bool) *corev1.Pod {
	for _, pod := range slices.Backward(*m) {
		if podspec.IsMirror(pod) == mirror && match(pod) {
			return pod
		}
	}
	return nil
}

func (m *model) all(mirror bool) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(*m), func(p *corev1.Pod) bool { return podspec.IsMirror(p) != mirror })
}

func TestManager_AgreesWithTheModel(t *testing.T) {
	t.Parallel()
	for run := range 200 {
		seed := rand.Uint64()
		t.Run(fmt.Sprintf("run %d seed %d", run, seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 0))
			got, want := podmanager.New(), model{}
			changes := got.Subscribe(t.Context())
			<-changes
			for range 100 {
				before := slices.Clone(want)
				randomOp(rnd, got, &want)
				requireAgrees(t, got, want)
				// The reverse does not hold: SetPods always counts as a change.
				if changed := !slices.Equal(before, want); changed {
					require.True(t, told(changes))
				}
			}
		})
	}
}

func randomPod(rnd *rand.Rand) *corev1.Pod {
	name, uid := fmt.Sprintf("p%d", rnd.IntN(3)), fmt.Sprintf("u%d", rnd.IntN(6))
	switch rnd.IntN(3) {
	case 0:
		return apiPod(name, uid)
	case 1:
		return staticPod(name, uid)
	default:
		return mirrorPod(name, uid, "h")
	}
}

func randomOp(rnd *rand.Rand, got *podmanager.Manager, want *model) {
	pod := randomPod(rnd)
	switch rnd.IntN(10) {
	case 0:
		pods := []*corev1.Pod{pod, randomPod(rnd), randomPod(rnd)}
		got.SetPods(pods)
		*want = nil
		for _, p := range pods {
			want.set(p)
		}
	case 1, 2, 3:
		got.RemovePod(pod)
		want.remove(pod.UID)
	case 4, 5, 6:
		got.AddPod(pod)
		want.set(pod)
	default:
		got.UpdatePod(pod)
		want.set(pod)
	}
}

func requireAgrees(t *testing.T, got *podmanager.Manager, want model) {
	t.Helper()
	pods, mirrors, orphans := got.GetPodsAndMirrorPods()
	require.Equal(t, want.all(false), append([]*corev1.Pod{}, pods...))
	require.Equal(t, want.all(true), append([]*corev1.Pod{}, mirrors...))
	require.Equal(t, pods, got.GetPods())
	podToMirror, mirrorToPod := got.GetUIDTranslations()
	statics := got.GetStaticPodToMirrorPodMap()

	for i := range 3 {
		named := func(p *corev1.Pod) bool { return p.Name == fmt.Sprintf("p%d", i) }
		wantPod, wantMirror := want.last(false, named), want.last(true, named)
		pod, ok := got.GetPodByName("default", fmt.Sprintf("p%d", i))
		require.Same(t, wantPod, pod)
		require.Equal(t, wantPod != nil, ok)
		if pod == nil {
			continue
		}
		mirror, _ := got.GetMirrorPodByPod(pod)
		require.Same(t, wantMirror, mirror)
		if podspec.IsStatic(pod) {
			require.Same(t, wantMirror, statics[pod])
		}
		if mirror != nil {
			require.Equal(t, mirror.UID, podToMirror[pod.UID])
		}
	}
	for i := range 6 {
		uid := types.UID(fmt.Sprintf("u%d", i))
		hasUID := func(p *corev1.Pod) bool { return p.UID == uid }
		pod, _ := got.GetPodByUID(uid)
		require.Same(t, want.last(false, hasUID), pod)
		translated := uid
		if mirror := want.last(true, hasUID); mirror != nil {
			static := want.last(false, func(p *corev1.Pod) bool { return p.Name == mirror.Name })
			require.Equal(t, static == nil, slices.Contains(orphans, mirror))
			if static != nil {
				translated = static.UID
				require.Equal(t, static.UID, mirrorToPod[uid])
			}
		}
		require.Equal(t, translated, got.TranslatePodUID(uid))
	}
}

func TestManager_ConcurrentReadersAndWriters(t *testing.T) {
	t.Parallel()
	m := podmanager.New()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 500 {
				randomOp(rnd, m, &model{})
			}
		})
		wg.Go(func() {
			for range 500 {
				for _, pod := range m.GetPods() {
					m.GetPodAndMirrorPod(pod)
					m.TranslatePodUID(pod.UID)
				}
				m.GetUIDTranslations()
			}
		})
	}
	wg.Wait()
}
