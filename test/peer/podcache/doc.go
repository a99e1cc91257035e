// Package podcache compares package podcache with the kubelet's pod cache.
//
// A world is a random order of writes, deletions, observations, global times and
// readers that wait, some of which give up. Times are of the present or the past, and
// often equal. Compared after each operation: what Get returns for each pod, how new
// that is, whether Set accepted its status, and what each waiter received and when.
//
// A [model] has what both sides should do; a rule holds if both sides did that, and if
// the model says that the rule's cause made them part.
//
// A global time that does not speak for all pods is none in the kubelet, which has
// them only after every pod was inspected.
//
// Left out: the list of all statuses and the calls about waiting readers, which the
// kubelet's cache does not have.
package podcache
