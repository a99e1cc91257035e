package containergc_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/containergc"
)

// crashed is a node with so many dead containers, in pods of five names or of one
// that has restarted all the time.
func crashed(dead, perUnit int) containergc.Input {
	in := containergc.Input{Now: now(), Pods: pods{}}
	for i := range dead {
		unit := i / perUnit
		pod := fmt.Sprintf("0b1c2d3e-4f50-6172-8394-a5b6c7d8%04d", unit/5)
		if i%(5*perUnit) == 0 {
			in.Snapshot.Sandboxes = append(in.Snapshot.Sandboxes, containergc.Sandbox{
				ID: "box-" + pod, PodUID: types.UID(pod), Namespace: "default", Pod: pod, Ready: true,
			})
		}
		in.Snapshot.Containers = append(in.Snapshot.Containers, containergc.Container{
			ID: fmt.Sprintf("%064d", i), SandboxID: "box-" + pod, PodUID: types.UID(pod), Namespace: "default", Pod: pod,
			Name: fmt.Sprint("container-", unit%5), Attempt: uint32(i % perUnit),
			State:      runtimeapi.ContainerState_CONTAINER_EXITED,
			CreatedAt:  now().Add(time.Duration(i-10000) * time.Second),
			FinishedAt: now().Add(time.Duration(i-9000) * time.Second),
		})
	}
	return in
}

// BenchmarkDecide is to take 100 µs at most for 500 dead containers. The kubelet takes
// 390 µs and 1,527 allocations to list them alone, before it decides.
func BenchmarkDecide(b *testing.B) {
	for _, perUnit := range []int{1, 5, 500} {
		for _, total := range []int{-1, 50} {
			b.Run(fmt.Sprintf("dead=500/per-name=%d/total=%d", perUnit, total), func(b *testing.B) {
				in := crashed(500, perUnit)
				in.Policy.MaxContainers = &total
				b.ReportAllocs()
				for b.Loop() {
					containergc.Decide(in)
				}
			})
		}
	}
}

// TestDecideAllocates a few slices and maps, whatever the number of containers.
func TestDecideAllocates(t *testing.T) {
	in := crashed(500, 5)
	n := testing.AllocsPerRun(10, func() { containergc.Decide(in) })
	require.LessOrEqual(t, n, 40.0)
}

// BenchmarkIdlePass is what a quiet minute costs, without the two lists.
func BenchmarkIdlePass(b *testing.B) {
	in := crashed(220, 1)
	for i := range in.Snapshot.Containers {
		in.Snapshot.Containers[i].State = runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	b.Run("containers=220", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			containergc.Decide(in)
		}
	})
}
