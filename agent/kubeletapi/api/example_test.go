package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// This client requests the explanation of a pod and prints it.
func Example() {
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/agent/explain/default/web" {
			http.Error(w, "no such pod", http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Explanation{
			Pod: api.Pod{
				Namespace: "default", Name: "web", State: "ErrImagePull", Phase: "Pending",
				Containers: []api.Container{{Name: "server", Kind: "main"}},
			},
			Why:  []string{"container server waits: ErrImagePull"},
			Next: []api.Step{{What: "the agent pulls the image again"}},
		})
	}))
	defer agent.Close()
	client, err := api.NewClient(api.ClientConfig{Server: agent.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	e, err := client.Explain(context.Background(), "default", "web")
	fmt.Print(api.ExplanationText(e))
	fmt.Println(err)
	_, err = client.Explain(context.Background(), "default", "db")
	fmt.Println(err)
	// Output:
	// default/web is ErrImagePull (Pending), 0 of 1 containers ready, 0 restarts
	// Why:
	//   - container server waits: ErrImagePull
	// Next:
	//   - the agent pulls the image again
	// <nil>
	// the agent responded with 404 Not Found: no such pod
}
