package podmanager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// deliver sets a source's pods, and returns all pods of the Merge afterwards.
func (b *mergeBed) deliver(source string, pods ...*corev1.Pod) []*corev1.Pod {
	b.t.Helper()
	b.changes = nil
	require.NoError(b.t, b.Set(b.t.Context(), source, pods))
	require.Len(b.t, b.changes, 1)
	return b.changes[0].Pods
}

func said(source string, pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{podspec.SourceAnnotation: source, "note": "1"}
	return pod
}

// If a pod of the API server could count as static, its author could make the agent admit
// it before other pods and protect it from eviction.
func TestMerge_APIPodCannotMakeItselfStatic(t *testing.T) {
	t.Parallel()
	for _, lie := range []string{podspec.SourceFile, podspec.SourceHTTP, "static", ""} {
		b := newMergeBed(t)
		pod := said(lie, podOf("a", "u1", "i:1"))
		before := pod.DeepCopy()
		all := b.deliver(podspec.SourceAPI, pod)
		require.False(t, podspec.IsStatic(all[0]), lie)
		require.Equal(t, map[string]string{podspec.SourceAnnotation: podspec.SourceAPI, "note": "1"}, all[0].Annotations)
		require.Same(t, all[0], b.changes[0].Ops[0].Pod)
		require.Equal(t, before, pod, "the source's pod must not be modified")
	}
}

func TestMerge_AnnotatesPodsWithTheirSource(t *testing.T) {
	t.Parallel()
	for _, source := range []string{"file", "http", "api"} {
		b := newMergeBed(t)
		right, wrong, none := said(source, podOf("a", "u1", "i:1")), said("elsewhere", podOf("b", "u2", "i:1")), podOf("c", "u3", "i:1")
		all := b.deliver(source, right, wrong, none)
		require.Len(t, all, 3)
		for _, pod := range all {
			require.Equal(t, source, pod.Annotations[podspec.SourceAnnotation])
			require.Equal(t, source != "api", podspec.IsStatic(pod))
		}
		require.Same(t, right, all[0], "a pod with the right annotation must not be copied")
		require.Equal(t, wrong.Spec, all[1].Spec)
		require.Nil(t, none.Annotations)
	}
}

// The diff compares pointers first. Therefore, as long as a source passes the same object,
// the Merge must pass the same object, too.
func TestMerge_CopiesEachPodOnce(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	one, two := podOf("a", "u1", "i:1"), podOf("b", "u2", "i:1")
	first := b.deliver("api", one, two)
	b.set("api", pods(two, one))
	require.Empty(t, b.changes, "another order must not be a change")
	again := b.deliver("file", podOf("c", "u3", "i:1"))
	require.Same(t, first[1], again[1], "the copies must be reused in the other order")
	require.Same(t, first[0], again[2])

	edited := podOf("a", "u1", "i:2")
	now := b.deliver("api", edited, two)
	require.Equal(t, []string{"UPDATE u1"}, opTexts(b.changes[0].Ops))
	require.NotSame(t, first[0], now[1])
	require.Same(t, first[1], now[2])

	b.deliver("api", two)
	now = b.deliver("api", one, two)
	require.NotSame(t, first[0], now[1], "the copy must be deleted with its pod")
	require.Same(t, first[1], now[2])
}

// Like an informer: each event is a new object of one pod.
func TestMerge_APIPods(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	other := podOf("b", "u2", "i:1")
	pod := podOf("a", "u1", "i:1")
	b.set("api", pods(pod, other), "ADD u1", "ADD u2")
	next := func(change func(p *corev1.Pod), want ...string) {
		t.Helper()
		pod = pod.DeepCopy()
		change(pod)
		b.set("api", pods(pod, other), want...)
	}
	next(func(*corev1.Pod) {})
	next(func(p *corev1.Pod) { p.ResourceVersion = "2" })
	next(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, "UPDATE u1")
	next(func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }, "UPDATE u1")
	next(func(p *corev1.Pod) { p.Annotations[podspec.SourceAnnotation] = podspec.SourceFile })
	next(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "i:2" }, "UPDATE u1")
	next(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }, "RECONCILE u1")
	next(func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1000, 0)}, new(int64(30))
	}, "DELETE u1")
	next(func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = new(int64(1)) }, "DELETE u1")
	next(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "RECONCILE u1")
	b.set("api", pods(other), "REMOVE u1")
}

func TestMerge_IgnoresNilPods(t *testing.T) {
	t.Parallel()
	b := newMergeBed(t)
	all := b.deliver(podspec.SourceAPI, nil, podOf("a", "u1", "i:1"), nil)
	require.Len(t, all, 1)
	require.Equal(t, "a", all[0].Name)
}
