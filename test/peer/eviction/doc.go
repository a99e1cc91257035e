// Package eviction compares our eviction manager with the kubelet's, turn by turn.
//
// # What is compared
//
// The kubelet's manager runs as it does in the kubelet: its own loop, in a
// testing/synctest bubble. Ours evaluates at the same moments: 10 s after the turn
// before, or when the pods that a turn has evicted are cleaned up, which is waited
// for as the kubelet does. After it has reclaimed a disk, ours looks again at once, as
// Manager.Run does. In half of the worlds, it looks at other times too while the kubelet
// waits. A step is one turn; the looks until the next turn are a step of their own. Facts
// of a turn are
//
//   - for each signal, the thresholds that are met, not yet resolved, due, and due
//     with a fresh figure. The kubelet says them in its log;
//   - the node conditions, and the answers to fourteen pods that ask to be admitted;
//   - the collections of containers and images, in order, and whether they ran beside
//     each other;
//   - the whole order of pods, and the pods that were killed, in order, each with the
//     resource and quantity or the limit that it went for, its grace period, its event
//     with annotations, and the status that the kill writes;
//   - the events of the node, and when the turn began.
//
// A look between turns has one fact: all thresholds with their states, the conditions,
// whether figures of pods were asked for, pods that are late, and the whole decision.
// The kubelet has none, and rules compute ours. Where something is done in such a look,
// the scenario ends.
//
// A second comparison is of settings: ParseThresholds and the flags against the kubelet's
// parser and defaults, the texts of conditions, and [eviction.Policy.Validate].
//
// # The worlds
//
// A world draws thresholds of all signals, hard and soft, as amounts and percentages,
// with grace periods and minimum reclaims; the three layouts of filesystems, and a
// layout that is unknown at first; figures that go up and down around the points at
// which something changes, measured when asked, every 12, 15, 30 or 100 s, or without
// a time, missing, impossible, or all unknown for a while; up to six pods with
// containers, init containers and sidecars, requests and limits, overhead, resources of
// the whole pod, and all kinds of volumes, that arrive later, change what they use, or
// have no figures or old ones; turns every 3, 10, 25 or 50 s; kills that take any time, hang, and fail
// once or always; pods that grow while they end; space that
// becomes free when a pod has ended, when it is cleaned up, and by the collections;
// restarts of the agent before a turn and while a pod ends.
//
// Pods never tie in all that counts, and a scenario ends where several thresholds of
// different figures are due: the kubelet's choice is a matter of chance there.
//
// # What is left out
//
//   - Manager.Run, which decides when to look, and looks while a disk is reclaimed.
//   - Volumes without a figure: the kubelet panics.
//   - The memory cgroup notifier, which calls the same turn at other times.
//   - The kubelet's metrics.
//   - What only ours has: modes, orders of pods that a caller supplies, and
//     admission that waits.
//
// # How rules work
//
// model.go and victims.go have what a side does in a turn, and replay.go what it finds
// out about thresholds and conditions, each with a switch for every difference. A rule fires only
// where the model with all switches as in the kubelet comes to what the kubelet did,
// and with all as in ours to what ours did: then the difference is put down to the
// first switch without which ours would have done something else.
package eviction
