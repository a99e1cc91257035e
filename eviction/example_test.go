package eviction_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/eviction"
)

// fixed is a provider whose stats never change.
type fixed struct {
	memory int64
	pods   []eviction.PodStats
}

func (f fixed) Node(context.Context) (eviction.NodeStats, error) {
	return eviction.NodeStats{Layout: eviction.SingleFS, Observations: []eviction.Observation{
		{Signal: eviction.MemoryAvailable, Available: f.memory, Capacity: 8 << 30},
	}}, nil
}

func (f fixed) Pods(context.Context, []*corev1.Pod) ([]eviction.PodStats, error) {
	return f.pods, nil
}

// A dry run reports the actions and their reasons, and executes no action.
func Example() {
	thresholds, err := eviction.ParseThresholds(eviction.ThresholdSettings{
		EvictionHard: map[string]string{"memory.available": "500Mi"}, EnforceNodeAllocatable: []string{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	web, batch := newPod("web", priority(1000)), newPod("batch")
	m, err := eviction.New(eviction.Config{
		Stats:  fixed{memory: 100 << 20, pods: []eviction.PodStats{memoryStats(web, 4<<30), memoryStats(batch, 2<<30)}},
		Pods:   func() []*corev1.Pod { return []*corev1.Pod{web, batch} },
		Mode:   eviction.DryRun,
		Policy: eviction.Policy{Thresholds: thresholds},
		Clock:  testingclock.NewFakeClock(epoch()),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	decision, err := m.Evaluate(context.Background())
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(decision)
	// Output:
	// memory.available<500Mi (hard): met, 100Mi of 8Gi available, shortfall 400Mi: pods are evicted
	// condition MemoryPressure
	//   1. default/batch: uses 2Gi, priority 0, Burstable - evicted, grace period 1s
	//   2. default/web: uses 4Gi, priority 1000, Burstable
}

// PlanEviction is a pure function: decisions can be replayed and simulated.
func ExamplePlanEviction() {
	pod := newPod("hog")
	stats := memoryStats(pod, 2<<30)
	policy := eviction.Policy{Thresholds: []eviction.Threshold{
		{Signal: eviction.MemoryAvailable, Value: eviction.Value{Quantity: 1 << 30}, GracePeriod: time.Minute},
	}}
	var state eviction.State
	now := epoch()
	for range 3 {
		d := eviction.PlanEviction(state, eviction.Observations{
			Node: eviction.NodeStats{Observations: []eviction.Observation{
				{Signal: eviction.MemoryAvailable, Available: 1 << 29, Capacity: 8 << 30, Time: now},
			}},
			Pods:     []*corev1.Pod{pod},
			PodStats: map[types.UID]*eviction.PodStats{pod.UID: &stats},
		}, policy, now)
		fmt.Println(d.Conditions, len(d.Victims))
		state, now = d.Next, now.Add(30*time.Second)
	}
	// Output:
	// [MemoryPressure] 0
	// [MemoryPressure] 0
	// [MemoryPressure] 1
}
