// Package api has the JSON types of those endpoints of package kubeletapi that the kubelet does not
// have. It also has a client for most endpoints of package kubeletapi.
//
// # What it does
//
// [Status], [Event], [Explanation], [ImageList], [Restart] and [Image] are the types of the
// responses to /agent/status, /agent/events, /agent/explain, /agent/images, /agent/restart and
// /agent/pull. The endpoints that the kubelet also has respond with the types of Kubernetes.
// [ExplanationText] formats an Explanation as text. A [Client] sends requests to one agent.
//
// # What you supply
//
// You supply the URL of an agent and, if the agent requires a token, the file with the token.
//
// # What it guarantees
//
//  1. New versions may add fields, but never rename a field, because scripts read them.
//  2. A Client only sends the token over TLS or to this machine, and follows no redirects.
//  3. A response of more than 32 MiB is an error. In a watch, this limit applies to each event.
//     Logs have no limit.
//  4. [UnreachableError] names the server and contains advice for the user. [StatusError] contains
//     advice if the agent has refused the user.
//  5. In the result of ExplanationText, text from a container or the runtime can't start a new
//     line and has no control characters for a terminal.
//
// # Goroutines and locking
//
// The package starts no goroutine, except those of net/http. All methods of a Client may be
// called concurrently.
//
// # Differences from the kubelet
//
//   - The kubelet has no endpoints below /agent/.
//   - [Client.Logs] also returns the rotated files of a log. The kubelet does not read them.
//
// # Testing your code with it
//
// Start an httptest.Server, either with the Handler of a kubeletapi.Server or with your own
// handler that writes these types as JSON. Pass the URL of the httptest.Server to [NewClient].
package api
