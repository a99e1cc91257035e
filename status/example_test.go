package status_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

func ExampleGenerate() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1"}}},
	}
	seen := &podcache.Status{UID: "1", IPs: []string{"10.0.0.7"}, Containers: []*runtimeapi.ContainerStatus{{
		Id: "abc", Labels: map[string]string{"io.kubernetes.container.name": "nginx"},
		State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}}

	s := status.Generate(status.Input{Pod: pod, Runtime: seen, RuntimeName: "containerd"})

	fmt.Println(s.Phase, s.PodIP, s.ContainerStatuses[0].ContainerID)
	fmt.Println("ready:", status.Condition(s.Conditions, corev1.PodReady).Status)
	// Output:
	// Running 10.0.0.7 containerd://abc
	// ready: True
}

func ExampleManager() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web", Namespace: "default"}}
	manager, err := status.New(status.Config{Observer: status.Observer{
		StatusChanged: func(c status.Change) {
			fmt.Printf("%s: %q -> %q\n", c.Pod.Name, c.Old.Phase, c.New.Phase)
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodPending})
	manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodPending})
	manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodSucceeded})
	_, changed := manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodRunning})
	fmt.Println("an ended pod runs again:", changed)
	// Output:
	// web: "" -> "Pending"
	// web: "Pending" -> "Succeeded"
	// an ended pod runs again: false
}

func ExamplePublisher() {
	ctx := context.Background()
	manager, err := status.New(status.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Use status.NewAPIServer for an API server, and status.NewSaved with state.Files for a
	// directory.
	sink := status.SinkFunc(func(_ context.Context, c status.Change) error {
		fmt.Println(c.Pod.Name, "is", c.New.Phase, "in version", c.Version)
		return nil
	})
	publisher, err := status.NewPublisher(status.PublisherConfig{Statuses: manager, Sink: sink})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Name: "web", Namespace: "default"}}
	manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodPending})
	manager.SetPodStatus(pod, corev1.PodStatus{Phase: corev1.PodRunning})
	// An agent calls publisher.Run in a goroutine, and Flush before it exits.
	fmt.Println("flushed:", publisher.Flush(ctx) == nil)
	// Output:
	// web is Running in version 2
	// flushed: true
}
