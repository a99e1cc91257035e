// Package kubeletapi serves an agent over HTTP. It has the form of the kubelet's API, and that
// of package api for the endpoints that the kubelet does not have.
//
// # What it does
//
// [New] returns a [Server] for an [Agent], and [Server.Run] serves it on a listener of
// [Server.Listen]:
//
//	s, err := kubeletapi.New(kubeletapi.Config{Agent: a, Access: access, …})
//	…
//	listener, err := s.Listen(ctx, "127.0.0.1:10255")
//	…
//	err = s.Run(ctx, listener)
//
// All endpoints support only GET and HEAD. No request changes anything.
//
//	/healthz, /livez, /readyz            ok, or 503 and the failed checks; ?verbose, ?exclude=NAME
//	/pods                                the pods that a source defines, with their statuses
//	/runningpods                         the running pods, as in the runtime
//	/stats/summary                       resource usage of node, pods and containers
//	/logs/NAMESPACE/POD/CONTAINER        a log, with the parameters of the kubelet's /containerLogs
//	/configz                             the configuration in use
//	/metrics, /metrics/probes, /metrics/resource, /debug/pprof/
//	/status                              the state of the whole agent: api.Status
//	/events                              the last events: api.Event, a JSON line each; ?watch, ?since=N
//	/explain/NAMESPACE/POD               why a pod is in its state, and what comes next
//	/plan/eviction, /plan/gc             what eviction and garbage collection would do now
//	/                                    the page of the program
//
// /explain and /plan respond with JSON, or with text if the client prefers text/plain or sends
// ?output=text. In /explain and /logs the name of a static pod may omit the suffix with the
// node's name.
//
// Use /healthz for a liveness probe. It fails on an error of the agent if only a restart of the
// agent helps, or if the node was not ready for 30 seconds. /readyz fails on every error.
// /livez checks nothing: it fails only if the process does not respond.
//
// # What you supply
//
// Only the agent is required. It provides health, pods, statistics, /status, /explain and
// /plan. The other endpoints exist if the [Config] field for them is set: Events (package
// eventlog), PodLogs, Configz, Metrics (package metrics), Page, Pprof. A program may add its
// own [Check] values and the [Problem] values of its manifests.
//
// # What it guarantees
//
//  1. It listens on loopback only, unless it has TLS and a token: see [Server.Listen]. Run
//     refuses other listeners.
//  2. If a token is set, a request without it only gets /livez and the page. If no token is
//     set, requests with the name of another host are refused: web pages in a browser on this
//     machine can send such requests by DNS rebinding.
//  3. Certificate and token are read again when their files change. While the token file is
//     unusable, all tokens are refused; while the certificate is unusable, the previous one
//     stays in use. A slow disk delays only one request.
//  4. A client has 10 s to send its request and 30 s to receive the response; 5 s for the page,
//     a health check or a refusal. A stream has no limit as long as the client receives each
//     piece within 10 s. The server closes the connection of a slower client.
//  5. At most MaxConnections are open. A new connection is always accepted: to make room, the
//     server closes the connection whose client was idle for the longest time, even during a
//     response, but never a stream. So /livez responds even when the limit is reached. At most
//     MaxStreams are streams or profiles.
//  6. /status waits up to 2 s for measurements and omits those that are not ready.
//  7. Text of containers, manifests and the runtime can't start a line of a text response.
//  8. When the context of Run is done, streams end at once, and other requests within 2 s.
//
// # Goroutines and locking
//
// Run serves each connection in a goroutine, as net/http does, and has joined all goroutines
// when it returns. New starts none. These goroutines call the methods of [Agent] and the
// functions of [Config] concurrently and without a lock.
//
// # Differences from the kubelet
//
//   - There is no exec, attach, port-forward and run, and nothing else that changes a pod.
//   - A bearer token in a file replaces client certificates and the API server's webhooks. It
//     permits everything.
//   - /healthz and /readyz have the agent's parts as checks. The kubelet has no /readyz and
//     /livez.
//   - /runningpods returns what the agent has observed, without calling the runtime.
//   - /logs does not list the node's /var/log, and there is no /containerLogs.
//   - The kubelet has no /status, /events, /explain and /plan.
//
// # Testing your code with it
//
// [Server.Handler] works without a listener, and without the checks of a request's token and
// host. Pass it to httptest, as the example does with an agent on an in-memory runtime. To test
// a state that is hard to reach, implement [Agent] with a type of your own.
package kubeletapi
