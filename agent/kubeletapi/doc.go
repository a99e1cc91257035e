// Package kubeletapi serves an agent over HTTP. It has the endpoints of the kubelet's API, and
// additional endpoints whose types are in package api.
//
// # What it does
//
// [New] returns a [Server] for an [Agent]. [Server.Listen] returns a listener, and [Server.Run]
// serves the agent on this listener:
//
//	s, err := kubeletapi.New(kubeletapi.Config{Agent: a, Access: access, …})
//	…
//	listener, err := s.Listen(ctx, "127.0.0.1:10255")
//	…
//	err = s.Run(ctx, listener)
//
// These endpoints are the kubelet's, except for /livez and /readyz:
//
//	/healthz, /livez, /readyz                  ok, or 500 and the failed checks; ?verbose, ?exclude=NAME
//	/healthz/NAME                              one check of /healthz; also ping, log and syncloop
//	/pods                                      the pods that a source defines, with their statuses
//	/runningpods/                              the running pods, as in the runtime
//	/stats/summary                             resource usage of node, pods and containers
//	/containerLogs/NAMESPACE/POD/CONTAINER     the log of a container
//	/configz                                   the configuration in use
//	/metrics, /metrics/probes, /metrics/resource, /debug/pprof/
//	/exec/NAMESPACE/POD[/UID]/CONTAINER        a stream to a command in a container
//	/attach/NAMESPACE/POD[/UID]/CONTAINER      a stream to the main process of a container
//	/portForward/NAMESPACE/POD[/UID]           a stream to ports of a pod
//	/run/NAMESPACE/POD[/UID]/CONTAINER         runs a command, and responds with its output
//
// The kubelet does not have these:
//
//	/agent/                                    the page of the program, to which / redirects
//	/agent/status                              the state of the whole agent: api.Status
//	/agent/events                              the last events: api.Event, a JSON line each; ?watch, ?since=NUMBER
//	/agent/explain/NAMESPACE/POD               why a pod is in its state, and what comes next
//	/agent/plan/eviction, /agent/plan/gc       what eviction and garbage collection would do now
//
// Only the streams and /run accept POST, and only they can change anything. All other endpoints
// support only GET and HEAD. The streams use SPDY or WebSocket: the server proxies the connection
// to the URL at which the runtime serves the stream.
//
// /agent/explain and /agent/plan respond with JSON, or with text if the client prefers
// text/plain or sends ?output=text. In all paths the name of a static pod may omit the suffix
// with the node's name.
//
// Use /healthz for a liveness probe. If the agent has an error, /healthz fails only if the
// error requires a restart of the agent, or if the node has not been ready for at least 30 seconds. /readyz
// fails on every error. /livez checks nothing and always passes: a probe of /livez fails only
// if the process does not respond.
//
// # What you supply
//
// You supply the agent, which provides health, pods, statistics, /agent/status, /agent/explain
// and /agent/plan. Each of the other endpoints exists if its [Config] field is set: Events
// (package eventlog), PodLogs, Configz, Metrics (package metrics), Page, Pprof. Without the field
// Streams, the paths of streams respond that they are disabled, as in the kubelet. A program may
// add its own [Check] values and the [Problem] values of its manifests.
//
// # What it guarantees
//
//  1. Without TLS and a token, a server only listens on loopback addresses: [Server.Listen] and
//     Run refuse other addresses.
//  2. If a token is set, a request without the token only gets /livez and the page. If no token
//     is set, the server refuses a request whose Host header is not a name of this machine. Without
//     this check, a web page in a browser on this machine could read responses of the server by
//     DNS rebinding: the browser sends the host name of the page as the Host header.
//  3. The server reads the certificate and the token again when their files change. While the
//     token file is unusable, the server refuses all tokens. While the certificate file is
//     unusable, the server uses the previous certificate. A slow disk delays only one request
//     at a time.
//  4. A client has 10 s to send its request and 30 s to receive the response, or 5 s to receive
//     the page, a health check or a refusal. A stream may last forever if the client receives
//     each piece within 10 s. The server closes the connection of a slower client.
//  5. At most MaxConnections connections are open. The server always accepts a new connection:
//     at the limit, it closes the connection whose client was idle for the longest time, even
//     during a response, but never a stream. So /livez responds even at the limit. At most
//     MaxStreams connections are streams or profiles.
//  6. /agent/status waits up to 2 s for measurements, and omits the measurements that are not
//     complete by then.
//  7. Text from containers, manifests and the runtime can't start a new line in a text
//     response.
//  8. Streams and /run require a token, because a client can run commands as root with them. The
//     runtime does not receive the token.
//  9. When the context of Run is done, streams end at once, and all other requests end at most
//     2 s later.
//
// # Goroutines and locking
//
// Run serves each connection in a goroutine, as net/http does. When Run returns, all its
// goroutines have ended. New starts no goroutine. The goroutines of Run call the methods of
// [Agent] and the functions of [Config] concurrently, and hold no lock during these calls.
//
// # Differences from the kubelet
//
//   - There is no /checkpoint.
//   - A request for a stream to a container that does not run gets 404; the kubelet responds with
//     500.
//   - A client authenticates with a bearer token, which the server reads from a file. Client
//     certificates and the API server's webhooks are not supported. The token permits every
//     request.
//   - The checks of /healthz and /readyz are the parts of the agent. The kubelet has no /readyz
//     and no /livez.
//   - /runningpods returns what the agent has observed, without calling the runtime.
//   - There is no /logs. In the kubelet, /logs serves the node's folder /var/log.
//   - The kubelet has no endpoints below /agent/.
//
// # Testing your code with it
//
// Pass the handler of [Server.Handler] to httptest, as the example does with an agent on an
// in-memory runtime. The handler needs no listener, and does not check a request's token and
// host. To test a state that is hard to reach, implement [Agent] with your own type.
package kubeletapi
