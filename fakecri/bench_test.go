package fakecri_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	benchPods       = 10000
	benchContainers = 3
)

// fill creates pods with three running containers each.
func fill(tb testing.TB, pods int) *bed {
	tb.Helper()
	n := newBed(tb, func(c *fakecri.Config) { c.Record = false })
	for i := range pods {
		name := fmt.Sprint("pod", i)
		sandbox := n.pod(name)
		for j := range benchContainers {
			id := n.make(sandbox, name, fmt.Sprint("c", j), "demo/web:1")
			require.NoError(tb, n.StartContainer(tb.Context(), id))
		}
	}
	return n
}

func BenchmarkCreate(b *testing.B) {
	b.Run(fmt.Sprintf("pods=%d,containers=%d", benchPods, benchContainers), func(b *testing.B) {
		b.ReportAllocs()
		var used uint64
		for b.Loop() {
			before := heap()
			n := fill(b, benchPods)
			used = heap() - before
			runtime.KeepAlive(n)
		}
		b.ReportMetric(float64(used)/(benchPods*benchContainers), "heap-B/container")
	})
}

func BenchmarkListContainers(b *testing.B) {
	b.Run(fmt.Sprintf("containers=%d", benchPods*benchContainers), func(b *testing.B) {
		n := fill(b, benchPods)
		b.ReportAllocs()
		for b.Loop() {
			list, err := n.ListContainers(b.Context(), nil)
			require.NoError(b, err)
			require.Len(b, list, benchPods*benchContainers)
		}
	})
}

func BenchmarkContainerStatus(b *testing.B) {
	b.Run(fmt.Sprintf("containers=%d", benchPods*benchContainers), func(b *testing.B) {
		n := fill(b, benchPods)
		list, err := n.ListContainers(b.Context(), nil)
		require.NoError(b, err)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_, err := n.ContainerStatus(b.Context(), list[i%len(list)].GetId(), false)
			require.NoError(b, err)
			i++
		}
	})
}

// BenchmarkListPod measures the calls of an agent when one pod has changed.
func BenchmarkListPod(b *testing.B) {
	b.Run(fmt.Sprintf("containers=%d", benchPods*benchContainers), func(b *testing.B) {
		n := fill(b, benchPods)
		pods, err := n.ListPodSandbox(b.Context(), nil)
		require.NoError(b, err)
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			list, err := n.ListContainers(b.Context(), &runtimeapi.ContainerFilter{PodSandboxId: pods[i%len(pods)].GetId()})
			require.NoError(b, err)
			require.Len(b, list, benchContainers)
			i++
		}
	})
}
