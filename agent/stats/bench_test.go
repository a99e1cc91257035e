package stats_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/stats"
)

// BenchmarkNode measures this machine, as an eviction manager does up to 20 times a second, and
// a test tree with a limit for all pods. The target is 55 µs, so that a step of the manager
// with 500 pods, which takes 2 to 3 µs itself, stays below 60 µs. The kernel needs most of this
// time to write zoneinfo. (The kubelet's summary takes milliseconds.)
func BenchmarkNode(b *testing.B) {
	for _, e := range []stats.Estimator{stats.MemAvailable, stats.WorkingSet, stats.KubeletWorkingSet} {
		b.Run("machine/"+string(e), func(b *testing.B) {
			benchNode(b, stats.Config{NodePath: b.TempDir(), Estimator: e})
		})
	}
	b.Run("limited-pods/MemAvailable", func(b *testing.B) { benchNode(b, live(b, "v2-systemd")) })
}

func benchNode(b *testing.B, cfg stats.Config) {
	b.Helper()
	p := newProvider(b, cfg)
	if _, err := p.Node(b.Context()); err != nil {
		b.Logf("some signals cannot be measured on this machine: %v", err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = p.Node(b.Context())
	}
}

// manyPods is a node with n pods below a tree of version 2.
func manyPods(b *testing.B, n int) (cfg stats.Config, pods []*corev1.Pod) {
	b.Helper()
	cfg = live(b, "v2-cgroupfs")
	for i := range n {
		uid := types.UID(fmt.Sprintf("22222222-0000-0000-0000-%012d", i))
		pods = append(pods, pod(fmt.Sprintf("pod-%d", i), uid))
		dir := filepath.Join(cfg.CgroupRoot, "kubepods", "burstable", "pod"+string(uid))
		write(b, "104857600\n", dir, "memory.current")
		write(b, "anon 52428800\nfile 52428800\ninactive_file 10485760\n", dir, "memory.stat")
		write(b, "12\n", dir, "pids.current")
	}
	return cfg, pods
}

// BenchmarkPods measures memory and processes of all pods, as for the selection of a pod for
// eviction: it opens, reads and closes three files for each pod.
func BenchmarkPods(b *testing.B) {
	for _, n := range []int{100, 500} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			cfg, all := manyPods(b, n)
			p := newProvider(b, cfg)
			b.ReportAllocs()
			for b.Loop() {
				pods, err := p.Pods(b.Context(), all)
				require.NoError(b, err)
				require.Len(b, pods, n)
			}
		})
	}
}

// BenchmarkSummary measures the whole summary.
func BenchmarkSummary(b *testing.B) {
	cfg, pods := manyPods(b, 100)
	p := newProvider(b, cfg)
	b.Run("pods=100", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = p.Summary(b.Context(), pods)
		}
	})
}

// BenchmarkRefresh walks over a volume of 10,000 files.
func BenchmarkRefresh(b *testing.B) {
	cfg := live(b, "v2-cgroupfs")
	clock := testingclock.NewFakeClock(epoch())
	cfg.Clock = clock
	for i := range 10_000 {
		write(b, "", cfg.NodePath, "pods", string(burstable), "volumes", "kubernetes.io~empty-dir", "data",
			fmt.Sprint(i%100), fmt.Sprint(i))
	}
	p := newProvider(b, cfg)
	b.Run("files=10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			clock.Step(time.Minute)
			_, _ = p.Refresh(b.Context())
		}
	})
}
