// Package prober compares the prober of Kubeparts, and its gRPC client, with the
// kubelet's prober and handlers.
//
// # What is compared
//
//   - prober/steps: each run of each kind of probe on a pod with several containers,
//     sidecars and init containers, over restarts of containers and of the agent: which
//     commands run, the result that each leads to, what is announced, Started and Ready
//     of the status, whether a container is to be killed, and events.
//   - prober/http, prober/tcp, prober/grpc and prober/exec: one handler each against the
//     same scripted servers or commands: the outcome, the text, what the server saw, and
//     which connections are left open.
//
// What ours says of its own runs, their times and their history is checked against what
// they were.
//
// # How the kubelet is driven
//
// Its manager and its workers are the real ones, in a bubble of testing/synctest. The
// period of each probe is so long that no tick ever comes; a run is asked for by the
// worker's own channel for runs off its turn. The statuses that the manager reads are
// made after each step, as the status generation makes them, and go through
// UpdatePodStatus.
//
// The HTTP handlers run in such a bubble too, over connections in memory that behave
// like those of TCP: the kubelet's transport gets their dialer. TCP and gRPC probes of
// the kubelet can't be given a dialer, so their servers listen on loopback. There, time
// runs out only where a server never answers.
//
// # What is left out
//
//   - When a probe runs: the two schedules differ on purpose, and both have a random
//     part. The runs that the kubelet makes off their turn when it generates a status
//     find nothing to do here; a restart of the agent is followed by a pause as long as
//     our spread.
//   - Probes that are edited under the same pod UID, which the API server refuses.
//   - Options that the kubelet does not have, except for ErrorPolicy, EventPolicy and
//     UnreadyOnStop.
//   - Restarts of the agent while a pod ends, because the kubelet does not add probes of
//     such a pod.
//   - What the kubelet does by chance: which of several bad headers it names, and the
//     wording of a timeout.
package prober
