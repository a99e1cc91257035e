// Package podrunner runs pods in a CRI runtime: it changes a pod's sandbox and
// containers until they match the pod's spec. Its counterpart in the kubelet is
// kuberuntime. Without this package, every node agent except the kubelet would
// have to implement the same logic again.
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
// terminating syncs run preStop hooks, and stop all containers by the deadline
// of the sync, with sidecars last. They then verify that the containers have
// stopped. SyncTerminatedPod releases what was prepared for the pod on the
// node, and [Runner.RemovePod] removes everything else of the pod.
// [Runner.Restart] requests that the next sync starts the pod's containers
// again in a new sandbox, except ephemeral containers.
//
// [SandboxConfig] and [ContainerConfig] are pure functions that convert a spec
// to CRI messages. [Admit] and [Runner.Unsupported] return why a pod must be
// rejected as a whole. [TerminationMessage] returns the termination message of
// a container.
//
// # What you supply
//
// You supply the runtime as two small interfaces; cri.RuntimeService implements
// both. You also supply an images.Manager, and a function that reads the
// current state of one pod (Refresh): pleg and podcache provide this function.
// The last required part is the agent's name. The Runner sets the name as the
// label io.kubeparts.agent of every sandbox and container.
//
// All other parts are optional:
//   - volumes (volumes.Manager)
//   - cgroups of pods (cgroups.Cgroupfs)
//   - hooks (lifecycle.HookRunner)
//   - user IDs ([IDRanges])
//   - a directory for hosts files, termination messages and sub-paths
//   - the settings of pods ([Policy])
//   - facts about the node ([Facts])
//   - resizing in place ([Resizer]); cri.RuntimeService implements this too
//   - resources that allocators add to containers (resources.Combine)
//   - probe results
//
// If a part is missing, [Runner.Unsupported] names the fields of a pod that
// need this part. Without a log directory ([Config].LogRoot) containers run
// without logs. Labels, annotations and log files have the kubelet's names and
// formats, so that crictl, log shippers and a kubelet recognize them.
//
// # What it guarantees
//
//  1. Plan depends only on its input and modifies nothing.
//  2. A running container that matches its spec is stopped only if its liveness
//     probe, startup probe or postStart hook fails, if its sandbox can't be
//     used any more, or if its pod ends or restarts as a whole. An agent that
//     starts while pods run adopts these pods, and their restart counts
//     continue. It also adopts containers that a kubelet created.
//  3. If the runtime has an instance of a container, the restart count of the
//     next instance is one more than the count of the newest instance.
//     Otherwise it is one more than the highest count in the names of the
//     container's log files. No container is started twice with the same count.
//     If a container was created but not started, and its definition has not
//     changed, the Runner starts the existing container and does not create
//     another. An ephemeral container is started only once.
//  4. If the definition of a regular container or a sidecar has changed, the
//     Runner replaces the container, even if the policy is Never. It stops the
//     old container only when the new image is present and the new
//     configuration is complete. A container that is no longer in the spec is
//     stopped and removed. A container that has ended is restarted only if its
//     policy or rules require this or [Runner.Restart] was called, and only
//     after its back-off.
//  5. An init container starts only after all init containers before it have
//     succeeded or, if they are sidecars, have started. Regular containers
//     start only when this is true of all init containers. A pod has ended when
//     all its regular containers have ended and none of them will restart. It
//     has also ended when an init container has failed and will not restart.
//     The Runner then stops the sidecars in reverse order.
//  6. A restart of all containers is always completed: all old containers are
//     removed before the first container starts again. This also holds if
//     removals fail, or if containers end or are removed meanwhile. A restarted
//     agent recognizes an unfinished restart by the pod's condition
//     AllContainersRestarting. Ephemeral containers keep running.
//  7. During a resize in place, the limits of the pod are never lower than the
//     sum of its containers' limits. Only containers whose resize policy
//     requires a restart are restarted. Plan compares the spec with the
//     requests and limits that were enforced last ([Runner.Enforced]). If these
//     are unknown, Plan uses the values in the runtime instead. If
//     [Config.State] is set, the enforced requests and limits survive a restart
//     of the agent.
//  8. The Runner stops and removes only sandboxes and containers in the pod's
//     status. The component that creates the status, such as pleg, decides
//     which of them belong to the agent (pleg.Config.LabelSelector).
//  9. The Runner prepares a pod's user IDs, cgroup and volumes before it
//     creates the sandbox. It releases them in reverse order when no container
//     and no sandbox of the pod runs any more. If a step fails, the sync
//     returns an error and must be repeated. Only one goroutine cleans up a pod
//     at a time. When RemovePod has succeeded, nothing of the pod is left in
//     mounts, in cgroups or in the runtime, and nothing on disk except links in
//     [Config].ContainerLogs. [Runner.Leftovers] returns all pods that have
//     volumes or files below [Config].RootDir, including running pods. So a
//     starting agent finds the pods that an earlier agent has not removed.
//  10. The termination of a pod has one deadline. It limits the preStop hooks,
//     the waiting for containers to exit, and the stops. If the deadline
//     becomes earlier, the new deadline also applies to hooks and stops in
//     progress. A preStop hook that has ended is not run again for the same
//     container. If [Config.State] is set, the deadline and the list of ended
//     hooks survive a restart of the agent. The Runner stores the deadline
//     before it stops the first container and whenever the deadline changes. It
//     deletes the record when it releases the pod, or when the pod must run
//     again.
//  11. A terminating sync succeeds only if the runtime's current state shows
//     that nothing of the pod runs. If something still runs, the error is
//     [ErrStillRunning].
//  12. A container that can't be started delays only the containers that must
//     start after it. [Runner.Waiting] returns, for each container that waits,
//     the reason that the kubelet's status would show.
//  13. If the status of a pod is stale, the Runner starts no container, and
//     removes no container or sandbox. If a container or sandbox ends soon
//     after its start, it is started again only after a back-off. This also
//     holds if the runtime's clock is behind.
//  14. A name in a manifest, or a symbolic link, can't lead the Runner out of
//     its directories for logs and files. Containers can write to some files,
//     such as their logs. The Runner reads such a file only if it is a regular
//     file in the pod's own directory. It never reads the file through a link,
//     and never opens pipes and devices.
//  15. An image is protected from garbage collection from its pull until its
//     container is created.
//  16. A container gets everything that [Config].Inject returns for it. If
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
// to stop several containers concurrently, or to pull images while the sandbox
// is created. Each call waits for its goroutines before it returns. Syncs of
// different pods may run concurrently; syncs of the same pod may not.
// [Config.ParallelStarts] limits how many pods start at the same time. Every
// sync takes a context. A cancelled sync waits up to 5 s for a call of
// StartContainer that is in progress. A cancelled sync may leave work
// unfinished; the next plan contains this work.
//
// # Differences from the kubelet
//
//   - Here every action has a reason, and the plan is a value that can be
//     printed, tested and replayed. The kubelet has reasons only for the
//     containers that it kills.
//   - A pod that only the runtime knows has no spec. Here its containers get
//     the grace period that is stored in their annotations, and its preStop
//     hooks run. In the kubelet, no hooks run, and the containers get two
//     seconds.
//   - Here a postStart hook has a deadline, [Config.PostStartTimeout]; the
//     kubelet does not limit its duration. If the agent cancels the hook
//     because the pod ends, this package does not count the container as
//     failed.
//   - If a sync is repeated, the kubelet runs the preStop hooks again. This
//     package does not repeat a hook that has ended.
//   - A kubelet that is killed while a pod terminates gives the pod its whole
//     grace period again after its restart. Here a restarted agent continues
//     with the deadline. It reads the deadline from a record, because a pod
//     from a manifest has no deletion timestamp. If the record is missing or
//     damaged, or its deadline is in the far future, the pod gets its whole
//     grace period. A damaged record is logged as an error. The deadline in the
//     record is a wall-clock time, from which a starting agent computes the
//     remaining time. If the clock was set back meanwhile, the pod gets at most
//     its grace period once more. If the clock was set forward, the pod gets
//     the minimum of 2 s. The record is not synced to disk, because a crash of
//     the machine ends the pod too.
//   - A preStop hook does not run for a container that completes or crashes, as
//     in the kubelet (kubernetes#55807).
//   - If an agent is killed while it starts a container, the kubelet counts the
//     container as exited with code 128. Here the container has not failed, and
//     the same attempt is made again.
//   - The name of a termination message file is the restart count of the
//     container, so that the Runner can find and remove the file. The kubelet
//     chooses a random name and keeps the file as long as the pod
//     (kubernetes#106735). This package removes the files of instances that the
//     runtime no longer has, whenever it creates the file of a later instance.
//   - If volumes can't be mounted, or if the sandbox can't be created because
//     of the pod's spec, the status of the containers shows the reason. In the
//     kubelet, only an event shows it. In such a sync, this package pulls no
//     image of the pod, and creates no sandbox and no container.
//   - Here a failed mount of volumes is tried again after half a second, then
//     after one second, and so on. The longest delay is ten seconds; in the
//     kubelet it is two minutes.
//   - While the network of the runtime is not ready, this package creates no
//     sandbox, except for pods in the host network. The status of the waiting
//     containers shows the reason. This package still restarts containers of
//     pods that have a sandbox; the kubelet does not.
//   - The kubelet updates the contents of a pod's volumes in the background.
//     This package updates them in the syncs of the pod, also in a sync that
//     starts no container and creates no sandbox.
//   - For the kubelet, the newest instance of a container has the latest
//     creation time. For this package, the newest instance has the highest
//     restart count, because clocks may be set back (kubernetes#134153).
//   - If a sandbox ends soon after its creation, this package creates a new
//     sandbox only after the restart back-off; the kubelet creates a new
//     sandbox at once. If a container of a pod with restartPolicy Never had not
//     been created when the sandbox ended, this package starts the container in
//     the new sandbox. The kubelet leaves the pod Pending for ever.
//   - This package stops containers that are no longer in the spec, and older
//     instances of a container that still run. The kubelet checks only the
//     newest instance of each name in the spec. If a container has changed,
//     this package prepares the new container before it stops the old
//     container.
//   - This package pulls the images of one pod concurrently, while it creates
//     the pod's sandbox. The kubelet pulls each image when it starts the
//     container.
//   - This package starts only a few pods at the same time; the kubelet starts
//     all pods at the same time. With 50 pods on two processors, the last pod
//     runs no later than in the kubelet, and half of the pods run much earlier.
//   - If an ephemeral container is no longer in the runtime, the kubelet starts
//     it again. This package recognizes by the container's log that the
//     container has run, and does not start it again.
//   - If the target of an ephemeral container has ended, even in a removed
//     sandbox, the kubelet still asks the runtime to share the target's process
//     namespace. Runtimes refuse this. Here the ephemeral container fails until
//     the target runs.
//   - Here a restart of all containers (KEP-5532) waits for a back-off like any
//     other restart; the kubelet does not wait. During the back-off all
//     containers of the pod except ephemeral containers are stopped.
//   - The kubelet would carry out a resize that changes the pod's QoS class.
//     This package does not carry it out, and the plan reports it.
//   - The kubelet's hash of a container's definition covers its name and image.
//     The hash of this package covers everything except resources and the
//     resize policy, because pods from files may change in other ways. Each
//     container has both hashes. The hash of this package is in the annotation
//     io.kubeparts.container.definition.
//   - The kubelet replaces a container that has no hash. This package does not
//     replace it, because another agent created it.
//   - The kubelet's restart back-off grows with each attempt to start a
//     container; here it grows with each instance that was created.
//   - After a new sandbox was created, the kubelet does not know when the init
//     containers of the old sandbox ended. It therefore starts the new init
//     containers at once; this package applies the back-off.
//   - If a container was created but not started, the kubelet creates another
//     instance after the back-off. It never starts an ephemeral container in
//     this state. This package starts the existing instance at once, with its
//     restart count.
//   - The kubelet forgets a container's back-off ten minutes after the
//     container's last start, even if the container has ended since then and
//     still waits. Here the container waits until the back-off ends.
//   - If a container requests no CPU and gets its limit from the pod, the
//     kubelet computes its CPU shares from that limit when it creates the
//     container. When the kubelet resizes the container, it sets the minimum
//     shares. Here the shares are always computed from the limit.
//   - While an init container of a pod backs off, the kubelet resizes no
//     container of the pod. This package resizes the running containers,
//     because a container that can't be started does not delay other
//     containers.
//   - The kubelet resizes a pod's cgroup only together with a running
//     container. If the limits of a pod are raised while no container runs, the
//     pod keeps the old limits. This package resizes the cgroup whenever its
//     limits differ from the spec.
//   - If an init container without a limit comes after a sidecar with a limit,
//     the kubelet assumes the sidecar's limit for the init container, and
//     therefore limits the pod as a whole. This package does not limit a pod in
//     which a container has no limit.
//   - The kubelet resets the restart back-off of a container when its image or
//     resources change; this package resets it when any part of the container's
//     definition changes.
//   - If the pod's containers have ended for good, and a container runs that
//     should not run, this package first stops this container, and stops the
//     pod in a later plan. The kubelet stops the pod together with this
//     container.
//   - When all regular containers of a pod have ended for good, this package
//     stops the pod. The kubelet's plan continues with the pod's init
//     containers and sidecars until the pod's phase is terminal.
//   - Here a pod has ended when any of its init containers has failed for good,
//     also an init container of an earlier sandbox. The kubelet's plan checks
//     only the init container that was started last. In the kubelet, the pod's
//     phase decides whether the pod has ended.
//   - The kubelet removes init containers that have ended, and leaves other
//     dead containers and sandboxes to its garbage collection. A plan of this
//     package removes all dead instances of a container except the two newest.
//     It also removes replaced sandboxes without containers.
//   - The kubelet does not lower a memory limit below the memory that is in
//     use; this package does not check how much memory is in use.
//   - If a container was created but does not run yet when the pod's limits are
//     resized, it keeps the old limits in the kubelet. This package resizes the
//     container when it runs.
//   - If a container inherits new limits from its pod, the kubelet sets the
//     container's CPU limit twice: together with the memory limit, and again
//     with the other CPU values. This package sets each limit once.
//   - The kubelet reports the CPU limit and the CPU shares of a resized pod to
//     the runtime in two calls; this package uses one call.
//   - If CPU quotas are disabled, the kubelet sets and reports the configured
//     quota period for a pod with a CPU limit; this package leaves the kernel's
//     default.
//   - If a limit of a pod is removed, the kubelet leaves the old limit in the
//     pod's cgroup. This package removes the limit from the cgroup too.
//   - The kubelet treats a missing limit of a pod as the lowest limit. If the
//     pod gets a limit, the kubelet therefore limits the pod before its
//     containers shrink. This package treats a missing limit as the highest
//     limit.
//   - If a pod has no limit of memory or CPU, the kubelet subtracts the pod's
//     overhead from the number that means "no limit" when it reports the pod to
//     the runtime; this package reports no limit.
//   - When all containers are restarted, the kubelet's event for each stopped
//     container reads "killing"; the event of this package has the cause.
//   - When all containers are restarted, the kubelet also stops containers that
//     were created but not started; this package only removes such containers.
//   - If a pod uses the host's network and the runtime does not report the
//     namespaces of the sandbox, the kubelet creates the sandbox again and
//     again. This package uses the existing sandbox.
//   - When the kubelet creates the sandbox of a pod without init containers
//     again, it starts a container that has ended, even if the container's own
//     policy forbids a restart. It does not start a container that has ended
//     with exit code 0, even if the container's rules require a restart. This
//     package always follows policy and rules.
//   - If the sandbox of a pod with restartPolicy Never was removed from the
//     runtime, the kubelet runs all containers of the pod again. This package
//     runs only the containers that had never been created.
//   - If the kubelet could not stop or remove containers of an earlier sandbox,
//     it treats them as containers of the current sandbox; this package does
//     not.
//   - The kubelet stops the dead sandboxes of an ended pod in each sync; this
//     package stops them only while a part of the pod runs.
//   - When the kubelet stops a pod, it does not stop containers in an unknown
//     state. If their sandbox does not exist, these containers continue to run.
//     This package stops them.
//   - After the kubelet has stopped a pod because the pod has failed, it still
//     starts a new ephemeral container in the pod's sandbox; this package does
//     not.
//   - If a running container is no longer in the spec, the kubelet can't stop
//     the pod; this package stops the pod.
//   - The kubelet treats a cancelled pull as a failure of the image. Here a
//     cancelled pull is not a failure and starts no back-off.
//   - This package sets the limits of the pod's cgroup once after the whole
//     resize, and also before the resize if a limit grows. The kubelet sets
//     these limits separately for each resource.
//   - Each sandbox and container has the label io.kubeparts.agent with the
//     agent's name, because an agent touches only what it created. The kubelet
//     sets no such label.
//   - If a sandbox can't be created because of the pod's spec, the event names
//     every problem; the kubelet's event names the first.
//   - The kubelet maps only the ports of regular containers, and ignores a host
//     port of a sidecar; this package also maps the host ports of sidecars.
//   - The kubelet warns about a pod's resolv.conf in each sync, even in a sync
//     that starts nothing or that can't create a sandbox. This package warns
//     only when it creates a sandbox.
//   - In the sync that creates a pod's sandbox the kubelet writes all addresses
//     of the pod into the hosts file, in the runtime's order. Later it writes
//     the first of each family, as in the status. This package always writes
//     only the first address of each family.
//   - If a container requests huge pages of a size that the node does not have,
//     the container fails with an error that names the resource. The kubelet
//     starts the container without huge pages of this size.
//   - In each sync, the kubelet checks and pulls the images of all volumes of a
//     pod, even if nothing starts. This package does this only for images that
//     a starting container mounts.
//   - If a pod sets runAsGroup but not runAsUser, the kubelet sends the group
//     in the configuration of the sandbox, although the CRI requires runtimes
//     to refuse this. This package does not send the group.
//   - After the sandbox was created, the kubelet sends the names of sysctls as
//     they are in the pod, even with slashes; this package always sends them
//     with dots.
//   - If a pod mounts an image, the kubelet sends the subPath of every other
//     mount as an image sub-path too. This package sends an image sub-path only
//     for images.
//   - If a pod has a subdomain and the node has no cluster domain, the kubelet
//     adds a dot to the end of the pod's full name in the hosts file and in the
//     hostname. This package adds no dot.
//   - To compute the restart count, the kubelet reads the names of all files in
//     a container's log directory that begin like the name of a log, such as
//     8.logs. This package reads only the names of logs and rotated logs.
//   - If a container has limits of huge pages, the kubelet sends zero for these
//     limits with each change of CPU or memory; this package sends the
//     container's limits.
//   - The kubelet sends zero for a limit that was removed, so the runtime keeps
//     the old limit and the status still shows it. This package sends -1, which
//     removes the limit.
//   - If the environment, command and arguments of a container together are
//     longer than Linux permits (6 MiB), the container waits with
//     CreateContainerConfigError. A value counts even if a later variable of
//     the same name replaces it. The kubelet creates the container, and the
//     runtime fails.
//   - The kubelet follows links to a container's log and to its termination
//     message, and opens any file to which these links lead. This package reads
//     only regular files in the pod's own directories.
//   - If a pod has a field that this package does not support, such as a
//     variable from a file (KEP-3721), [Runner.Unsupported] returns an error
//     and the agent rejects the whole pod. The kubelet starts the pod.
//   - Every 10 s, the kubelet checks the cpusets of running containers, except
//     ephemeral containers. After its own restart, it sets each cpuset once.
//     This package checks the cpusets of all containers in each sync. After a
//     restart, it sets a cpuset only if the runtime reports another cpuset.
//   - If a pod requests an extended resource that the node does not list,
//     [Runner.Unsupported] returns an error and the agent rejects the pod. The
//     kubelet ignores the request.
//   - Not implemented: dynamic resources, block volumes, and files as sources
//     of variables (KEP-3721). [Runner.Unsupported] names these fields. Pods
//     for Windows are not supported either; [Admit] rejects them.
//   - In the kubelet, the code that starts containers also writes checkpoints
//     of them. Here package agent/kubeletapi writes checkpoints.
//
// # Testing your code with it
//
// Tests of Plan need no fake. To test a Runner, use a fakecri.Node as the
// runtime, with an images.Manager on the same node.
package podrunner
