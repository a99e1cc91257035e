package kubeletapi_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
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

// A server has endpoints of the kubelet and its own endpoints. A program listens with
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

// staff is a TokenReviewer and an Authorizer. A program with an API server sends a TokenReview and a
// SubjectAccessReview instead.
type staff struct{}

func (staff) ReviewToken(_ context.Context, token string) (kubeletapi.User, bool, error) {
	return kubeletapi.User{Name: "prometheus", Groups: []string{"monitoring"}}, token == "secret", nil
}

func (staff) Authorize(_ context.Context, a kubeletapi.Attributes) (allowed bool, reason string, err error) {
	return a.Verb == "get" && a.Subresource == "metrics" && slices.Contains(a.User.Groups, "monitoring"), "", nil
}

// An Authorizer decides which requests a user may make: here, members of the group monitoring may
// read metrics.
func ExampleAuthorizer() {
	a, stop := startWeb(eventlog.New(eventlog.Config{}))
	s, err := kubeletapi.New(kubeletapi.Config{
		Agent: a, Metrics: http.NotFoundHandler(), // or package metrics
		Access: kubeletapi.Access{TokenReviewer: staff{}, Authorizer: staff{}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener, err := s.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, listener) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, r := range []struct{ path, token string }{{"/metrics", "wrong"}, {"/pods", "secret"}} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+r.path, nil)
		if err != nil {
			log.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+r.token)
		answer, err := client.Do(request)
		if err != nil {
			log.Fatal(err)
		}
		text, err := io.ReadAll(answer.Body)
		fmt.Println(answer.StatusCode, strings.TrimSpace(string(text)), err, answer.Body.Close())
	}

	cancel()
	fmt.Println(<-ended, stop())
	// Output:
	// 401 Unauthorized <nil> <nil>
	// 403 Forbidden (user=prometheus, verb=get, resource=nodes, subresource(s)=[pods proxy]) <nil> <nil>
	// <nil> <nil>
}
