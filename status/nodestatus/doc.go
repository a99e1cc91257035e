// Package nodestatus computes the status of the Node object that a node agent reports, the
// events about the node, and when a report or a lease renewal is due.
//
// # What it does
//
// [Next] computes a [corev1.NodeStatus] from [Facts] and the previous status. It sets capacity and
// allocatable resources, addresses, images, the description of the machine, the runtime and its
// handlers, and the conditions MemoryPressure, DiskPressure, PIDPressure and Ready. Reasons,
// messages, order and rounding are those of kubelet 1.36. [Allocatable] and [Images] compute
// parts of the status, and can be used alone.
//
// [Events] returns the events about a change of the status, and [SchedulingEvent] the event about a
// node that was cordoned or uncordoned. [NetworkProblem] returns why the network of the runtime is
// not ready. [ReportDue] reports whether the next status must be sent to the API server.
// [RenewInterval] returns the time between two renewals of the node's lease. [Attempts.Next] returns
// when the next call is due, after a success or a failure.
//
// # What you supply
//
// Facts, which are plain values. Each field documents what an unset value means. Fields of the
// status that no fact determines keep their previous values: volumes in use and attached, the
// configuration, declared features, and the conditions and resources of other writers. A
// program that sets more fields sets them before it calls [ReportDue]:
//
//	next := nodestatus.Next(&node.Status, facts, clock.Now())
//	next.VolumesInUse = inUse
//	if nodestatus.ReportDue(&node.Status, next, lastReport, clock.Now(), nodestatus.ReportPeriod) {
//		…
//	}
//
// # What it guarantees
//
//  1. The same arguments have the same result. No function reads a clock, a file or the
//     network.
//  2. Arguments are neither modified nor shared with a result.
//  3. The transition time of a condition changes only with its status.
//  4. Unknown is not empty: a missing fact changes nothing in the status. There are three
//     exceptions: cpu and memory become 0 if the machine could not be measured, the node is not
//     ready while the state of the runtime is unknown, and the images in the status are always
//     those in the facts.
//  5. Allocatable quantities are at least 0.
//  6. If a status is computed again from the same facts, its report is not due before the period
//     is over. There is one exception: when the ReadyAt of the runtime is 30 s old, the node
//     becomes not ready, and a report is due.
//
// # Goroutines and locking
//
// The package has only functions and values. Functions share no state and are safe for
// concurrent use.
//
// # Differences from the kubelet
//
//   - The kubelet continues to report swap that the machine no longer has; here it is removed
//     from the status.
//   - A kubelet that has just started reports no runtime handlers until the runtime is ready;
//     here the previous runtime handlers stay.
//   - While the kubelet cannot measure the machine it ignores device plugins, so that unhealthy
//     devices are allocatable; here the state of device plugins is always used.
//   - If the version of the runtime is unknown, the kubelet reports Unknown; here the previous
//     version stays.
//   - If the kubelet cannot read an ID of the machine, it reports an empty ID; here the
//     previous ID stays.
//   - The kubelet looks up and checks its addresses, and sets the annotation
//     alpha.kubernetes.io/provided-node-ip, which is not part of the status; here the
//     caller does this.
//   - After a change the kubelet makes the next period up to half longer or shorter, at random.
//     It also makes each interval between two renewals of the lease up to 4 % longer. Nodes then
//     do not report at the same time. Here the caller can add such random times to the periods.
//   - After five failed renewals the kubelet gets the lease and tries five more times before it
//     waits. [Attempts.Next] waits after every fifth failure.
//   - The kubelet reports a reboot at most once per process; [Events] reports a reboot whenever
//     the boot ID differs from the previous boot ID.
//   - The registration of an existing node, in which the kubelet sets extended resources to 0,
//     is not part of this package.
//
// # Testing your code with it
//
// Call the functions with fixed times, as in the example. To compare a status with the previous
// status, call [ReportDue] with a long period.
package nodestatus
