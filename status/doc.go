// Package status computes, stores and publishes the Kubernetes API status of each pod of a
// node: its phase, its conditions and the statuses of its containers.
//
// # What it does
//
// [Generate] computes a [corev1.PodStatus] from the pod's spec, the pod's state in the
// runtime (a [podcache.Status]), the last reported status, the probe results and the reasons
// why containers are not started. Generate is a pure function: its input can be printed,
// replayed and tested without a node. These functions can be used alone: [Phase],
// [ContainerStatuses], the conditions ([ContainersReady], [Ready], [Initialized],
// [ReadyToStartContainers]), [Normalize], [Equal] and [CheckTransition].
//
// [Manager] stores the status of each pod. It ignores updates that change nothing, rejects
// illegal updates, preserves values that must never change back, and calls observers with
// every change, once and in order.
//
// [Publisher] publishes the statuses of a Manager to a [Sink]: an API server ([APIServer]),
// a [Store] from which the next process reads the statuses ([Saved]), or a function
// ([SinkFunc]). An agent that publishes no statuses needs no Publisher. [Merge] and [Patch]
// combine the status in an API server with the status that the node reports.
//
// # What you supply
//
// To Generate: the pod, and all other facts that are known. Each field of [Input] documents
// what an unset value means. To a Manager: nothing; a clock, a logger and an observer are
// optional. A sync of a pod then is
//
//	previous, _ := manager.GetPodStatus(pod.UID)
//	manager.SetPodStatus(pod, status.Generate(status.Input{
//		Pod: pod, Runtime: seen, RuntimeName: "containerd", Previous: previous, Now: clock.Now(),
//	}))
//
// To an APIServer: a function that returns a [PodClient] for a namespace; the pod client of
// client-go implements it. A caller that watches the API server calls, for each pod object,
//
//	api.RecordObject(pod.UID, pod)
//	publisher.Trigger(pod.UID)
//
// These calls avoid GET requests. They also make the Publisher correct a change by another
// writer at once, but not within ten seconds of the last correction. Without these calls, the
// Publisher corrects such a change at the pod's next change of status, or once per
// [PublisherConfig].Reconcile.
//
// # What it guarantees
//
//  1. A pod in phase Succeeded or Failed keeps that phase, whatever status is set, and is
//     never Ready.
//  2. A terminated container that must not run again stays terminated in the status.
//  3. A condition's transition time changes only with its status. A start time never
//     changes. The observed generation never decreases.
//  4. If a container was reported as running and no longer exists in the runtime, its status
//     shows a termination. Restart counts never decrease.
//  5. Each change increments the version of its pod's status. A status that is [Equal] to
//     the last status is not a change, unless the pod was deleted or terminated since then.
//  6. A restarted agent keeps reporting the last status until it has newer facts: see
//     [Input.Runtime] and [ProbeUnknown].
//  7. Inputs are never modified. Nil and incomplete CRI messages are tolerated.
//  8. The Publisher publishes the newest status of each pod. It runs only one publication of a
//     pod at a time, and the published versions never decrease. A pod whose publications fail
//     does not delay other pods. A publication that hangs occupies one worker until it times out.
//     Memory is limited by the number of pods.
//  9. A pod that has ended or is deleted is published first. The terminal phase of a pod is
//     not published while containers of the pod may still run. The pod object is deleted
//     only after its terminal phase is stored, and only if it has the same UID.
//  10. Without conflicts, the Publisher sends one PATCH for a change. For a pod that does not
//     exist in the API server, it sends one GET. It sends another GET if the status changes
//     during the first GET.
//  11. Texts are exact: reasons and messages are the kubelet's, and messages are cut
//     between runes, so that the status in the API server equals the status that was sent.
//
// # Goroutines and locking
//
// Functions share no state. A Manager is safe for concurrent use and starts no goroutines.
// Writers are serialised. Readers wait only while a writer stores a status, not while it computes
// the status. Other writers wait while an observer or the function of [Manager.Update] runs.
// Observers and that function may call reading methods, and must not call writing methods.
//
// Each call of Run, Sync or Flush of a Publisher runs at most [PublisherConfig].Workers
// publications at a time, and returns when these have ended. Run, Sync and Flush may run
// concurrently. Even then, a pod has only one publication at a time. The Publisher calls
// Publish of a sink without a lock held. It may call Forget while writers of the Manager wait,
// so Forget must not call writing methods of the Manager.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates. The package test/peer/status
// compares this package with the kubelet and names these differences. Each item begins
// with the behaviour of this package.
//
// Containers:
//
//   - After a back-off, the termination of a container is shown only as the state; the kubelet
//     also shows this termination as the last termination.
//   - The field LastTerminationState shows only terminations; the kubelet also shows a
//     predecessor there that is running, was only created or is in an unknown state.
//   - A container in an unknown state that was reported as terminated stays terminated; the
//     kubelet shows it as waiting from the second report on, as if it had never run.
//   - A container that was reported as lost and is still running is not counted as
//     restarted; the kubelet counts a restart.
//   - A container that must not run again is never shown as waiting; the kubelet shows it as
//     waiting in these cases: the runtime has removed it or does not know its state, or it is an
//     ephemeral container.
//   - In a pod that has ended, no container is shown as waiting for a restart; the kubelet
//     shows the last reason for the wait.
//   - A sidecar that exited with code 0 and waits for its back-off is shown as waiting; the
//     kubelet shows it as terminated.
//   - A container whose start was interrupted because the agent stopped is shown as created
//     and waiting; the kubelet shows it as failed with exit code 128.
//   - Termination messages are cut between runes; the kubelet cuts them at any byte, so
//     that the status in the API server differs from the status that was sent.
//   - Messages are valid UTF-8: a sequence of invalid bytes becomes one replacement
//     character; in the kubelet the JSON encoder replaces each byte.
//   - A read-only mount is shown as recursively read-only if the runtime reports this for the
//     mount; the kubelet derives this from what the runtime supports.
//   - A container's status has its volume mounts from the first report on; the kubelet
//     copies them from the previous status, so they stay missing if the previous status had
//     no volume mounts.
//   - This package does not show stop signals (KEP-4960), which are alpha and off by
//     default in the kubelet. It shows the health of devices (KEP-4680) if the caller
//     supplies the health in [Input].
//
// Readiness and startup:
//
//   - The previous value of Started is used only for the same container; the kubelet also
//     uses the value of the container's predecessor.
//   - Until a restarted agent has probed a container, the container's status stays as reported
//     before; the kubelet reports the container as started until the first probe.
//   - Until its readiness probe has a result, a container keeps its reported readiness; the
//     kubelet uses the readiness of the whole pod.
//   - A startup result updates Initialized at once, and also Ready of a container without a
//     readiness probe; in the kubelet both follow with the next sync.
//   - A probe result of a terminated container is ignored; the kubelet makes the container
//     ready.
//   - A terminated container is not ready; in the kubelet it stays ready if it was ready
//     when the pod was terminated and its exit was not observed.
//   - For a pod with readiness gates, Ready always depends on the sidecars too; the kubelet
//     ignores sidecars when it decides whether a pod needs a sync, so it syncs a pod with a
//     sidecar at every change.
//   - A changed readiness gate is used from the next probe result on; in the kubelet it is
//     used from the next sync on.
//
// The pod:
//
//   - A pod that has ended keeps its phase, reason and message in the Manager, whatever is
//     reported; in the kubelet only status generation keeps them.
//   - When a pod that has ended is reported, it becomes not Ready at once; the kubelet corrects
//     Ready only in the status that it sends to the API server.
//   - The transition time of Ready does not change after a pod has ended; if a pod is terminated
//     while it is ready, the kubelet changes this time in the API server with every tick.
//   - The phase depends on the current Started of a sidecar; in the kubelet it depends on
//     the value of Started in the previous sync.
//   - If the terminal phase in the API server differs from the phase on the node, reason
//     and message in the API server are kept; the kubelet loses them, or shows reason and
//     message of the other phase.
//   - When a pod is terminated, its containers are updated from the last reported status;
//     the kubelet uses the status in the API server, which is empty for a static pod.
//   - A restart of all containers is complete when no old container is left; in the kubelet the
//     restart continues while any container exists, so a restarted kubelet removes the containers
//     that it has already started.
//   - The condition AllContainersRestarting has the pod's generation like all other
//     conditions; the kubelet does not set the generation of this condition.
//   - The status shows only the pod-level resources that the spec sets; the kubelet shows the sum
//     of the containers' resources and the values of the pod's cgroup.
//   - A pod is Guaranteed only if the requests of each container equal its limits; the
//     kubelet compares the sums, so that a request above its limit may be compensated by
//     another request below its limit.
//   - While the node's addresses are unknown, the last reported addresses are kept; the
//     kubelet removes them from the status.
//   - A pod that has ended keeps its addresses when the agent is restarted; the kubelet
//     shows no addresses if the runtime reports none.
//   - A static pod that was terminated stays terminated when it is reported again; in the
//     kubelet it does not (kubernetes#116484).
//   - Init containers are matched to the spec by name; the kubelet matches them by index,
//     and rejects a status in which an init container is missing.
//   - The error of a rejected status names every container with an illegal transition; the
//     kubelet names only the first.
//   - For an unknown pod, SetPodStatus returns a rejected status unchanged; the kubelet
//     returns an empty status.
//   - Resize conditions are set only by the Manager and take effect at once; in the kubelet
//     they take effect with the next status that is not rejected.
//   - A resize condition keeps its times when the agent is restarted; in the kubelet they
//     are reset.
//   - The deletion of a pod is one change; the kubelet forces a change at every report of a
//     deleted or terminated pod, to wake its publisher.
//
// Publication:
//
//   - A terminal phase in the API server is not overwritten with another phase; the kubelet
//     sends the other phase again and again, and the API server rejects each attempt.
//   - A status whose terminal phase was not published yet is sent again soon; the kubelet
//     sends it again with its next tick.
//   - A failed deletion is retried after a back-off; the kubelet retries it with its next
//     tick.
//   - A change by another writer is corrected when the agent has received it; the kubelet
//     gets the object before each PATCH.
//   - A patch is sent only if a value changes; the kubelet also sends one if only the order
//     of conditions differs.
//   - Publication does not change the reported status; in the kubelet the time of a
//     DisruptionTarget condition becomes the time of the publication.
//   - Statuses are published concurrently, without a GET and with the resource version as a
//     precondition; the kubelet has one loop, a GET before each PATCH, and only the UID as
//     a precondition. Here each pod has its own back-off, which honours Retry-After.
//   - For a pod that does not exist in the API server the Publisher sends one GET; the
//     kubelet sends a GET at every tick (kubernetes#139020). A 404 from a server that is
//     not an API server does not mean that the pod does not exist.
//   - The publication latency is measured for each version of a status; the kubelet
//     measures it for each pod (kubernetes#107896).
//   - This package has a tick only if [PublisherConfig].Reconcile is set; the kubelet has a
//     tick every ten seconds. Without a tick, the caller watches the API server and reports
//     changes by other writers. A tick compares each pod and sends a request only if there is a
//     difference.
//
// # Testing your code with it
//
// No fakes are needed: call [Generate] with literal values, and use a fake clock for a
// Manager. An [Observer] can record each [Change], and a [SinkFunc] each publication.
// [Publisher.Sync] does one pass, and returns when the pass is done.
package status
