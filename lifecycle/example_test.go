package lifecycle_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// A container crashes as soon as it starts.
func Example() {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	backoff, err := lifecycle.NewBackoff(lifecycle.BackoffConfig{Clock: clock})
	if err != nil {
		fmt.Println(err)
		return
	}
	const key = "pod-uid/main/spec-hash"
	for range 4 {
		ended := clock.Now()
		if until, delay, waiting := backoff.Until(key, ended); waiting {
			fmt.Println("CrashLoopBackOff:", delay)
			clock.SetTime(until)
		}
		fmt.Println(clock.Now().Format(time.TimeOnly), "start")
		backoff.Next(key, ended)
	}
	// Output:
	// 12:00:00 start
	// CrashLoopBackOff: 10s
	// 12:00:10 start
	// CrashLoopBackOff: 20s
	// 12:00:30 start
	// CrashLoopBackOff: 40s
	// 12:01:10 start
}

// This example plans and executes the termination of a pod with a sidecar.
func ExampleTerminate() {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "proxy", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "web"}},
	}}
	running := []lifecycle.ContainerState{{Name: "proxy", Running: true}, {Name: "web", Running: true}}
	const grace = 30 * time.Second

	plan := lifecycle.PlanTermination(pod, running, grace)
	fmt.Println(plan)
	err := lifecycle.Terminate(context.Background(), lifecycle.Termination{
		Plan:     plan,
		Deadline: lifecycle.NewDeadline(nil, time.Now().Add(grace)),
		Stop: func(_ context.Context, container string, grace time.Duration) error {
			fmt.Println("stop", container, "within", grace) // the runtime's StopContainer
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// stage 0: web
	// stage 1: proxy
	// stop web within 30s
	// stop proxy within 30s
	// <nil>
}

// A critical pod needs half a CPU on a full node.
func ExamplePlanPreemption() {
	pod := func(name, cpu string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}}},
		}
	}
	critical := pod("dns", "500m")
	critical.Spec.Priority = new(podspec.SystemCriticalPriority)
	others := []*corev1.Pod{pod("big", "1"), pod("small", "200m"), pod("fitting", "600m")}
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1800m"), corev1.ResourcePods: resource.MustParse("110"),
	}}}

	failures := lifecycle.FitsAll(critical, others, node)
	fmt.Println(failures[0].Message)
	needs, _ := lifecycle.Needs(failures)
	victims, err := lifecycle.PlanPreemption(critical, others, needs)
	fmt.Println(victims[0].Name, len(victims), err)
	// Output:
	// Node didn't have enough resource: cpu, requested: 500, used: 1800, capacity: 1800
	// fitting 1 <nil>
}
