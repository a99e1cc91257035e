// Package nodestatus computes what a node agent reports of its node: the status of the Node
// object, the events about it, and when a report or a lease is due.
//
// # What it does
//
// [Next] computes a [corev1.NodeStatus] from [Facts] and the previous status: capacity and
// allocatable, addresses, images, what the machine, the runtime and its handlers are, and the
// conditions MemoryPressure, DiskPressure, PIDPressure and Ready. Reasons, messages, order and
// rounding are those of kubelet 1.36. [Allocatable] and [Images] are parts of it that others
// need too.
//
// [Events] returns the events about a change. [Due] reports whether the API server must get the
// next status, [LeaseDue] whether the node's lease must be renewed, and [Attempts.Next] when a
// call that failed must be repeated.
//
// # What you supply
//
// Facts, which are plain values: each field says what its absence means. Fields of the status
// that no fact is about keep their previous values: volumes in use and attached, the
// configuration, declared features, conditions and resources that others have written. A
// program that has more to say changes the result before it compares:
//
//	next := nodestatus.Next(&node.Status, facts, clock.Now())
//	next.VolumesInUse = inUse
//	if nodestatus.Due(&node.Status, next, lastReport, clock.Now(), nodestatus.ReportPeriod) {
//		…
//	}
//
// # What it guarantees
//
//  1. The same arguments have the same result. No function reads a clock, a file or the
//     network.
//  2. Nothing that is given is modified or shared with a result.
//  3. The transition time of a condition moves with its status and at no other time.
//  4. Unknown is not empty: a fact that is missing changes nothing in the status. Exceptions are
//     processors and memory of a machine that could not be measured, which are 0, and images.
//  5. Allocatable is at least 0.
//  6. A status that was computed again from the same facts is not due before its period.
//
// # Goroutines and locking
//
// There are only functions, which share nothing and may be called by any number of goroutines.
//
// # Differences from the kubelet
//
//   - The kubelet reports swap that the machine no longer has; here it disappears.
//   - A kubelet that has just started reports no runtime handlers until the runtime is ready;
//     here the previous ones stay.
//   - While the kubelet can't measure the machine it ignores device plugins, so that broken
//     devices are allocatable; here they count in any case.
//   - Where the version of the runtime is unknown, the kubelet reports Unknown in its place; here
//     the previous version stays.
//   - The kubelet empties an id of the machine that it can't read; here the previous one stays.
//   - Looking up and checking addresses is the caller's task, and so is the annotation
//     alpha.kubernetes.io/provided-node-ip, which is not part of the status.
//   - After a change the kubelet adds a random time to the next period, up to half of it in
//     either direction, and 4 % to each renewal of the lease, so that nodes don't report at the
//     same time. Here the caller adds it to the period.
//   - A renewal that fails five times makes the kubelet get the lease and try five times more
//     before it waits. [Attempts.Next] waits after each fifth failure.
//   - The kubelet reports a reboot once in its life; [Events] does so whenever the boot id
//     differs from the previous one.
//   - What the kubelet does when it registers a node that exists already, such as to set
//     extended resources to 0, is not part of this package.
//
// # Testing your code with it
//
// Call the functions with a time of your choice, as in the example. Comparing a whole status with
// the previous one is easiest with [Due] and a long period.
package nodestatus
