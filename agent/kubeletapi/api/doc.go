// Package api has the JSON types of the endpoints that the kubelet does not have, and a client of
// a server of package kubeletapi.
//
// # What it does
//
// [Status], [Event] and [Explanation] are the answers to /status, /events and /explain. Pods,
// statistics and metrics have the kubelet's form instead, with the types of Kubernetes.
// [ExplanationText] formats an Explanation as text. A [Client] gets the answers of one agent.
//
// # What you supply
//
// The URL of an agent, and the file of its token if it needs one.
//
// # What it guarantees
//
//  1. Fields are added and not renamed, because scripts read them.
//  2. The client sends the token over TLS or to this machine, and follows no redirect.
//  3. An answer of more than 32 MiB is an error.
//  4. An error names the server, and what the user can do if that is known: see
//     [UnreachableError] and [StatusError].
//  5. No text of a container or of the runtime begins a line of ExplanationText or controls a
//     terminal.
//
// # Goroutines and locking
//
// The package starts no goroutine of its own. All methods of a Client may be called
// concurrently.
//
// # Differences from the kubelet
//
//   - The kubelet has none of these endpoints.
//   - [Client.Logs] gets the rotated files of a log, too.
//
// # Testing your code with it
//
// Start an httptest.Server with the Handler of a kubeletapi.Server, or with a handler of your own
// that writes these types as JSON, and give its URL to [NewClient].
package api
