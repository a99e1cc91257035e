// Package containergc compares the container garbage collection of Kubeparts with the
// kubelet's.
//
// The kubelet's side is its whole runtime manager with its log manager and its policy
// object. Both sides act on the same fake runtime and on a real folder of logs and
// links. Compared after each pass are the calls about each container and sandbox, every
// file and link that is there, events, and the failures that an error names.
//
// Worlds have pods that run, have ended, were evicted or are gone, with several
// sandboxes and containers, in every state and in unknown ones; creation times in
// another order than attempts; objects without labels; grace periods and preStop hooks;
// limits for each name and in all, and ages; removals, stops, statuses and lists that
// fail; sources that are not ready; clocks that are set; logs that are rotated or gone,
// links that were cut or are odd, folders that are no pod's, and a folder of logs that
// is missing or a file. A pass is a periodic one or one for disk pressure.
//
// # Models
//
// What stays has effects on later passes. A model therefore plays the whole world as
// the kubelet does, and ours with its differences switched on one by one: see
// [traits]. A difference is explained if the models have both values, and its rule is
// that of the trait which makes the difference.
//
// # Not compared
//
// Owned, Snapshot and Plan, which the kubelet does not have. RequestPod, whose
// counterpart is another component of the kubelet. The order of removals, which in the
// kubelet is that of a map. Calls that hang: one delays all passes of the kubelet, and of
// ours the pass that makes it. Containers made at the same time, among which the kubelet
// chooses by chance. The clock of the kubelet cannot be set here; its runtime's times move
// instead, which is the same to it.
package containergc
