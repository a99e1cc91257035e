// Package server is the agent's HTTP server. What it serves is the agent's to say, by
// funcs and handlers in [Config]: an endpoint without one does not exist. How it is
// served is here: who may ask, for how long, and how many at once.
//
// # Endpoints
//
// In the kubelet's form: /healthz, /livez, /readyz, /pods, /runningpods, /stats/summary,
// /configz, /logs/NAMESPACE/POD/CONTAINER, /metrics, /metrics/probes, /metrics/resource
// and /debug/pprof/. In words of package api: /status, /events and
// /explain/NAMESPACE/POD; /plan/eviction and /plan/gc are what would be done now. The
// page is at /. All are read with GET; nothing can be changed.
//
// /healthz fails when a restart of the agent is worth a try, /readyz when it can't start
// pods right now, and /livez when the process does not answer: it asks nothing, so that
// a runtime that is down kills no agent.
//
// # What it guarantees
//
//  1. It listens on loopback, or with TLS and a token: see [Listen].
//  2. With a token, who has none gets nothing but /livez and the page. Without one, requests for
//     another host's name are refused: that is what a page in a browser on this machine
//     would send after its name's address has changed (DNS rebinding).
//  3. Certificate and token are read again when their files change. A file that is
//     unusable then changes nothing but the log, and a slow disk holds up one request.
//  4. A client has 10 s for its request and 30 s for an answer, 5 s for the page, for what
//     a health check says and for a refusal. A stream goes on for as long as every piece
//     of it is taken within 10 s. Who is slow is cut off.
//  5. At most MaxConnections are open. A new one is always let in: to make room, the
//     server closes the one whose client has done nothing for longest, also if it is
//     being answered, but no stream. So /livez answers on a full port. At most MaxStreams
//     are streams, profiles among them, so that others are answered.
//  6. When Run's context is done, streams end at once and the rest within 2 s.
package server
