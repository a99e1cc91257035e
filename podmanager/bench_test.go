package podmanager_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/podmanager"
)

// The kubelet's pod manager, 1.36.3, on a 2-core VM: GetPods 3.4 µs and 0.9 KB
// with 110 pods, 17 µs and 4 KB with 500, 494 µs and 41 KB with 5000; by UID
// 22–25 ns, by name 44–81 ns, update 110–130 ns.

func filled(n int) (m *podmanager.Manager, pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, staticPod(fmt.Sprintf("pod-%d", i), fmt.Sprintf("0f8fad5b-d9cb-469f-a165-%012d", i)))
	}
	m = podmanager.New()
	m.SetPods(pods)
	return m, pods
}

func sizes(b *testing.B, run func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod)) {
	b.Helper()
	for _, n := range []int{110, 500, 5000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			m, pods := filled(n)
			b.ReportAllocs()
			run(b, m, pods)
		})
	}
}

func BenchmarkGetPods(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, _ []*corev1.Pod) {
		for b.Loop() {
			m.GetPods()
		}
	})
}

func BenchmarkGetPodByUID(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		uid := pods[len(pods)/2].UID
		for b.Loop() {
			m.GetPodByUID(uid)
		}
	})
}

func BenchmarkGetPodByName(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		name := pods[len(pods)/2].Name
		for b.Loop() {
			m.GetPodByName("default", name)
		}
	})
}

func BenchmarkUpdatePod(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		changes := []*corev1.Pod{pods[len(pods)/2].DeepCopy(), pods[len(pods)/2].DeepCopy()}
		i := 0
		for b.Loop() {
			m.UpdatePod(changes[i%2])
			i++
		}
	})
}

// The cost of a change with subscribers that do not read.
func BenchmarkUpdatePodWithSubscribers(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		for range 10 {
			m.Subscribe(b.Context())
		}
		changes := []*corev1.Pod{pods[len(pods)/2].DeepCopy(), pods[len(pods)/2].DeepCopy()}
		i := 0
		for b.Loop() {
			m.UpdatePod(changes[i%2])
			i++
		}
	})
}

func BenchmarkGetUIDTranslations(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, _ []*corev1.Pod) {
		for b.Loop() {
			m.GetUIDTranslations()
		}
	})
}

// The step of a mirror loop at rest.
func BenchmarkPlanMirrors(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		for _, pod := range pods {
			m.AddPod(mirrorPod(pod.Name, "mirror-"+pod.Name, string(pod.UID)))
		}
		for b.Loop() {
			pods, mirrors, _ := m.GetPodsAndMirrorPods()
			if plan := podmanager.PlanMirrors(pods, mirrors, nil); len(plan) > 0 {
				b.Fatal(plan)
			}
		}
	})
}

// The most expensive case: the list was returned to a reader since the last update.
func BenchmarkGetPodsAndUpdatePod(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, pods []*corev1.Pod) {
		changes := []*corev1.Pod{pods[len(pods)/2].DeepCopy(), pods[len(pods)/2].DeepCopy()}
		i := 0
		for b.Loop() {
			m.GetPods()
			m.UpdatePod(changes[i%2])
			i++
		}
	})
}

func BenchmarkAddAndRemovePod(b *testing.B) {
	sizes(b, func(b *testing.B, m *podmanager.Manager, _ []*corev1.Pod) {
		pod := staticPod("new", "new")
		for b.Loop() {
			m.AddPod(pod)
			m.RemovePod(pod)
		}
	})
}

func TestManager_LookupsAllocateNothing(t *testing.T) {
	m, pods := filled(500)
	m.AddPod(mirrorPod(pods[7].Name, "mirror", "h"))
	var uid types.UID
	allocs := testing.AllocsPerRun(100, func() {
		m.GetPods()
		m.GetPodByUID(pods[7].UID)
		m.GetPodByName(pods[7].Namespace, pods[7].Name)
		m.GetPodByFullName("pod-7_default")
		m.GetPodAndMirrorPod(pods[7])
		uid = m.TranslatePodUID("mirror")
	})
	if allocs != 0 || uid != pods[7].UID {
		t.Errorf("%v allocations, uid %q", allocs, uid)
	}
}
