package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// fullNode returns a node with 109 pods, so that one more is allowed.
func fullNode() (*corev1.Node, []*corev1.Pod) {
	n := machine(nil)
	n.Status.Allocatable = res("cpu", "16", "memory", "64Gi", "pods", "110")
	var pods []*corev1.Pod
	for i := range 109 {
		pod := podAsking("cpu", "100m", "memory", "128Mi")
		pod.UID = types.UID(fmt.Sprint(i))
		pods = append(pods, pod)
	}
	return n, pods
}

// BenchmarkFitsAll measures one admission on a full node. The scheduler code in
// the kubelet builds its own record of all pods for each admission.
func BenchmarkFitsAll(b *testing.B) {
	b.Run("pods=109", func(b *testing.B) {
		n, pods := fullNode()
		pod := podAsking("cpu", "1", "memory", "1Gi")
		b.ReportAllocs()
		for b.Loop() {
			require.Empty(b, lifecycle.FitsAll(pod, pods, n))
		}
	})
}

// BenchmarkPlanPreemption is upstream's BenchmarkGetPodsToPreempt: every pod is
// a victim.
func BenchmarkPlanPreemption(b *testing.B) {
	b.Run("pods=109", func(b *testing.B) {
		_, pods := fullNode()
		critical := running()["cluster-critical"]
		b.ReportAllocs()
		for b.Loop() {
			victims, err := lifecycle.PlanPreemption(critical, pods, needs(10900, 0, 0))
			require.NoError(b, err)
			require.Len(b, victims, 109)
		}
	})
}

// BenchmarkTerminate measures the termination of a pod of two containers and a
// sidecar that all end at once: the overhead in addition to the runtime's own
// stop.
func BenchmarkTerminate(b *testing.B) {
	b.Run("containers=3", func(b *testing.B) {
		stop := func(context.Context, string, time.Duration) error { return nil }
		b.ReportAllocs()
		for b.Loop() {
			require.NoError(b, lifecycle.Terminate(b.Context(), lifecycle.Termination{
				Plan: plan("main", "helper", "sc1"), Deadline: in(30 * time.Second), Stop: stop,
			}))
		}
	})
}

func TestFitsResources_NoRequestsSkipsOtherPods(t *testing.T) {
	n, pods := fullNode()
	pod := &corev1.Pod{}
	require.Less(t, testing.AllocsPerRun(100, func() {
		require.Empty(t, lifecycle.FitsAll(pod, pods, n))
	}), 20.0)
}
