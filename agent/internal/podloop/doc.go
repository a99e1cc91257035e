// Package podloop runs the pods of a node. It wires all pod managers into one value. It is one
// half of package agent; package nodeloop, which manages the node, is the other.
//
// # What it does
//
// A [Loop] has one record for each pod UID. A pure function, next, computes the new record and
// the resulting actions from a record and an event; testdata/next shows all transitions.
// Sources, admission, workers, the remover and callers post events. One goroutine handles them
// in order and never waits:
//
//	source → record → admission queue → record → worker → runtime → PLEG → cache → status → sinks
//
// A pod is offered, then refused or admitted, then ending, ended, removed and gone. It has
// ended when none of its containers runs or will run; then its allocations are released. Only
// the remover removes the remaining data of a pod. If its source defines a pod again while the
// earlier run is ending, the pod starts again when the earlier run is completely removed.
//
// # What you supply
//
// You supply the runtime, the sources, a store, and the functions of the node.
//
// # What it guarantees
//
//  1. Each defined pod goes through admission, even if it was refused or has ended before it
//     was undefined. The exception is a pod that ended before the agent started, because the
//     answer could only change its status. At the start of the agent, running pods go first.
//  2. A refused edit does not change the running version.
//  3. A slow handler delays only other admissions and releases. An answer after 30 s counts as
//     a refusal; [Loop.Checks] names a handler that ignores its context.
//  4. Allocators are restored before the first admission, from a complete inspection of the
//     runtime. Release is called once for each admitted pod, and for each pod that a later
//     allocator has refused.
//  5. The cost of an admission depends on the number of admitted pods, not on that of refused
//     ones. Refused pods are retried in one round at a time.
//  6. No pod is stopped as undefined before every source has called set.
//  7. Housekeeping only repairs. A test runs the normal life of a pod without it.
//  8. [Loop.Sync], SyncAll and NodeChanged never block and never call back.
//
// # Goroutines and locking
//
// [Loop.Run] starts a goroutine for the records, one for admission, one for each removal, and
// those of the managers. It joins them all. One lock guards the records; it is only held to
// copy them, never during a call. [Observers] run on the goroutine that made the change and
// must not block.
//
// # Differences from the kubelet
//
//   - The kubelet admits new pods in its main loop, so that a slow handler delays all pods.
//   - The kubelet does not retry the admission of a refused static pod.
//   - The kubelet updates a running pod even with an edit that it can't apply.
//   - The kubelet removes the data of pods in housekeeping and their volumes in another loop.
//     Here the remover does both and reports when nothing is left.
//   - The kubelet does not delay new pods until it has listed the runtime.
//   - The kubelet admits pods by their creation time. Here running pods come first, then the
//     others in the order of the source.
//
// # Testing your code with it
//
// Run a Loop on a fakecri.Node in a testing/synctest bubble: days pass in moments.
package podloop
