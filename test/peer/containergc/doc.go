// Package containergc compares the container garbage collection of Kubeparts with the
// kubelet's.
//
// The kubelet's side is its whole runtime manager with its log manager and its policy object.
// Both sides act on the same fake runtime and on a real directory of logs and symbolic links.
// After each pass, the test compares the calls for each container and sandbox, every file and
// link on the disk, the events, and the failures in the error.
//
// Worlds have running, terminated, evicted and deleted pods, with several sandboxes and
// containers in every state and in unknown states. The order of creation times can differ
// from that of attempts, and objects can lack labels. Worlds also draw grace periods and
// preStop hooks; limits per container name, total limits and minimum ages; failing removals,
// stops, status calls and list calls; pod sources that are not ready; and clocks that are
// set. On the disk, logs can be rotated or missing, links can have shortened names or unusual
// targets, directories can belong to no pod, and the log directory can be missing or a file.
// A pass is either a periodic pass or a pass for disk pressure.
//
// # Models
//
// An object that one side keeps influences later passes. A model therefore plays the whole
// world. It can play as the kubelet, as our package, or as a mixture that has only some of our
// differences from the kubelet: see [judge.Traits]. A difference is explained if the models of both
// sides have the values of these sides. Its rule is the rule of the trait that causes it.
//
// # Not compared
//
//   - Owned, Snapshot and Plan, which the kubelet does not have.
//   - RequestPod. Its counterpart is in another component of the kubelet.
//   - The order of removals. In the kubelet it is that of a map.
//   - Calls that hang. Such a call delays all passes of the kubelet; in our package it delays only the pass that makes it.
//   - Containers with equal creation times, among which the kubelet chooses at random.
//
// The test cannot set the kubelet's clock. Instead it shifts the times that the kubelet's
// runtime reports, which has the same effect.
package containergc
