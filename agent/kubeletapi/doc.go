// Package kubeletapi serves an agent over HTTP: in the form of the kubelet's API, and in that of
// package api for what the kubelet does not have.
//
// # What it does
//
// [New] makes a [Server] for an [Agent], and [Server.Run] serves it on a listener of [Server.Listen]:
//
//	s, err := kubeletapi.New(kubeletapi.Config{Agent: a, Access: access, …})
//	…
//	listener, err := s.Listen(ctx, "127.0.0.1:10255")
//	…
//	err = s.Run(ctx, listener)
//
// All endpoints are read with GET or HEAD. No request changes anything.
//
//	/healthz, /livez, /readyz            ok, or 503 and the failed checks; ?verbose, ?exclude=NAME
//	/pods                                the pods that a source defines, with their statuses
//	/runningpods                         the pods that run, as the runtime shows them
//	/stats/summary                       what node, pods and containers use
//	/logs/NAMESPACE/POD/CONTAINER        a log, with the queries of the kubelet's /containerLogs
//	/configz                             the configuration in use
//	/metrics, /metrics/probes, /metrics/resource, /debug/pprof/
//	/status                              the state of the whole agent: api.Status
//	/events                              the last events: api.Event, a JSON line each; ?watch, ?since=N
//	/explain/NAMESPACE/POD               why a pod is in its state, and what comes next
//	/plan/eviction, /plan/gc             what eviction and garbage collection would do now
//	/                                    the page of the program
//
// /explain and /plan are JSON, or text if the client prefers text/plain or sends ?output=text. In
// /explain and /logs the name of a static pod may lack the suffix with the node's name.
//
// Point a liveness probe at /healthz. An error of the agent fails it if only a restart of the
// agent helps, or if the node was not ready for 30 seconds. /readyz fails with every error. /livez
// checks nothing: it fails if the process does not answer.
//
// # What you supply
//
// The agent. With nothing else there are health, pods, statistics, /status, /explain and /plan.
// The other endpoints exist if the field of [Config] that they need is set: Events (package
// eventlog), PodLogs, Configz, Metrics (package metrics), Page, Pprof. A program adds its own
// [Check] values and the [Problem] values of its manifests.
//
// # What it guarantees
//
//  1. It listens on loopback, or with TLS and a token: see [Server.Listen]. Run refuses other listeners.
//  2. If a token is set, a request without it gets /livez and the page, and nothing else.
//     If no token is set, requests for the name of another host are refused. A page in a browser
//     on this machine sends such requests after DNS rebinding.
//  3. Certificate and token are read again when their files change. While the file of the token
//     is unusable, all tokens are refused; an unusable certificate leaves the previous one in
//     use. A slow disk delays one request.
//  4. A client has 10 s to send its request and 30 s to receive the answer; 5 s for the page, a
//     health check and a refusal. A stream has no limit as long as the client receives each
//     piece of it within 10 s. The server closes the connection of a slower client.
//  5. At most MaxConnections are open. A new connection is always accepted: to make room the
//     server closes the connection whose client was idle for the longest time, also while it is
//     answered, but no stream. So /livez answers on a full port. At most MaxStreams are streams
//     or profiles.
//  6. /status waits 2 s for measurements. Those that are missing then are missing in the answer.
//  7. Text of containers, manifests and the runtime begins no line of a text answer.
//  8. When the context of Run is done, streams end at once, and other requests within 2 s.
//
// # Goroutines and locking
//
// Run serves each connection in a goroutine, as net/http does, and has joined them when it
// returns; New starts none. The methods of [Agent] and the functions of [Config] are called by
// all of them at once, without a lock.
//
// # Differences from the kubelet
//
//   - There is no exec, attach, port-forward and run, and nothing else that changes a pod.
//   - A bearer token in a file replaces client certificates and the API server's webhooks, and
//     there is one set of permissions: all.
//   - /healthz and /readyz have the agent's parts as checks. The kubelet has no /readyz and
//     /livez.
//   - /runningpods is what the agent has observed, and does not call the runtime.
//   - /logs has no /containerLogs and no listing of the node's /var/log.
//   - /status, /events, /explain and /plan are missing there.
//
// # Testing your code with it
//
// [Server.Handler] answers without a listener and without the checks of a request's token and
// host: give it to httptest, as the example does with an agent on a runtime in memory. A type
// with the methods of [Agent] stands for an agent in a state that is hard to reach.
package kubeletapi
