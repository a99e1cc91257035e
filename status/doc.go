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
// refuses those that cannot be, holds to what must never go back, and tells an
// [Observer] of every change, once and in order.
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
//  8. All of this is exact in bytes too: reasons and messages are the kubelet's,
//     and messages are cut between runes, so what comes back from an API server
//     is what was sent.
//
// # Goroutines and locking
//
// The package starts no goroutine. Functions share nothing. A Manager may be used
// by any number of goroutines: writers wait for each other, readers for no writer's
// work, only while it puts the result in place. Observers and the function of [Manager.Update]
// run while other writers wait; they may read and must not write.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates.
//
//   - The terminal phase is sticky in the Manager as well, not in generation only,
//     and the merge rule that an ended pod is not Ready applies at once.
//   - What counts as previously known when a pod is terminated is what was said
//     last, not the API server's view alone, so that it holds for static pods.
//   - A deleted pod's unchanged status is no change. The kubelet forces one, to
//     wake its publisher; here [Manager.TerminatePod] is a change by itself.
//   - A refused status of an unknown pod comes back as it was given, not as zero.
//   - Ready with readiness gates looks at sidecars wherever it is computed.
//   - Started is inherited from the same container only, not from its predecessor.
//   - Only an end is ever a last termination, and the end of a container is not
//     shown as its own last termination after a back-off.
//   - A sidecar that exited with 0 and waits for its back-off says so.
//   - A container that must not run again is never shown as waiting to be.
//   - Init containers are matched to the spec by name, not by index.
//   - Which sandbox a container belongs to is told by their ages, because the
//     runtime's status does not say; the kubelet knows it from its list call.
//   - Resources are those of the spec, not those that the runtime enacts; statuses
//     of volume mounts are only carried over. AllContainersRestarting and the
//     resize conditions are carried over as they were.
//
// # Testing your code with it
//
// Nothing needs a fake: give [Generate] literal values, and a Manager a fake
// clock. An [Observer] that appends each [Change] to a slice records what a user
// would have seen.
package status
