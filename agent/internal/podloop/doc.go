// Package podloop runs the pods of a node: it wires the managers of pods into one value. It is
// the part of package agent about pods, as nodeloop is the part about the node.
//
// # What it does
//
// A [Loop] has one record for each UID, and one pure function, next, that makes the following
// record of a record and an event, together with what is to be done. testdata/next shows all of
// it. Sources, admission, workers, the remover and callers post events; one goroutine takes them
// in order and does what follows, without ever waiting:
//
//	source → record → admission lane → record → worker → runtime → PLEG → cache → status → sinks
//
// A pod is offered, then refused or admitted, then it is ending, ended, removed and gone. It has
// ended when nothing of it runs and nothing will; what allocators gave to it is released then.
// Only the remover removes what is left of a pod. A pod that its source defines again while its
// earlier life ends begins again when nothing is left of that.
//
// # What you supply
//
// The runtime, the sources, a store, and what the loop asks of the node as functions.
//
// # What it guarantees
//
//  1. Each pod that is defined is asked about, also when it was refused or has ended before it
//     went. What has ended before the agent began is not: the answer could only change its
//     status. Pods that run are asked about first when the agent begins.
//  2. An edit that is refused leaves the running version as it is.
//  3. A slow handler delays other questions and releases, and nothing else. One that answers
//     after 30 s has refused; [Loop.Checks] names one that ignores its context.
//  4. An allocator is restored before the first question, from a look at the runtime that has
//     inspected everything. Release is called once for each pod that was admitted, and for each
//     that a later allocator has refused.
//  5. A question costs as much as there are admitted pods. Refused pods are asked about again
//     one round at a time.
//  6. No pod is ended for having no source before every source has answered.
//  7. Housekeeping only repairs. A test without it passes the ordinary life of a pod.
//  8. [Loop.Sync], SyncAll and NodeChanged never block and never call back.
//
// # Goroutines and locking
//
// [Loop.Run] has a goroutine for the records, one for admission, one for each removal, and those of
// the managers, and joins them all. One lock guards the records; it is held for a copy and never
// while anything is called. [Observers] run on the goroutine that has changed something and must
// not block.
//
// # Differences from the kubelet
//
//   - The kubelet asks about new pods in its main loop, so that a slow handler delays all pods.
//   - The kubelet does not ask about a static pod again that it has refused.
//   - The kubelet updates a running pod with an edit that it can't honour.
//   - The kubelet removes what is left of pods in housekeeping, and of the volumes in another
//     loop; here one part does, and reports when nothing is left.
//   - The kubelet does not delay new pods until it has looked at the runtime.
//   - The kubelet admits pods by their creation time. Here pods that run come first, and then the
//     order is that of the source.
//
// # Testing your code with it
//
// A Loop on a fakecri.Node in a testing/synctest bubble lives days within moments.
package podloop
