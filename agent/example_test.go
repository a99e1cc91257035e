package agent_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/status"
)

// An agent runs one pod on a runtime in memory until the pod has succeeded.
func Example() {
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	if err != nil {
		log.Fatal(err)
	}
	job := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "work", Image: "demo/job:1"}},
	}}
	job.Namespace, job.Name, job.UID = "default", "job", "1"

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	a, err := agent.New(agent.Config{
		Name: "example", NodeName: "node1", Runtime: node, Host: fakehost.New(node),
		Sources: []agent.Source{{Name: "mine", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
			set(ctx, []*corev1.Pod{job})
			<-ctx.Done()
			return nil
		}}},
		Observers: agent.Observers{Statuses: status.Observer{StatusChanged: func(c status.Change) {
			if c.Old.Phase != c.New.Phase {
				fmt.Println(c.Pod.Name, c.New.Phase)
			}
			if c.New.Phase == corev1.PodSucceeded {
				stop()
			}
		}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := a.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// job Pending
	// job Running
	// job Succeeded
}
