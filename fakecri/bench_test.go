package fakecri_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/fakecri"
)

const (
	benchPods       = 1000
	benchContainers = 3
)

// fill makes pods of three running containers each.
func fill(b *testing.B) *bed {
	b.Helper()
	n := newBed(b, func(c *fakecri.Config) { c.Record = false })
	for i := range benchPods {
		name := fmt.Sprint("pod", i)
		sandbox := n.pod(name)
		for j := range benchContainers {
			id := n.make(sandbox, name, fmt.Sprint("c", j), "demo/web:1")
			require.NoError(b, n.StartContainer(b.Context(), id))
		}
	}
	return n
}

func BenchmarkCreate(b *testing.B) {
	b.Run(fmt.Sprintf("pods=%d,containers=%d", benchPods, benchContainers), func(b *testing.B) {
		b.ReportAllocs()
		var before, after runtime.MemStats
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			n := fill(b)
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(n)
		}
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(benchPods*benchContainers), "heap-B/container")
	})
}

func BenchmarkListContainers(b *testing.B) {
	b.Run(fmt.Sprintf("containers=%d", benchPods*benchContainers), func(b *testing.B) {
		n := fill(b)
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
		n := fill(b)
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
