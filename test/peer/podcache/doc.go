// Package podcache compares package podcache with the kubelet's pod cache.
//
// A world is a random sequence of writes, deletions, observations, global times and waiting
// readers. Some readers are cancelled. Times are in the present or the past, and often
// equal. After each operation, the test compares the result of Get for each pod, how new it
// is, whether Set accepted its status, and what each waiter received and when.
//
// A [model] computes the results of both sides. A rule holds if both sides have the model's
// results, and if the rule's cause makes them differ in the model.
//
// The kubelet sets a global time only after the inspection of every pod. If a global time of
// ours excludes pods, the kubelet's side therefore sets no global time.
//
// Not compared: the list of all statuses and the calls about waiting readers, which the
// kubelet's cache does not have.
package podcache
