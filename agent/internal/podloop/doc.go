// Package podloop runs the pods of a node. It combines all managers of pods in one value, a [Loop].
// Package agent combines the Loop with package nodeloop, which manages the node.
//
// # What it does
//
// A [Loop] has one record for each pod UID. A pure function, next, computes the new record and
// the resulting actions from a record and an event. The golden file testdata/next/table shows
// all transitions. Sources, the admission queue, workers, the remover and callers post events.
// One goroutine handles the events in order and never waits. A pod passes through these stages:
//
//	source → record → admission queue → record → worker → runtime → PLEG → cache → status → sinks
//
// A pod is first offered, then refused or admitted, then ending, ended, removed and gone. A pod has
// ended when none of its containers runs or will run. The admission queue then releases the
// allocations of the pod. Only the remover removes the remaining data of a pod. A source may define
// a pod again while the earlier run of the pod is ending. The pod then starts again when the
// earlier run is completely removed.
//
// # What you supply
//
// You supply the runtime, the sources, a store, and the functions of the node.
//
// # What it guarantees
//
//  1. Each pod that a source defines goes through admission. This includes a pod that is defined
//     again after an earlier run was refused or has ended. One exception is a pod with a deletion
//     timestamp. The other exception is a pod that ended before the agent started, because a
//     refusal would replace its final status. At the start of the agent, running pods are
//     admitted first.
//  2. A refused edit does not change the running version of a pod.
//  3. A slow handler delays only other admissions and releases. An answer after more than 30 s
//     counts as a refusal. [Loop.Checks] names a handler that still runs after 30 s.
//  4. Before the first admission, the loop restores the allocators from the result of the first
//     relist. A pod whose inspection failed is missing in this result. The loop calls the method
//     Release of an allocator once for each admitted pod, and once for each pod that a later
//     allocator has refused.
//  5. The cost of an admission depends on the number of admitted pods, and not on the number of
//     refused pods. The admission of refused pods is retried in rounds. A round starts only when
//     the admission queue is empty.
//  6. When a source no longer defines a pod, the loop stops the pod at once. If no source has
//     defined a pod of an earlier agent yet, the pod keeps running until every source has defined
//     its pods. One exception is [Loop.StopPods] with a zero ShutdownConfig: it also stops the pods
//     that no source has defined yet.
//  7. Housekeeping only repairs inconsistencies. In a test, pods run from admission to removal
//     without housekeeping.
//  8. [Loop.Sync], [Loop.SyncAll] and [Loop.NodeChanged] never block and call no callbacks.
//
// # Goroutines and locking
//
// [Loop.Run] starts one goroutine for the events, one goroutine for admission, one goroutine for
// each removal, and the goroutines of the managers. It joins all of them. One lock guards the
// records. The lock is held only while a record is read or stored, and never during a callback. The
// goroutine that makes a change calls the [Observers], so they must not block.
//
// # Differences from the kubelet
//
//   - The kubelet admits new pods in its main loop, so that a slow handler delays all pods.
//     Here, a slow handler delays only other admissions and releases.
//   - The kubelet does not retry the admission of a refused static pod. Here, the loop retries
//     it.
//   - The kubelet updates a running pod even with an edit that it can't apply. Here, a refused
//     edit does not change the running version of the pod.
//   - The kubelet removes the data of pods in housekeeping and their volumes in another loop.
//     Here, the remover removes both, and reports when nothing is left.
//   - The kubelet admits new pods before it has listed the runtime. Here, admission starts after
//     the first relist.
//   - The kubelet admits pods in the order of their creation. Here, running pods are admitted
//     first, then the other pods in the order of the source.
//
// # Testing your code with it
//
// Run a Loop on a fakecri.Node in a testing/synctest bubble: a simulated day takes little time.
package podloop
