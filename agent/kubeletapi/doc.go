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
// anything. Of the endpoints that change nothing, /configz, /healthz, /metrics, /statusz and /flagz
// accept any method, as in the kubelet, and /stats/summary also accepts POST. The rest of them
// support only GET and HEAD. A path whose feature is off responds as the kubelet does. The streams
// use SPDY or WebSocket. The server proxies the connection to the URL at which the runtime serves
// the stream. Runtimes do not support two of the protocols: v5.channel.k8s.io (exec and attach over
// WebSocket), and SPDY in a WebSocket (port-forward). The server translates both to SPDY, as the
// kubelet does.
//
// /agent/explain and /agent/plan respond with JSON, or with text if the client prefers
// text/plain or sends ?output=text. In all paths the name of a static pod may omit the suffix
// with the node's name.
//
// Use /healthz for a liveness probe. It fails if a [Check] of the program fails, or if the agent
// has an error that requires a restart of the agent. Once the node has been not ready for 30
// seconds, /healthz fails on every error of the agent. /readyz fails on every error. /livez checks
// nothing and always passes: a probe of /livez fails only if the process does not respond.
//
// # What you supply
//
// You supply the agent, which provides health, pods, statistics, /agent/status, /agent/explain and
// /agent/plan. Some endpoints exist only if a field of [Config] is set: Events (package eventlog),
// PodLogs, Configz, Flags, Checkpoints, Page, and the fields for metrics (package metrics). If one
// of the fields Streams, Operations, Pprof, SystemLogs and LogLevel is not set, the paths of the
// field respond that they are disabled. A program may add its own [Check] values and the [Problem]
// values of its manifests.
//
// [Access] defines how the server authenticates a client: by the token in a file, by a client
// certificate, or with a [TokenReviewer]. A TokenReviewer may send a TokenReview to the API server.
// An [Authorizer] decides which requests a user may make. The Authorizer gets the attributes that
// the kubelet sends in a SubjectAccessReview, for example nodes/metrics for /metrics, nodes/log for
// /logs, and nodes/proxy for /exec.
//
// # What it guarantees
//
//  1. [Server.Listen] and [Server.Run] refuse a TCP address that is not a loopback address, unless
//     Access has both a certificate and a way to authenticate clients.
//  2. If Access authenticates clients, a request without valid credentials only gets /livez and the
//     page. With Anonymous, a request without any credentials also gets the paths that the
//     Authorizer allows. Without an Authorizer, these are the paths of RunReadOnly. If Access does
//     not authenticate clients, the server accepts a request only if its Host header is localhost,
//     a name below .localhost, or a loopback address. Only /livez accepts every Host header. This
//     check prevents DNS rebinding, with which a web page in a browser on this machine could read
//     responses of the server. The browser sends the host name of such a page as the Host header,
//     so the server refuses the request. The listeners of RunHealth and RunReadOnly do not
//     authenticate clients. They have the same check if their address is a loopback address.
//  3. The server reads certificates and the token again when their files change. A changed file of
//     client CAs also applies to open connections, except to open streams. While the token file is
//     unusable, the server refuses the token that the file had before. While another file is
//     unusable, the server uses its previous content. A slow disk delays only one request at a
//     time.
//  4. A client has 10 s to send its request and 30 s to receive the response. It has only 5 s to
//     receive the page, a health check or a refusal. The calls of TokenReviewer and Authorizer for
//     a request end after at most 10 s. Other limits apply to long responses, such as logs and
//     events with ?watch: the client must receive each piece within 10 s. The server closes the
//     connection of a slower client. The limits of streams are in item 11. The server refuses
//     headers of more than 16 KiB with 431 and bodies of more than 64 KiB with 413.
//  5. At most MaxConnections connections are open. At the limit, the server still accepts a new
//     connection. To make room, it closes the connection whose state has not changed for the
//     longest time, even during a response. The state changes when a connection is opened, when a
//     request begins, and when a response is complete. So /livez responds even at the limit. The
//     server never closes a connection for this reason during a long response: a stream, /run, a
//     log, events with ?watch, a profile, a checkpoint or a pull. At most MaxStreams connections
//     have a long response.
//  6. /agent/status waits up to 2 s for measurements, and omits the measurements that are not
//     complete by then.
//  7. Text from containers, manifests and the runtime can't start a new line in a text
//     response.
//  8. Streams, /run, /agent/restart and /agent/pull require a user, because a client can run
//     commands as root with them, or change the node. Without an Authorizer, the anonymous user
//     can't use them. The server removes the token from a request before it passes the request to a
//     handler or to the runtime. No log contains the token.
//  9. The log has one line with the cause for each refused request, up to 60 lines a minute. The
//     first line of a later minute has the number of lines that were omitted.
//  10. When the context of Run is done, streams end at once, and all other requests end at most
//     2 s later.
//  11. A stream ends at the latest 2 s after the agent has observed the end of its container, or of
//     its sandbox for a port-forward. A stream also ends after StreamIdleTimeout without a byte,
//     and when TCP keep-alives show that the client no longer exists. While a client does not
//     receive, the server also stops receiving from the runtime. It buffers at most a few MiB of
//     the data.
//
// # Goroutines and locking
//
// Run serves each connection in a goroutine, as net/http does. When Run returns, all its
// goroutines have ended. New starts no goroutine. The goroutines of Run call the methods of
// [Agent] and the functions of [Config] concurrently, and hold no lock during these calls.
//
// # Differences from the kubelet
//
//   - Ours ends a stream after its container or sandbox has ended, and after 4 h without a byte.
//     The kubelet leaves both to the runtime.
//   - If the runtime ends exec over v5.channel.k8s.io without a status, the client of ours gets a
//     failure. The client of the kubelet gets a success.
//   - To a request for a stream to a container that does not run, ours responds with 404; the
//     kubelet responds with 500.
//   - Without a token file, client CA and TokenReviewer, ours allows all requests on loopback; the
//     kubelet refuses them.
//   - Without an Authorizer, the anonymous user of ours may only read the paths of the read-only
//     port. With the kubelet's mode AlwaysAllow, the anonymous user may make all requests.
//   - The kubelet has no token file. The user of our token is in the group system:masters.
//   - The kubelet reads UIDs in client certificates, and tokens in the header
//     Sec-WebSocket-Protocol; ours ignores both. Ours accepts several spaces before a token; the
//     kubelet does not.
//   - In ours, /livez and the page need no user. In the kubelet, every path needs a user.
//   - The kubelet accepts headers up to 1 MiB, and does not log refused requests by default. Ours
//     accepts headers up to 16 KiB, and logs refused requests.
//   - Our /healthz and /readyz have a check for each part of the agent. The kubelet has no /readyz
//     and no /livez.
//   - Our /runningpods returns what the agent has observed in the runtime. The kubelet's
//     /runningpods calls the runtime, at most every 3 s.
//   - Our /logs follows no link that leads out of the folder, and no absolute link; the kubelet
//     follows every link. Ours never compresses the response to a query of /logs; the kubelet
//     compresses it on request.
//   - Our /statusz and /flagz respond with text or JSON; the kubelet also supports YAML and, with a
//     feature gate, CBOR.
//   - Only ours has endpoints below /agent/.
//
// # Testing your code with it
//
// Pass the handler of [Server.Handler] to httptest, as the example does with an agent on an
// in-memory runtime. The handler needs no listener, and does not check a request's user and
// host. To test a state that is hard to reach, implement [Agent] with your own type.
package kubeletapi
