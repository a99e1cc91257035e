package cluster_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/cluster"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/status"
)

// An agent joins a cluster and runs a pod that is bound to its node. A program uses the clientset
// of the API server instead of a fake, and a container runtime.
func Example() {
	client := fake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "1"},
		Spec: corev1.PodSpec{
			NodeName: "node1", RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: "work", Image: "demo/job:1"}},
		},
	})
	c, err := cluster.New(cluster.Config{Client: client, NodeName: "node1"})
	if err != nil {
		log.Fatal(err)
	}
	runtime, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	config := agent.Config{
		Name: "example", NodeName: "node1", Runtime: runtime, Host: fakehost.New(runtime),
		Observers: agent.Observers{Publisher: status.PublisherObserver{Published: func(p status.Publication) {
			pod, err := client.CoreV1().Pods("default").Get(ctx, "job", metav1.GetOptions{})
			if err == nil && pod.Status.Phase == corev1.PodSucceeded {
				stop()
			}
		}}},
	}
	if err := c.Join(&config); err != nil {
		log.Fatal(err)
	}
	a, err := agent.New(config)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Run(ctx, a); err != nil {
		log.Fatal(err)
	}
	pod, err := client.CoreV1().Pods("default").Get(context.Background(), "job", metav1.GetOptions{})
	fmt.Println(pod.Name, pod.Status.Phase, err)
	// Output: job Succeeded <nil>
}
