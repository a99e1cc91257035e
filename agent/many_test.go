package agent_test

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/oomwatch"
)

// Two agents with different names share a runtime. Neither agent changes the pods of the other
// agent.
func TestAgent_TwoAgentsOnOneRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, ones, twos := newNode(t), newSource(newPod("a", "demo/web:1")), newSource(newPod("b", "demo/web:1"))
		one := start(t, config(node, ones.file()))
		c := config(node, twos.file())
		c.Name = "two"
		two := start(t, c)
		after(5 * time.Second)
		require.Equal(t, []string{"a admitted Running"}, one.phases())
		require.Equal(t, []string{"b admitted Running"}, two.phases())
		ones.define()
		after(time.Minute)
		require.Empty(t, one.phases())
		require.Equal(t, []string{"b admitted Running"}, two.phases())
		one.stop()
		b, _ := two.Pod("uid-b")
		require.Zero(t, b.Spec.Status.ContainerStatuses[0].RestartCount)
	})
}

// kernel reports one OOM kill.
type kernel struct{ kill oomwatch.Kill }

// Name implements oomwatch.Source.
func (kernel) Name() string { return "kernel" }

// Position implements oomwatch.Source.
func (kernel) Position() oomwatch.Position { return oomwatch.Position{} }

// Watch implements oomwatch.Source.
func (k kernel) Watch(ctx context.Context, _ oomwatch.Position, emit func(oomwatch.Observation)) error {
	emit(oomwatch.Observation{})
	select {
	case <-time.After(10 * time.Second):
		k.kill.Time = time.Now()
		emit(oomwatch.Observation{Kill: k.kill})
	case <-ctx.Done():
	}
	<-ctx.Done()
	return nil
}

// Two agents read the same kernel log. The agent that owns the container reports the kill.
func TestAgent_OneOOMKillIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		const hit, other types.UID = "6a1c2f3e-0000-4000-8000-00000000000a", "6a1c2f3e-0000-4000-8000-00000000000b"
		kill := oomwatch.Kill{VictimCgroup: "/kubepods/pod" + string(hit) + "/x", Victim: oomwatch.Victim{PID: 7}, Kills: 1}
		var mu sync.Mutex
		killed := map[string]types.UID{}
		for i, name := range []string{"one", "two"} {
			pod := newPod(name, "demo/web:1")
			pod.UID = []types.UID{hit, other}[i]
			c := config(node, newSource(pod).file())
			c.Name = name
			c.Host.OOM = []oomwatch.Source{kernel{kill}}
			c.Observers.Killed = func(k agent.OOMKill) {
				mu.Lock()
				defer mu.Unlock()
				require.NotNil(t, k.Pod)
				killed[name] = k.Pod.UID
			}
			start(t, c)
		}
		after(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, map[string]types.UID{"one": hit}, killed)
	})
}

// A hundred agents on a hundred nodes in one process share nothing and leak nothing.
func TestAgent_HundredAgentsInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var agents []*running
		for i := range 100 {
			node := newNode(t, func(c *fakecri.Config) { c.Seed = uint64(i) })
			c := config(node, newSource(newPod(fmt.Sprintf("web%d", i), "demo/web:1")).file())
			c.NodeName = fmt.Sprintf("node%d", i)
			agents = append(agents, start(t, c))
		}
		after(10 * time.Second)
		for i, a := range agents {
			require.Equal(t, []string{fmt.Sprintf("web%d admitted Running", i)}, a.phases())
			require.Equal(t, fmt.Sprintf("node%d", i), a.Node().Name)
		}
		for _, a := range agents {
			a.stop()
			require.NoError(t, a.err())
		}
	})
}

// count returns how many pods have the given phase.
func (r *running) count(phase corev1.PodPhase) (n int) {
	for _, p := range r.Pods() {
		if p.Spec.Status.Phase == phase {
			n++
		}
	}
	return n
}

// BenchmarkAgent_Idle measures the heap and the goroutines of an idle agent with ten pods. It does
// not count the heap and the goroutines of the in-memory runtime.
func BenchmarkAgent_Idle(b *testing.B) {
	const agents, pods = 20, 10
	measure := func() (heap uint64, goroutines int) {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return m.HeapAlloc, goruntime.NumGoroutine()
	}
	for b.Loop() {
		nodes := make([]*fakecri.Node, agents)
		for i := range nodes {
			nodes[i] = newNode(b, func(c *fakecri.Config) { c.Seed = uint64(i) })
		}
		heap, goroutines := measure()
		var stops []func()
		var all []*running
		for i, node := range nodes {
			var defined []*corev1.Pod
			for j := range pods {
				defined = append(defined, newPod(fmt.Sprintf("web%d-%d", i, j), "demo/web:1"))
			}
			a := start(b, config(node, newSource(defined...).file()))
			all, stops = append(all, a), append(stops, a.stop)
		}
		for _, a := range all {
			for range a.Changes(b.Context()) {
				if a.count(corev1.PodRunning) == pods {
					break
				}
			}
		}
		heapNow, goroutinesNow := measure()
		b.ReportMetric(float64(heapNow-heap)/agents/1024, "KiB/agent")
		b.ReportMetric(float64(goroutinesNow-goroutines)/agents, "goroutines/agent")
		for _, stop := range stops {
			stop()
		}
	}
}
