// Package status says what is true of each pod of a node, in the terms of the
// Kubernetes API: its phase, its conditions and the status of its containers.
//
// # What it does
//
// [Generate] computes a [corev1.PodStatus] from the pod's spec, what the runtime
// says of it (a [podcache.Status]), what was last said, what the probes found and
// why containers are not started. It is a pure function: it can be printed,
// replayed and tested with no node around it. Its parts stand on their own:
// [Phase], [ContainerStatuses], the conditions ([ContainersReady], [Ready],
// [Initialized], [ReadyToStartContainers]), [Normalize], [Equal] and
// [CheckTransition].
//
// [Manager] keeps the status of each pod. It drops updates that say nothing new,
// refuses those that cannot be, holds to what must never go back, and tells
// observers of every change, once and in order.
//
// [Publisher] brings what a Manager says to a [Sink]: an API server
// ([APIServer]), files of which the next process reads on ([Files]), or a
// function ([SinkFunc]). A node that tells nobody has none. [Merge] and [Patch]
// are how an API server's view and the node's become one.
//
// # What you supply
//
// To Generate: the pod and whatever of the rest is known. Each field of [Input]
// says what its absence means. To a Manager: nothing; a clock, a logger and an
// observer if you like. A sync of a pod then reads
//
//	previous, _ := manager.GetPodStatus(pod.UID)
//	manager.SetPodStatus(pod, status.Generate(status.Input{
//		Pod: pod, Runtime: seen, RuntimeName: "containerd", Previous: previous, Now: clock.Now(),
//	}))
//
// To an APIServer: a function from a namespace to a [PodClient], which client-go's
// is. Whoever watches the API server calls, for each pod that it shows,
//
//	api.Seen(pod.UID, pod)
//	publisher.Trigger(pod.UID)
//
// which saves the looks and puts right what others have changed; without it both
// happen at the next change of the pod, or at the next tick with
// [PublisherConfig].Reconcile.
//
// # What it guarantees
//
//  1. A pod that has Succeeded or Failed stays so, whoever writes, and is never
//     Ready at the same time.
//  2. A terminated container that must not run again is never shown as anything
//     else.
//  3. A condition's transition time moves with its status and at no other time; a
//     start time never moves; the observed generation never decreases.
//  4. A container that is gone without a trace is never shown as one that never
//     ran, and restart counts never decrease.
//  5. Each change has the next version of its pod. What is [Equal] to what is said
//     already is no change.
//  6. An agent that starts again says what it said before until it knows better:
//     see [Input.Runtime] and [ProbeUnknown].
//  7. Nothing that is given is modified. Nil and half-filled CRI messages do no
//     harm.
//  8. The newest status of each pod reaches the sink, one publication of a pod at a
//     time, versions never going back. A pod whose calls fail delays no other; one
//     whose calls hang holds one worker, for a timeout at a time. Memory is bounded by
//     the number of pods.
//  9. A pod that has ended or is deleted goes first; its end is held back while it
//     may still run; its object is deleted only after its end is stored, and only
//     if it is the very object.
//  10. In the good case a change is one PATCH. A pod that is gone is asked for once.
//  11. All of this is exact in bytes too: reasons and messages are the kubelet's,
//     and messages are cut between runes, so what comes back from an API server
//     is what was sent.
//
// # Goroutines and locking
//
// Functions share nothing. A Manager may be used by any number of goroutines and
// starts none: writers wait for each other, readers for no writer's work, only
// while it puts the result in place. Observers and the function of
// [Manager.Update] run while other writers wait; they may read and must not write.
//
// A Publisher's Run, Sync and Flush start at most as many goroutines as it has
// workers, and return when these have ended. They may run side by side: no pod is
// then published twice at a time. Sinks are called with no lock held.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates.
//
//   - The terminal phase is sticky in the Manager as well, not in generation only,
//     and the merge rule that an ended pod is not Ready applies at once.
//   - What counts as previously known when a pod is terminated is what was said
//     last, not the API server's view alone, so that it holds for static pods.
//   - That a pod is deleted is one change. The kubelet forces one at every update
//     of a deleted pod, to wake its publisher.
//   - A refused status of an unknown pod comes back as it was given, not as zero.
//   - Ready with readiness gates looks at sidecars wherever it is computed.
//   - Started is inherited from the same container only, not from its predecessor.
//   - Only an end is ever a last termination, and the end of a container is not
//     shown as its own last termination after a back-off.
//   - A sidecar that exited with 0 and waits for its back-off says so.
//   - A container that must not run again is never shown as waiting to be.
//   - Init containers are matched to the spec by name, not by index.
//   - Whether a mount is recursively read-only is what the runtime says it did, not
//     what it should be able to do. Resources of the pod as a whole are the spec's.
//     Stop signals (KEP-4960), alpha and off by default, are not shown. The health of
//     devices (KEP-4680) is shown if whoever manages them says it.
//   - A container whose start was broken off with its agent (podcache.BrokenOff) is shown
//     as created and waiting, not as failed with 128.
//   - A startup result decides Initialized at once, not with the next sync, and Ready
//     of a container without a readiness probe.
//   - Resize conditions are the Manager's alone: a status made from an older view
//     neither brings one back nor loses one.
//   - Statuses are published side by side, without a GET and with the resource
//     version as a precondition; the kubelet has one loop, a GET before each PATCH
//     and the UID alone. Failures back off by pod and honour Retry-After.
//   - A vanished pod is looked for once, not at every tick (kubernetes#139020).
//   - An end that the API server has is not sent over by another one, which it
//     would refuse for ever.
//   - The publication latency is that of a version, not of the pod (kubernetes#107896).
//   - There is no tick unless one is asked for: what others change is seen by
//     whoever watches. A tick looks at each pod and calls only where that differs.
//   - A 404 of something other than an API server does not make a pod gone.
//   - A readiness gate that has moved counts for the next probe result, not from the
//     next sync on, and a result of a container that has ended counts for nothing.
//   - The node's addresses, where nobody knows them for a while, stay as they were.
//
// # Testing your code with it
//
// Nothing needs a fake: give [Generate] literal values, and a Manager a fake
// clock. An [Observer] that appends each [Change] to a slice records what a user
// would have seen; a [SinkFunc] does so for what would have been published, and
// [Publisher.Sync] is a pass without a goroutine to wait for.
package status
