// Package status compares github.com/kubeparts/kubeparts/status with the kubelet's
// status manager and with its generation of statuses.
//
// There are four comparisons:
//
//   - status/generate: what is generated from a runtime's state. A world is a history
//     of one pod with containers of all kinds: created, running, exited, in an unknown
//     state and removed, in several sandboxes, with resizes, devices, probes, reasons
//     for waiting, termination messages, restarts of all containers, edits, evictions,
//     deletion, other writers of the API server's object, and restarts of the agent.
//     In each turn both sides begin with what the kubelet reported before, so that a
//     turn is judged by itself.
//   - status/phase: phase, conditions, equality, forbidden transitions, the normal form
//     and the end of a pod, for random statuses, of which many are none that a kubelet
//     would write.
//   - status/merge: what an API server shows after a status was merged with its own and
//     the patch was applied.
//   - status/manager: histories of reports, probe results, resizes, ends, deletions,
//     files of static pods that go and come back, restarts and failing calls, with an
//     API server to which both sides send.
//
// Some functions of the kubelet are not exported and are reached by linkname. A rule
// of status/generate may be a change of the kubelet's input: ours must be what the
// kubelet makes of the changed input, see [change].
//
// # What is left out
//
//   - Clocks that step back, and the order of containers and sandboxes that follows
//     from it: that is the comparison of pleg and podcache.
//   - Inputs that a kubelet does not have: an unknown or stale runtime state, and
//     statuses saved in files.
//   - The publisher's order, priorities and back-off, of which the kubelet has none, and
//     the GET calls of the kubelet.
//   - Metrics, logs, and features that are off by default.
package status
