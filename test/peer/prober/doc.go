// Package prober compares the prober of Kubeparts, and its gRPC client, with the kubelet's
// prober and handlers.
//
// # What is compared
//
//   - prober/steps: each run of each kind of probe on a pod with several containers,
//     sidecars and init containers, over restarts of containers and of the agent: which
//     commands run, the result of each run, the announced results, Started and Ready in
//     the status, whether a container must be killed, and events.
//   - prober/http, prober/tcp, prober/grpc and prober/exec: one handler each with the
//     same scripted servers or commands: the outcome, the text, the requests that the
//     server received, and the connections that stay open.
//
// The reports of our manager about its runs, their times and their history are checked
// against the runs.
//
// # How the kubelet is driven
//
// The test runs the kubelet's real manager and workers in a bubble of testing/synctest. The
// period of each probe is so long that no tick ever comes. The test requests a run through
// the worker's channel for manual runs. After each step, the test generates the statuses that
// the manager reads, as the kubelet's status generation does, and calls UpdatePodStatus.
//
// The HTTP handlers run in such a bubble too, over connections in memory that behave like TCP
// connections: the kubelet's transport gets their dialer. The kubelet's TCP and gRPC probes
// do not accept a dialer, so their servers listen on loopback. These comparisons wait for a
// timeout only if a server never responds.
//
// # What is left out
//
//   - The schedule of probes: the two schedules differ on purpose, and both have a random
//     part. Manual runs that the kubelet requests during status generation do nothing
//     here; a restart of the agent is followed by a pause as long as our spread.
//   - Probes that are edited under the same pod UID, which the API server rejects.
//   - Options that the kubelet does not have, except for ErrorPolicy, EventPolicy and
//     UnreadyOnStop.
//   - Restarts of the agent while a pod terminates, because the kubelet does not add
//     probes of such a pod.
//   - Random results of the kubelet: which of several invalid headers an error names, and
//     the wording of a timeout.
package prober
