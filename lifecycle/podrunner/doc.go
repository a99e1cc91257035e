// Package podrunner runs pods in a CRI runtime: it changes a pod's sandbox and
// containers until they match the pod's spec. Its counterpart in the kubelet is
// kuberuntime. Without this package, every other node agent would have to
// implement the same logic again.
//
// # What it does
//
// [Plan] is a pure function that computes [Actions] from a pod's spec and the
// pod's state in the runtime. Actions contain the sandbox to create, and the
// containers to kill, remove, resize and start, each with a reason. They also
// contain the reasons why other containers wait. Plan handles init containers,
// sidecars, regular and ephemeral containers, restart policies and rules,
// failed probes, and changed definitions and resources. [Actions.String]
// explains the actions.
//
// [Runner] carries out plans on a runtime and implements podworker.Syncer.
// SyncPod prepares what the pod needs on the node and carries out one plan. The
// terminating syncs run preStop hooks, stop all containers by the deadline of
// the sync, sidecars last, and then verify that the containers have stopped.
// SyncTerminatedPod releases what was prepared for the pod on the node, and
// [Runner.RemovePod] removes everything else of the pod. [Runner.Restart] requests
// that the next sync starts all containers of the pod again in a new sandbox.
//
// [SandboxConfig] and [ContainerConfig] are pure functions that convert a spec
// to CRI messages. [Admit] and [Runner.Unsupported] return why a pod must be
// rejected as a whole. [TerminationMessage] returns the termination message of
// a container.
//
// # What you supply
//
// You supply the runtime as two small interfaces, and as a third interface for
// resizing in place; cri.RuntimeService implements all three. You also supply
// an images.Manager and a function that reads the current state of one pod
// (Refresh), which pleg and podcache provide. The last required part is the
// agent's name: every sandbox and container has this name as the value of the
// label io.kubeparts.agent.
//
// All other parts are optional: volumes (volumes.Manager), cgroups of pods
// (cgroups.Cgroupfs), hooks (lifecycle.HookRunner), user IDs ([IDRanges]), a
// directory for hosts files, termination messages and sub-paths, the settings
// of pods ([Policy]), facts about the node ([Facts]), resources that allocators
// add to containers (resources.Combine), and probe results. If a part is
// missing, [Runner.Unsupported] names the fields of a pod that need this part.
// Without a log directory ([Config].LogRoot) containers run without logs.
// Labels, annotations and log files have the kubelet's names and formats, so
// that crictl, log shippers and a kubelet recognize them.
//
// # What it guarantees
//
//  1. Plan depends only on its input and modifies nothing.
//  2. A running container that matches its spec keeps running, unless its
//     liveness or startup probe fails, its sandbox can't be used any more, or
//     its pod ends or restarts as a whole. An agent that starts while pods run
//     adopts these pods, and their restart counts continue. It also adopts
//     containers that a kubelet created.
//  3. If the runtime has an instance of a container, the restart count of the
//     next instance is one more than the count of the newest instance.
//     Otherwise it is one more than the highest count in the names of the
//     container's log files. No container is started twice with the same count.
//     If a container was created but not started, it is started and not created
//     again. An ephemeral container is started only once.
//  4. A changed container is replaced even if the policy is Never, but only
//     when its new image is present and its configuration is complete; until
//     then the old container keeps running. A container that is no longer in
//     the spec is stopped and removed. A container that has ended is restarted
//     only if its policy or rules require this, and only after its back-off.
//  5. An init container starts only after all init containers before it have
//     succeeded or, if they are sidecars, have started. Regular containers
//     start only when this is true of all init containers. A pod has ended when
//     all its regular containers have ended and none of them will restart, or
//     when an init container has failed and will not restart. The Runner then
//     stops the sidecars in reverse order.
//  6. A restart of all containers is always completed. Even if removals fail,
//     or containers end or are removed meanwhile, all old containers are
//     removed before the first container starts again. A restarted agent
//     recognizes an unfinished restart by the pod's condition
//     AllContainersRestarting. Ephemeral containers keep running.
//  7. During a resize in place, the limits of the pod are never lower than the
//     sum of its containers' limits. Only containers whose resize policy
//     requires a restart are restarted. Plan compares the spec with the
//     requests and limits that were enforced last ([Runner.Enforced]), not with
//     the values in the runtime. If [Config.State] is set, the enforced
//     requests and limits survive a restart of the agent.
//  8. The Runner stops and removes only sandboxes and containers in the pod's
//     status. The component that creates the status, such as pleg, decides
//     which of them belong to the agent (pleg.Config.LabelSelector).
//  9. The Runner prepares a pod's user IDs, cgroup and volumes before it
//     creates the sandbox. It releases them in reverse order when no container
//     and no sandbox of the pod runs any more. If a step fails, the sync
//     returns an error and must be repeated. Only one goroutine cleans up a pod
//     at a time. When RemovePod has succeeded, nothing of the pod is left on
//     disk, in mounts, in cgroups or in the runtime. [Runner.Leftovers] returns
//     all pods that have files on the node, also running pods, so that a
//     starting agent finds the pods that an earlier agent has not removed.
//  10. The termination of a pod has one deadline for hooks, waiting and stops.
//     If the deadline becomes earlier, the new deadline also applies to hooks
//     and stops in progress. A preStop hook that has ended is not run again for
//     the same container. If [Config.State] is set, the deadline and the list
//     of ended hooks survive a restart of the agent. The Runner stores the
//     deadline before it stops the first container and whenever the deadline
//     changes. It deletes the record when it releases the pod, or when the pod
//     must run again.
//  11. A terminating sync succeeds only if the runtime's current state shows
//     that nothing of the pod runs. If something still runs, the error is
//     [ErrStillRunning].
//  12. A container that can't be started delays only the containers that must
//     start after it. [Runner.Waiting] returns, for each container that waits,
//     the reason that the kubelet's status would show.
//  13. The Runner starts no container, and removes no container or sandbox, on
//     the basis of a stale status. Containers and sandboxes that end soon after
//     their start are started again only after a back-off, even if the
//     runtime's clock is behind.
//  14. Neither a name in a manifest nor a symbolic link can lead the Runner out
//     of its directories for logs and files. If a container can write to a
//     file, such as its log, the Runner reads the file only if it is a regular
//     file in the pod's own directory, and never through a link. The Runner
//     never opens pipes and devices.
//  15. An image is protected from garbage collection from its pull until its
//     container is created.
//  16. A container gets everything that [Config].Inject returns for it; if
//     Inject returns an error, the container is not created. If Inject returns
//     other CPUs or memory nodes for a running container, the sync assigns
//     these to the container. If the change fails, a later sync tries again.
//  17. To start a pod, the Runner calls RunPodSandbox and PodSandboxStatus
//     once, and ImageStatus, CreateContainer and StartContainer for each
//     container. It calls no list method. If the pod has requests or limits,
//     the Runner stores them in one small record, and stores this record again
//     for each container. To terminate a pod, it stores one small record, and
//     stores this record again when the deadline changes or a hook has ended.
//
// # Goroutines and locking
//
// A Runner has no background goroutines. A sync starts goroutines, for example
// to stop several containers at once, or to pull images while the sandbox is
// created. Each call waits for its goroutines before it returns. Syncs of
// different pods may run concurrently; syncs of the same pod may not.
// [Config.ParallelStarts] limits how many pods start at the same time. Every
// sync takes a context. A cancelled sync waits up to 5 s for a call of
// StartContainer that is in progress. It may leave work unfinished; the next
// plan detects and completes this work.
//
// # Differences from the kubelet
//
//   - Every action has a reason, and the plan is a value that can be printed,
//     tested and replayed.
//   - A pod that only the runtime knows is stopped within the grace period that
//     is stored on its containers, not within one second, and its hooks run.
//   - A postStart hook has a deadline, [Config.PostStartTimeout]. If a hook is
//     cancelled because its pod ends, its container does not count as failed.
//   - A preStop hook that has ended is not run a second time by a repeated
//     sync.
//   - A pod that was terminating when the agent was killed does not get its
//     whole grace period again, although a pod from a manifest has no deletion
//     timestamp. The stored record can only make the deadline earlier: a record
//     that is missing, damaged (an error is logged) or in the far future leaves
//     the grace period as it is. The record contains wall-clock time, from
//     which a starting agent computes the remaining time. If the clock was set
//     back meanwhile, the pod gets at most its grace period once more. If the
//     clock was set forward, the pod gets the minimum of 2 s. The record is not
//     synced to disk, because a crash of the machine ends the pod too.
//   - A preStop hook does not run for a container that completes or crashes, as
//     in the kubelet (kubernetes#55807).
//   - If an agent is killed while it starts a container, the kubelet counts the
//     container as exited with code 128. Here the container has not failed, and
//     the same attempt is made again.
//   - The file of a container's termination message is named by its restart
//     count, so that it can be found and removed; the kubelet names it at
//     random and keeps it as long as the pod (kubernetes#106735). This package
//     removes the file of an instance when it creates the file of a later
//     instance and the runtime no longer has the earlier instance.
//   - If volumes can't be mounted, or if the sandbox can't be created because
//     of the pod's spec, the status of the containers shows it, not only an
//     event as in the kubelet. In such a sync, no image of the pod is pulled,
//     and no sandbox and no container is created.
//   - A failed mount of volumes is tried again after half a second, one second
//     and so on, up to ten seconds. In the kubelet, the delays grow up to two
//     minutes.
//   - While the network of the runtime is not ready, only the creation of a
//     sandbox waits, and the status of the containers shows the reason. The
//     kubelet also restarts no container of a pod that has a sandbox.
//   - In each sync that starts no container and creates no sandbox, the
//     contents of the pod's volumes are updated.
//   - For the kubelet, the newest instance of a container is the one with the
//     latest creation time; for this package it is the instance with the
//     highest restart count, because clocks may be set back
//     (kubernetes#134153).
//   - A sandbox that ends soon after its creation is created again with the
//     restart back-off; the kubelet creates it again at once. With
//     restartPolicy Never, a container that had not been created when the
//     sandbox ended is started in the new sandbox; the kubelet leaves the pod
//     Pending for ever.
//   - This package stops containers that are no longer in the spec, and second
//     instances of one name; the kubelet checks only the newest instance of
//     each name in the spec. The replacement of a changed container is prepared
//     before the old container is stopped.
//   - Images of one pod are pulled concurrently, and while its sandbox is
//     created.
//   - Only a few pods are started at the same time, not all at once: of 50 pods
//     on two processors, the last pod runs no later than in the kubelet, and
//     half of the pods run much earlier.
//   - If an ephemeral container is no longer in the runtime, the kubelet starts
//     it again; this package recognizes by its log that the container has run.
//   - The kubelet lets an ephemeral container share the process namespace of a
//     target that has ended, even in a removed sandbox, which runtimes refuse;
//     here the ephemeral container fails until the target runs.
//   - A restart of all containers (KEP-5532) backs off like any other restart;
//     during the back-off all containers of the pod are stopped.
//   - A resize that would change the pod's QoS class is not carried out, and
//     the plan reports it.
//   - The kubelet's hash of a container's definition covers its name and image;
//     the hash of this package covers everything except resources and the
//     resize policy, because pods from files may change in other ways.
//     Containers have both hashes; the second is the annotation
//     io.kubeparts.container.definition.
//   - The kubelet replaces a container that has no hash; this package does not
//     touch it, because another agent created it.
//   - The kubelet's restart back-off grows with each attempt to start a
//     container; here it grows with each instance that was created.
//   - After a new sandbox was created, the kubelet does not know when the init
//     containers of the old sandbox ended, and starts the new init containers
//     at once; this package applies the back-off.
//   - If a container was created but not started, the kubelet creates another
//     instance after the back-off; if it is an ephemeral container, the kubelet
//     never starts it. This package starts the existing instance at once, with
//     its restart count.
//   - The kubelet forgets a container's back-off ten minutes after its last
//     start, even if the container has ended since and still waits; here the
//     container waits until the back-off ends.
//   - If a container requests no CPU and gets its limit from the pod, the
//     kubelet computes its CPU shares from that limit when it creates the
//     container, and sets the minimum when it resizes the container; here the
//     shares are always computed from the limit.
//   - The kubelet resizes no container while an init container of the pod backs
//     off; this package resizes containers then too, because a container that
//     can't be started does not delay other containers.
//   - The kubelet resizes a pod's cgroup only together with a running
//     container, so a pod whose limits were raised while its containers were
//     down keeps the old limits. This package resizes the cgroup whenever its
//     limits differ from the spec.
//   - If an init container without a limit comes after a sidecar with a limit,
//     the kubelet counts the init container as if it had the sidecar's limit,
//     and so limits the pod as a whole. This package does not limit a pod in
//     which a container has no limit.
//   - The kubelet resets the restart back-off of a container when its image or
//     resources change; this package resets it when anything of its definition
//     changes.
//   - Here a pod has not ended while a container runs that should not run; that
//     container is stopped first. The kubelet stops the pod together with that
//     container.
//   - When all regular containers of a pod have ended for good, the kubelet's
//     plan continues with its init containers and sidecars until the pod's
//     phase is terminal; this package stops the pod.
//   - The kubelet checks only the init container that was started last. Here a
//     pod has ended when any of its init containers has failed for good, also
//     an init container of an earlier sandbox; in the kubelet the pod's phase
//     decides this.
//   - The kubelet removes init containers that have ended, and leaves other
//     dead containers and sandboxes to its garbage collection. A plan of this
//     package removes all dead instances of a container except the two newest.
//     It also removes replaced sandboxes without containers.
//   - The kubelet does not lower a memory limit below the memory that is in
//     use; this package does not check how much memory is in use.
//   - In the kubelet, a container that was created but did not run when the
//     pod's limits were resized keeps the old limits; this package resizes the
//     container when it runs.
//   - If a container inherits new limits from its pod, the kubelet sets the
//     container's CPU limit together with its memory limit, and again with the
//     other CPU values; this package sets each limit once.
//   - The kubelet reports the CPU limit and the CPU shares of a resized pod to
//     the runtime in two calls; this package uses one call.
//   - If CPU quotas are disabled, the kubelet sets and reports the configured
//     quota period for a pod with a CPU limit; this package leaves the kernel's
//     default.
//   - If a limit of a pod is removed, the kubelet leaves the old limit in the
//     pod's cgroup; this package removes it there too.
//   - The kubelet treats a missing limit of a pod as the lowest limit, and so
//     limits the pod before its containers shrink; this package treats a
//     missing limit as the highest limit.
//   - If a pod has no limit of memory or CPU, the kubelet subtracts the pod's
//     overhead from the number that means "no limit" when it reports the pod to
//     the runtime; this package reports no limit.
//   - When all containers are restarted, the kubelet's event for each stopped
//     container reads "killing"; the event of this package has the cause.
//   - When all containers are restarted, the kubelet also stops containers that
//     were created but not started; this package only removes such containers.
//   - If the runtime does not report the namespaces of a sandbox, the kubelet
//     creates the sandbox of a pod in the host's network again and again; this
//     package uses the sandbox.
//   - When the kubelet creates a pod's sandbox again and the pod has no init
//     containers, it starts a container that has ended and must not restart by
//     its own policy, and does not start a container that must restart by its
//     rules after exit code 0. This package always follows policy and rules.
//   - If the sandbox of a pod with restartPolicy Never was removed from the
//     runtime, the kubelet runs all its containers again; this package runs
//     only the containers that had never been created.
//   - If containers of an earlier sandbox could not be stopped or removed, the
//     kubelet treats them as containers of the current sandbox; this package
//     does not.
//   - The kubelet stops the dead sandboxes of an ended pod in each sync; this
//     package stops them only while a part of the pod runs.
//   - When the kubelet stops a pod, it does not stop containers in an unknown
//     state, which continue to run if their sandbox does not exist; this
//     package stops them.
//   - After the kubelet has stopped a pod because the pod has failed, it still
//     starts a new ephemeral container in the pod's sandbox; this package does
//     not.
//   - The kubelet can't stop a pod in which a container runs that is no longer
//     in the spec; this package stops such a pod.
//   - A cancelled pull is not a failure of the image and starts no back-off.
//   - The limits of the pod's cgroup are set once after the whole resize, and
//     also before the resize if a limit grows. The kubelet sets them resource
//     by resource.
//   - Each sandbox and container has the label io.kubeparts.agent with the
//     agent's name, because an agent touches only what it created. The kubelet
//     sets no such label.
//   - If a sandbox can't be created because of the pod's spec, the event names
//     every problem; the kubelet's event names the first.
//   - The kubelet maps only the ports of regular containers, and ignores a host
//     port of a sidecar; this package also maps the host ports of sidecars.
//   - The kubelet warns about a pod's resolv.conf in each sync, even if it
//     starts nothing or if no sandbox can be created; this package warns only
//     when it creates a sandbox.
//   - In the sync that creates a pod's sandbox the kubelet writes all addresses
//     of the pod into the hosts file, in the runtime's order. Later it writes
//     the first of each family, as in the status. This package always writes
//     only the first address of each family.
//   - If a container requests huge pages of a size that the node does not have,
//     it fails with an error that names the resource; the kubelet starts the
//     container without huge pages of this size.
//   - The kubelet checks and pulls the images of all volumes of a pod in each
//     sync, even if nothing starts; this package does this only for images that
//     a starting container mounts.
//   - If a pod has a group but no user, the kubelet sends the group with its
//     sandbox, although the CRI requires runtimes to refuse that; this package
//     does not send the group.
//   - After the sandbox was created, the kubelet sends the names of sysctls as
//     they are in the pod, with slashes; this package always sends them with
//     dots.
//   - In a pod that mounts an image, the kubelet sends the subPath of any other
//     mount also as the sub-path of an image; this package sends a sub-path of
//     an image only for images.
//   - If a pod has a subdomain and the node has no cluster domain, the pod's
//     full name in the kubelet's hosts file and hostname ends with a dot; this
//     package adds no dot.
//   - For the restart count, the kubelet counts every file in a container's log
//     directory whose name begins like the name of a log, such as 8.logs; this
//     package counts only logs and rotated logs.
//   - If a container has limits of huge pages, the kubelet sends zero for these
//     limits with each change of CPU or memory; this package sends the
//     container's limits.
//   - The kubelet sends zero for a limit that was removed, so the runtime keeps
//     the old limit and the status still shows it. This package sends -1, which
//     removes the limit.
//   - If the environment, command and arguments of a container are longer than
//     Linux permits (6 MiB together, including values that later variables of
//     the same name replace), the container waits with
//     CreateContainerConfigError. The kubelet creates the container, and the
//     runtime fails.
//   - The kubelet follows links to a container's log and to its termination
//     message, and opens any file to which these lead; this package reads only
//     regular files in the pod's own directories.
//   - A pod with a field that this package does not support, such as a variable
//     from a file (KEP-3721), is rejected as a whole by [Runner.Unsupported];
//     the kubelet starts it.
//   - The kubelet changes the cpusets of running containers every 10 s, except
//     the cpusets of ephemeral containers, and always once after a restart.
//     This package changes the cpusets of all containers in each sync, and
//     after a restart only if the runtime shows other values.
//   - If a pod requests an extended resource that the node does not list, the
//     pod is rejected; the kubelet ignores the request.
//   - Not implemented: dynamic resources, block volumes, files as sources of
//     variables (KEP-3721), Windows. [Runner.Unsupported] names them.
//   - The kubelet writes checkpoints of containers with the code that starts
//     them. Here package agent/kubeletapi writes them.
//
// # Testing your code with it
//
// Tests of Plan need no fake. To test a Runner, use a fakecri.Node as the
// runtime, with an images.Manager on the same node.
package podrunner
