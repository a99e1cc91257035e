package kubeletapi_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/host/fakehost"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/eventlog"
	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/status"
)

// startWeb runs one pod on an in-memory runtime, and returns when it is ready. Stop stops the
// agent.
func startWeb(events *eventlog.Log) (a *agent.Agent, stop func() error) {
	node, err := fakecri.New(fakecri.Config{Images: fakecri.DemoImages(), Programs: fakecri.DemoPrograms()})
	if err != nil {
		log.Fatal(err)
	}
	web := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "server", Image: "demo/web:1"}}}}
	web.Namespace, web.Name, web.UID = "default", "web", "1"
	ready := make(chan struct{})
	isReady := sync.OnceFunc(func() { close(ready) })
	a, err = agent.New(agent.Config{
		Name: "example", NodeName: "node1", Runtime: node, Host: fakehost.New(node), Events: events,
		Sources: []agent.Source{{Name: "mine", Run: func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
			set(ctx, []*corev1.Pod{web})
			<-ctx.Done()
			return nil
		}}},
		Observers: agent.Observers{Statuses: status.Observer{StatusChanged: func(c status.Change) {
			if c.New.Phase == corev1.PodRunning && c.New.ContainerStatuses[0].Ready {
				isReady()
			}
		}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	<-ready
	return a, func() error { cancel(); return <-ended }
}

// A server has endpoints of the kubelet and endpoints of its own. A program listens with
// [kubeletapi.Server.Listen] and serves with [kubeletapi.Server.Run]; Handler is for tests.
func Example() {
	events := eventlog.New(eventlog.Config{})
	a, stop := startWeb(events)
	s, err := kubeletapi.New(kubeletapi.Config{
		Agent: a, Events: events,
		Info: func() api.Agent { return api.Agent{Name: "example", Version: "v1"} },
	})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())

	answer, err := server.Client().Get(server.URL + "/healthz")
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	fmt.Println("healthz:", string(text), err, answer.Body.Close())

	client, err := api.NewClient(api.ClientConfig{Server: server.URL})
	if err != nil {
		log.Fatal(err)
	}
	all, err := client.Status(context.Background())
	for _, p := range all.Pods {
		fmt.Printf("status: %s/%s is %s, %d ready\n", p.Namespace, p.Name, p.State, p.Ready)
	}
	fmt.Println(all.Agent.Name, "on", all.Node.Name, err)
	why, err := client.Explain(context.Background(), "default", "web")
	fmt.Println("explain:", why.Why, err)

	client.Close()
	server.Close()
	fmt.Println(stop())
	// Output:
	// healthz: ok <nil> <nil>
	// status: default/web is Running, 1 ready
	// example on node1 <nil>
	// explain: [all its containers run and are ready] <nil>
	// <nil>
}
