// Package api has the JSON types of the endpoints that the kubelet does not have, and a client
// for a server of package kubeletapi.
//
// # What it does
//
// [Status], [Event] and [Explanation] are the responses to /status, /events and /explain. Pods,
// statistics and metrics have the kubelet's form and the types of Kubernetes. [ExplanationText]
// formats an Explanation as text. A [Client] sends requests to one agent.
//
// # What you supply
//
// You supply the URL of an agent, and the file with its token if it requires one.
//
// # What it guarantees
//
//  1. Fields may be added but are never renamed, because scripts read them.
//  2. The client only sends the token over TLS or to this machine, and follows no redirects.
//  3. A response of more than 32 MiB is an error.
//  4. Errors name the server, with advice for the user where possible: see
//     [UnreachableError] and [StatusError].
//  5. Text of a container or the runtime can't start a line of ExplanationText and can't
//     contain control characters for a terminal.
//
// # Goroutines and locking
//
// The package starts no goroutine of its own. All methods of a Client may be called
// concurrently.
//
// # Differences from the kubelet
//
//   - The kubelet has none of these endpoints.
//   - [Client.Logs] also returns rotated files of a log.
//
// # Testing your code with it
//
// Start an httptest.Server with the Handler of a kubeletapi.Server, or with your own handler
// that writes these types as JSON, and pass its URL to [NewClient].
package api
