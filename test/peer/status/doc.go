// Package status compares github.com/kubeparts/kubeparts/status with the kubelet's status
// manager and with its status generation.
//
// There are four comparisons:
//
//   - status/generate: the status generated from a runtime's state. A world is a history
//     of one pod with containers of all kinds: created, running, exited, in an unknown
//     state and removed, in several sandboxes, with resizes, devices, probes, waiting
//     reasons, termination messages, restarts of all containers, edits, evictions,
//     deletion, other writers of the API object, and restarts of the agent. In each turn
//     both sides start from the kubelet's previous status, so that the differences of
//     each turn are independent.
//   - status/phase: phase, conditions, equality, forbidden transitions, the normalized
//     form and the termination of a pod, for random statuses. A kubelet would not write
//     many of these statuses.
//   - status/merge: the API object after a status was merged with the API server's status
//     and the patch was applied.
//   - status/manager: histories of reports, probe results, resizes, terminations,
//     deletions, files of static pods that are removed and added again, restarts and
//     failing calls, with an API server to which both sides send.
//
// Some functions of the kubelet are not exported; the test reaches them by linkname. A rule
// of status/generate may change the kubelet's input: then our value must equal the kubelet's
// result for the changed input, see [change].
//
// # What is left out
//
//   - Clocks that step back, and the resulting order of containers and sandboxes: the
//     peers pleg and podcache compare them.
//   - Inputs that a kubelet does not have: an unknown or outdated runtime state, and
//     statuses saved in files.
//   - The publisher's order, priorities and back-off, which the kubelet does not have, and
//     the GET calls of the kubelet.
//   - Metrics, logs, and features that are off by default.
package status
