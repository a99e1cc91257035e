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
// ([APIServer]), a [Store] from which the next process reads on ([Saved]), or a
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
//  5. Each change has the next version of its pod. A status that is [Equal] to the
//     last one is no change.
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
//  10. In the good case a change is one PATCH. A pod that is gone is asked for once, and
//     once more if its status changed during that call.
//  11. All of this is exact in bytes too: reasons and messages are the kubelet's,
//     and messages are cut between runes, so what comes back from an API server
//     is what was sent.
//
// # Goroutines and locking
//
// Functions share nothing. A Manager may be used by any number of goroutines and
// starts none. Writers wait for each other. Readers don't wait while a writer computes,
// only while it stores the result. Observers and the function of
// [Manager.Update] run while other writers wait; they may read and must not write.
//
// A Publisher's Run, Sync and Flush start at most as many goroutines as it has
// workers, and return when these have ended. They may run side by side: no pod is
// then published twice at a time. Publish of a sink is called with no lock held. Forget may be called
// while the Manager's writers wait, and must not write to it.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates. The package test/peer/status
// compares the two and names these differences.
//
// Containers:
//
//   - The end of a container is not shown as its own last termination after a back-off; the
//     kubelet shows it in both places.
//   - Only an end is ever a last termination; the kubelet shows a predecessor that runs, was
//     only created or is in an unknown state as one.
//   - A container in an unknown state that was reported as terminated stays so; the kubelet
//     shows it as waiting from the second time on, as if it had never run.
//   - A container that was reported as lost and runs after all has not been restarted; the
//     kubelet counts a restart.
//   - A container that must not run again is never shown as waiting to be; the kubelet shows
//     it so where the runtime has removed it or does not know its state, and where it is an
//     ephemeral one.
//   - In a pod that has ended, no container is shown as waiting to be started again; the
//     kubelet shows the last reason for it.
//   - A sidecar that exited with 0 and waits for its back-off says so; the kubelet shows it as
//     terminated.
//   - A container whose start was broken off with its agent is shown as created and waiting;
//     the kubelet shows it as failed with 128.
//   - Termination messages are cut between runes; the kubelet cuts them at any byte, so that
//     what the API server shows differs from what was sent.
//   - Messages are valid UTF-8: a run of other bytes becomes one replacement character; the
//     kubelet leaves them to JSON, which replaces each byte.
//   - Whether a mount is recursively read-only is what the runtime reports of the container;
//     the kubelet reports what the runtime should be able to do.
//   - A container's status has its volume mounts from the first time; the kubelet copies them
//     from the status before, and so leaves them out for ever where that had none.
//   - Stop signals (KEP-4960), alpha and off by default, are not shown. The health of devices
//     (KEP-4680) is shown if the caller supplies it in [Input].
//
// Readiness and startup:
//
//   - Whether a container has started is taken over from the same container only; the kubelet
//     takes it over from its predecessor too.
//   - Until a new agent has probed a container, it stays as it was reported before; the
//     kubelet takes one for started until it has begun to probe.
//   - Until its readiness probe has a result, a container is as ready as it was reported to
//     be; the kubelet judges by whether the pod was ready as a whole.
//   - A startup result decides Initialized at once, and Ready of a container without a
//     readiness probe; in the kubelet both follow with the next sync.
//   - A probe result of a container that has ended counts for nothing; the kubelet makes the
//     container ready.
//   - A container that has ended is not ready; the kubelet's stays so if it was when the pod
//     was terminated without it.
//   - Ready with readiness gates looks at sidecars wherever it is computed; the kubelet leaves
//     them out when it decides whether a pod needs a sync, and so syncs one with a sidecar at
//     every change.
//   - A readiness gate that has changed counts for the next probe result; in the kubelet it
//     counts from the next sync on.
//
// The pod:
//
//   - A pod that has ended keeps its phase, reason and message in the Manager, whoever
//     reports; in the kubelet only in status generation.
//   - A pod that has ended is not Ready from the moment that it is reported; the kubelet takes
//     that back only in what it sends to the API server.
//   - The transition time of Ready stands still once a pod has ended; where a pod is
//     terminated while it is ready, the kubelet moves it in the API server with every tick.
//   - The phase heeds whether a sidecar has started at once; the kubelet's is of one sync
//     before.
//   - Where the API server shows another end than the node has seen, reason and message are
//     those of that end; the kubelet loses them, or shows those of the other one.
//   - What a pod had done when it is terminated is judged by what was reported last; the
//     kubelet judges by what the API server shows, which for a static pod is nothing.
//   - A restart of all containers is over when no old one is left; the kubelet's goes on while
//     there is any, and so takes down those that it had started before it died.
//   - The condition AllContainersRestarting has the pod's generation like all others; the
//     kubelet leaves it out.
//   - Resources of the pod as a whole are those of its spec, and missing where the spec has
//     none; the kubelet adds up the containers' and shows what the pod's cgroup has.
//   - A pod is Guaranteed only if each container requests its limits; the kubelet adds all
//     up first, so that a request above its limit may make up for another below.
//   - The node's addresses, where they are not known for a while, stay as they were reported
//     last; the kubelet removes them from the status.
//   - The addresses of a pod that has ended stay when the agent starts again; the kubelet
//     shows none where the runtime reports none.
//   - A static pod that was terminated stays so when it is reported again; the kubelet
//     forgets it (kubernetes#116484).
//   - Init containers are matched to the spec by name; the kubelet matches them by index, and
//     refuses a status that lacks one of them.
//   - A status is refused with every container that may not change so; the kubelet names the
//     first.
//   - A refused status of an unknown pod is returned as it was given; the kubelet returns an
//     empty one.
//   - Resize conditions are the Manager's alone and are shown at once; in the kubelet they are
//     shown with the next report that is not refused.
//   - A resize condition keeps its times when the agent starts again; in the kubelet they
//     begin anew.
//   - That a pod is deleted is one change; the kubelet forces one at every report of a
//     deleted or terminated pod, to wake its publisher.
//
// Publication:
//
//   - An end that the API server has is not sent over by another phase; the kubelet sends it,
//     and the API server refuses it again and again.
//   - A status of which the end was held back is sent again soon; the kubelet sends it again
//     with its next tick.
//   - A deletion that failed is tried again after a back-off; the kubelet tries it again with
//     its next tick.
//   - A change by others that the agent has not seen is put right when it is seen; the
//     kubelet gets the object before each PATCH.
//   - A patch is sent only if it changes something; the kubelet also sends the order of
//     conditions alone.
//   - What is reported of a pod does not change by sending it; in the kubelet the time of a
//     DisruptionTarget condition becomes that of the call.
//   - Statuses are published side by side, without a GET and with the resource version as a
//     precondition; the kubelet has one loop, a GET before each PATCH and the UID alone.
//     Failures back off by pod and honour Retry-After.
//   - A pod that the API server does not have is looked for once; the kubelet looks for it at
//     every tick (kubernetes#139020). A 404 of something other than an API server does not
//     count.
//   - The publication latency is that of a version; the kubelet's is that of the pod
//     (kubernetes#107896).
//   - There is no tick unless [PublisherConfig].Reconcile asks for one: the caller, who
//     watches the API server, reports what others change. A tick looks at each pod and calls
//     the API server only if that differs.
//
// # Testing your code with it
//
// Nothing needs a fake: give [Generate] literal values, and a Manager a fake
// clock. An [Observer] that appends each [Change] to a slice records what a user
// would have seen; a [SinkFunc] does so for what would have been published, and
// [Publisher.Sync] is a pass without a goroutine to wait for.
package status
