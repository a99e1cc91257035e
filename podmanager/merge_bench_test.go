package podmanager_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/podmanager"
)

// One pod of many has changed.
func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{110, 500, 5000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			var before []*corev1.Pod
			for i := range n {
				before = append(before, podOf(fmt.Sprintf("pod-%d", i), fmt.Sprintf("uid-%d", i), "i:1"))
			}
			now := slices.Clone(before)
			now[n/2] = podOf(now[n/2].Name, string(now[n/2].UID), "i:2")
			b.ReportAllocs()
			for b.Loop() {
				if ops := podmanager.Diff(before, now); len(ops) != 1 {
					b.Fatal(ops)
				}
			}
		})
	}
}

// One source of two has changed one pod.
func BenchmarkMerge(b *testing.B) {
	for _, n := range []int{110, 500, 5000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			m, err := podmanager.NewMerge(podmanager.MergeConfig{
				Sources: []string{"file", "http"},
				Handler: func(context.Context, podmanager.Change) {},
			})
			require.NoError(b, err)
			var sets [2][]*corev1.Pod
			for i := range n {
				sets[0] = append(sets[0], podOf(fmt.Sprintf("pod-%d", i), fmt.Sprintf("uid-%d", i), "i:1"))
			}
			sets[1] = slices.Clone(sets[0])
			sets[1][n/2] = podOf(sets[0][n/2].Name, string(sets[0][n/2].UID), "i:2")
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				require.NoError(b, m.Set(b.Context(), "file", sets[i%2]))
				i++
			}
		})
	}
}
