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
// [Server.RunHealth] and [Server.RunReadOnly] serve the paths of the kubelet's healthzPort and
// readOnlyPort on other listeners.
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
//	/metrics, /metrics/probes, /metrics/resource, /metrics/cadvisor, /metrics/slis, /debug/pprof/
//	/statusz, /flagz                           start time, versions and paths; the flags of the program
//	/logs/PATH                                 the node's logs; ?query=SERVICE
//	/checkpoint/NAMESPACE/POD/CONTAINER        POST writes a checkpoint of a container
//	/debug/flags/v                             PUT changes the log level
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
//	/agent/images                              the images, and what garbage collection would do with them
//	/agent/restart/NAMESPACE/POD               POST: starts the pod's containers again in a new sandbox
//	/agent/pull?image=IMAGE                    POST: pulls an image, and responds when it is pulled
//
// Only the streams, /run, /checkpoint, /debug/flags/v, /agent/restart and /agent/pull can change
// anything. /configz, /healthz, /metrics, /statusz and /flagz accept any method, as in the kubelet,
// and /stats/summary also accepts POST. A path whose feature is off responds as the kubelet does.
// All other endpoints support only GET and HEAD. The streams use SPDY or WebSocket: the server
// proxies the connection to the URL at which the runtime serves the stream. As the kubelet does,
// the server translates v5.channel.k8s.io (exec and attach over WebSocket) and SPDY in a WebSocket
// (port-forward) to SPDY, because runtimes do not support these two protocols.
//
// /agent/explain and /agent/plan respond with JSON, or with text if the client prefers
// text/plain or sends ?output=text. In all paths the name of a static pod may omit the suffix
// with the node's name.
//
// Use /healthz for a liveness probe. If the agent has an error, /healthz fails only if the error
// requires a restart of the agent, or if the node has not been ready for at least 30 seconds.
// /readyz fails on every error. /livez checks nothing and always passes: a probe of /livez fails
// only if the process does not respond.
//
// # What you supply
//
// You supply the agent, which provides health, pods, statistics, /agent/status, /agent/explain
// and /agent/plan. Each of the other endpoints exists if its [Config] field is set: Events
// (package eventlog), PodLogs, Configz, Metrics (package metrics), Page, Pprof. Without the field
// Streams, the paths of streams respond that they are disabled, as in the kubelet. Without the
// field Operations, /agent/restart and /agent/pull also respond that they are disabled. A program
// may add its own [Check] values and the [Problem] values of its manifests.
//
// [Access] has the users of the server: the files of a token and of the CA certificates that sign
// client certificates, or a [TokenReviewer], such as the API server's TokenReview. An [Authorizer]
// decides which requests a user may make. The Authorizer gets the attributes that the kubelet sends
// in a SubjectAccessReview: nodes/metrics for /metrics, and nodes/proxy for most other paths.
//
// # What it guarantees
//
//  1. The main listener only listens on loopback addresses, unless Access has both a certificate
//     and users: [Server.Listen] and Run refuse other addresses.
//  2. If Access has users, a request without valid credentials only gets /livez and the page. With
//     Anonymous, a request without any credentials also gets the paths of RunReadOnly or, with an
//     Authorizer, the paths that the Authorizer allows. If Access has no users, the server refuses
//     a request whose Host header is not a name of this machine. Without this check, a web page in
//     a browser on this machine could read responses of the server by DNS rebinding: the browser
//     sends the host name of the page as the Host header. The listeners of RunHealth and
//     RunReadOnly need no users, and have the same check if their address is a loopback address.
//  3. The server reads certificates and the token again when their files change. A changed file of
//     client CAs also applies to open connections, except to open streams. While the token file is
//     unusable, the server refuses the token that was in it. While another file is unusable, the
//     server uses its previous content. A slow disk delays only one request at a time.
//  4. A client has 10 s to send its request and 30 s to receive the response, or 5 s to receive
//     the page, a health check or a refusal. The calls of TokenReviewer and Authorizer for a
//     request end after 10 s. A stream may last forever if the client receives each piece within
//     10 s. The server closes the connection of a slower client. The server refuses headers of more
//     than 16 KiB with 431 and bodies of more than 64 KiB with 413.
//  5. At most MaxConnections connections are open. The server always accepts a new connection:
//     at the limit, it closes the connection whose client was idle for the longest time, even
//     during a response, but never a stream. So /livez responds even at the limit. At most
//     MaxStreams connections are streams or profiles.
//  6. /agent/status waits up to 2 s for measurements, and omits the measurements that are not
//     complete by then.
//  7. Text from containers, manifests and the runtime can't start a new line in a text
//     response.
//  8. Streams, /run, /agent/restart and /agent/pull require a user, because a client can run commands
//     as root with them, or change the node. Without an Authorizer, the anonymous user can't use
//     them. Neither handlers nor the runtime receive the token, and no log contains it.
//  9. The log has one line with the cause for each refused request, up to 60 lines a minute. The
//     first line of a later minute has the number of lines that were omitted.
//  10. When the context of Run is done, streams end at once, and all other requests end at most
//     2 s later.
//  11. A stream ends at the latest 2 s after the agent has observed the end of its container, or
//     of its sandbox for a port-forward. It also ends after StreamIdleTimeout without a byte, and
//     when TCP keep-alives show that the client no longer exists. A client that stops receiving
//     stops the stream: the server buffers at most a few MiB of the data.
//
// # Goroutines and locking
//
// Run serves each connection in a goroutine, as net/http does. When Run returns, all its
// goroutines have ended. New starts no goroutine. The goroutines of Run call the methods of
// [Agent] and the functions of [Config] concurrently, and hold no lock during these calls.
//
// # Differences from the kubelet
//
//   - A stream ends with its container or sandbox, and after 4 h without a byte. The kubelet leaves
//     both to the runtime.
//   - If the runtime ends exec over v5.channel.k8s.io without a status, the client gets a failure.
//     From the kubelet, the client gets a success.
//   - A request for a stream to a container that does not run gets 404; the kubelet responds with
//     500.
//   - Without a token file, client CA and TokenReviewer, ours allows all requests on loopback; the
//     kubelet refuses them.
//   - Without an Authorizer, as with the kubelet's mode AlwaysAllow, the anonymous user may only
//     read the paths of the read-only port. In the kubelet, the user may make all requests.
//   - The kubelet has no token file. The user of ours is in the group system:masters.
//   - Ours ignores UIDs in client certificates, and tokens in the header Sec-WebSocket-Protocol. It
//     accepts several spaces before a token.
//   - /livez and the page need no user.
//   - The kubelet accepts headers up to 1 MiB, and does not log refused requests by default.
//   - The checks of /healthz and /readyz are the parts of the agent. The kubelet has no /readyz
//     and no /livez.
//   - /runningpods returns what the agent has observed, without calling the runtime.
//   - /logs follows no link that leads out of the folder, and no absolute link. A query of /logs
//     is never compressed.
//   - The JSON of /statusz and /flagz is not available as YAML or CBOR.
//   - The kubelet has no endpoints below /agent/.
//
// # Testing your code with it
//
// Pass the handler of [Server.Handler] to httptest, as the example does with an agent on an
// in-memory runtime. The handler needs no listener, and does not check a request's user and
// host. To test a state that is hard to reach, implement [Agent] with your own type.
package kubeletapi
