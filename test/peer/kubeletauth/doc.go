// Package kubeletauth compares how agent/kubeletapi and the kubelet authenticate and
// authorize requests: the user for each combination of client certificate, bearer token and
// anonymous access; the attributes that the authorizer receives for each path and method; and
// the code and the text of a rejection.
//
// The kubelet's side consists of its own attributes and server, and of the authenticator and
// the authorizer of k8s.io/apiserver that the kubelet uses. An httptest server plays the API
// server: it responds to TokenReviews and SubjectAccessReviews.
//
// adapter.go shows how a program passes the authenticator and the authorizer of
// k8s.io/apiserver to agent/kubeletapi.
package kubeletauth
