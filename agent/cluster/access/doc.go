// Package access lets the API server decide which clients may use the API of a node.
//
// # What it does
//
// A [Reviewer] authenticates bearer tokens with TokenReviews, and authorizes requests with
// SubjectAccessReviews. It implements the interfaces TokenReviewer and Authorizer of package
// kubeletapi. The Server of package kubeletapi caches the results of token reviews, and the
// Reviewer caches the decisions about requests.
//
// # What you supply
//
// You supply a client of the API server. Its user needs the permission to create tokenreviews and
// subjectaccessreviews, which every node has:
//
//	r, err := access.New(access.Config{Client: clientset})
//	…
//	cfg.Access.TokenReviewer, cfg.Access.Authorizer = r, r
//
// # What it guarantees
//
//  1. A request is allowed only if the API server has allowed it. While the API server can't be
//     reached, requests without a stored decision get an error.
//  2. Each decision is stored for at most its time to live, and at most 8,192 decisions are stored.
//
// # Goroutines and locking
//
// The package starts no goroutine. All methods are safe for concurrent use.
//
// # Differences from the kubelet
//
//   - The kubelet repeats a failed review up to four times. Here, the client of the node's API gets
//     the error, and repeats its own request.
//   - The kubelet uses the packages of k8s.io/apiserver, which link more than a hundred other
//     packages. This package does not use them.
//
// # Testing your code with it
//
// The fake clientset of client-go answers reviews with a reactor, as the test of this package
// shows.
package access
