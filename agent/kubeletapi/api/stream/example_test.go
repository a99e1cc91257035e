package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api/stream"
)

// This program runs a command in a container, and prints what the agent responds. The agent here
// has no such pod.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Method, r.URL)
		http.Error(w, "pod not found", http.StatusNotFound)
	}))
	defer server.Close()
	client, err := api.NewClient(api.ClientConfig{Server: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	target := stream.Target{Namespace: "default", Pod: "web", Container: "app"}
	err = stream.Exec(context.Background(), client, target, []string{"cat", "/etc/hostname"}, stream.Streams{Stdout: os.Stdout})
	if exit, ok := errors.AsType[*stream.ExitError](err); ok {
		fmt.Println("the command ended with exit code", exit.Code)
		return
	}
	fmt.Println(err)
	// Output:
	// POST /exec/default/web/app?command=cat&command=%2Fetc%2Fhostname&output=1
	// the agent responded with 404 Not Found: pod not found
}
