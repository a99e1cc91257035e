package access_test

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubeparts/kubeparts/agent/cluster/access"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// The API server decides whether a user may read the metrics of the node. A program passes the
// Reviewer to the server of package kubeletapi, which calls it for each request.
func Example() {
	client := onCreate("subjectaccessreviews", func(r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		r.Status.Allowed = r.Spec.User == "prometheus"
		r.Status.Reason = "decided by the API server"
		return r, nil
	})
	reviewer, err := access.New(access.Config{Client: client})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"prometheus", "jane"} {
		fmt.Println(reviewer.Authorize(context.Background(), kubeletapi.Attributes{
			User: kubeletapi.User{Name: user}, Verb: "get", APIVersion: "v1", Resource: "nodes", Subresource: "metrics", Name: "node1",
		}))
	}
	// Output:
	// true decided by the API server <nil>
	// false decided by the API server <nil>
}
