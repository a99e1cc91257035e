package podworker_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podworker"
)

// The kubelet's test cases for which static pod may start.
func TestStaticQueue(t *testing.T) {
	web := func(uid types.UID, edits ...func(*corev1.Pod)) *corev1.Pod {
		return newPod(uid, append(edits, static("web"))...)
	}
	first := func(b *bed) { b.update(podworker.Create, web("first")) }
	firstEnds := func(b *bed) {
		first(b)
		b.sync.hang("terminating")
		b.update(podworker.Kill, web("first"))
	}
	for _, tt := range []struct {
		name   string
		before func(*bed)
		pod    *corev1.Pod
		want   []string
	}{
		{"a pod that is not static", first, newPod("a"), []string{"sync a"}},
		{"a pod of that name that is not static", first, newPod("a", func(p *corev1.Pod) { p.Name = "web" }), []string{"sync a"}},
		{"a static pod alone", func(*bed) {}, web("a"), []string{"sync a"}},
		{"a static pod of another name", first, newPod("a", static("db")), []string{"sync a"}},
		{"a static pod of that name in another namespace", first, web("a", func(p *corev1.Pod) { p.Namespace = "other" }), []string{"sync a"}},
		{"a static pod that has started already", first, web("first"), []string{"sync first"}},
		{"a static pod behind another", first, web("a"), nil},
		{"a static pod behind another that terminates", firstEnds, web("a"), nil},
		{"a static pod behind another that has finished", func(b *bed) { first(b); b.update(podworker.Kill, web("first")) }, web("a"), []string{"sync a"}},
		{"a static pod behind another whose cleanup hangs", func(b *bed) {
			first(b)
			b.sync.hang("terminated")
			b.update(podworker.Kill, web("first"))
		}, web("a"), nil},
		{"a static pod behind another that was killed while it waited", func(b *bed) {
			first(b)
			b.update(podworker.Create, web("second"))
			b.update(podworker.Kill, web("second"))
			b.update(podworker.Kill, web("first"))
		}, web("a"), []string{"sync a"}},
		{"a deleted static pod that has not started", first, web("a", deleted(1)), nil},
		{"a static pod with a terminal phase, behind another", first, web("a", phase(corev1.PodFailed)), []string{"terminated a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				tt.before(b)
				b.sync.log()
				b.update(podworker.Create, tt.pod)
				require.Equal(t, tt.want, b.sync.log())
			})
		})
	}
}

// Nine pods of one name run one at a time in the order of their creation, except for those
// that were killed while they waited. A pod that is created again goes to the end of the
// queue.
func TestStaticQueue_NinePodsOfOneName(t *testing.T) {
	inBubble(t, func(b *bed) {
		all := map[types.UID]*corev1.Pod{}
		for _, uid := range []types.UID{"1", "2", "3", "4", "5", "6", "7", "8", "9"} {
			all[uid] = newPod(uid, static("web"))
			b.update(podworker.Create, all[uid])
		}
		b.update(podworker.Kill, all["4"])
		b.update(podworker.Kill, all["2"])
		b.update(podworker.Change, all["9"])
		require.Equal(t, []string{"sync 1"}, b.sync.log())
		b.update(podworker.Kill, all["1"])
		require.Equal(t, []string{"terminating 1", "terminated 1", "sync 3"}, b.sync.log())

		b.update(podworker.Create, all["1"]) // created again: the next SyncKnownPods forgets it
		want := []*corev1.Pod{all["1"], all["3"], all["6"], all["8"]}
		known := b.SyncKnownPods(desired(want...))
		require.Len(t, known, 3)
		require.NotContains(t, known, types.UID("1"))
		b.update(podworker.Create, all["1"])
		for _, uid := range []types.UID{"3", "6", "8", "1"} {
			b.update(podworker.Kill, all[uid])
		}
		require.Equal(t, []string{
			"terminating 3", "terminated 3", "sync 6", "terminating 6", "terminated 6", "sync 8",
			"terminating 8", "terminated 8", "sync 1", "terminating 1", "terminated 1",
		}, b.sync.log())
		b.SyncKnownPods(desired())
		synctest.Wait()
		pods, lines, due := b.Pods()
		require.Zero(t, pods+lines+due)
	})
}
