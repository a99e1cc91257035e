package podrunner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// BenchmarkPlan measures the plan of an unchanged pod, the most frequent case.
// Nearly all of the time is the hash of each container's definition. Target:
// 100 µs for ten containers.
func BenchmarkPlan(b *testing.B) {
	for _, containers := range []int{1, 10} {
		b.Run(fmt.Sprintf("containers=%d", containers), func(b *testing.B) {
			in := settled(b, containers)
			b.ReportAllocs()
			for b.Loop() {
				if a := podrunner.Plan(in); !a.Empty() {
					b.Fatal(a)
				}
			}
		})
	}
}

// settled returns a pod whose containers all run as specified.
func settled(tb testing.TB, containers int) podrunner.Input {
	tb.Helper()
	var spec, status strings.Builder
	for i := range containers {
		fmt.Fprintf(&spec, "spec c%d memory=8192 quota=9 shares=9\n", i)
		fmt.Fprintf(&status, "c%d 3 running memory=8192 quota=9 shares=9\n", i)
	}
	d := &datadriven.TestData{Cmd: "plan", Input: spec.String() + "sandbox 0 ready\n" + status.String()}
	return newSituation(tb, d).input()
}

// TestPlan_UnchangedPodIsCheap limits the allocations. Most of them are for the hash of each
// container.
func TestPlan_UnchangedPodIsCheap(t *testing.T) {
	in := settled(t, 10)
	allocs := testing.AllocsPerRun(100, func() { podrunner.Plan(in) })
	require.LessOrEqual(t, allocs, 100.0) // 61, more under the race detector
}
