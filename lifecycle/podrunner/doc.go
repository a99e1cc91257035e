// Package podrunner runs pods in a CRI runtime: it changes a pod's sandbox and
// containers until they match the pod's spec. Its counterpart in the kubelet is
// kuberuntime, which every other node agent would have to implement again.
//
// # What it does
//
// [Plan] is a pure function from a pod's spec and its state in the runtime to
// [Actions]: the sandbox to create, and the containers to kill, remove, resize
// and start, each with its reason, and why other containers wait. It handles
// init containers, sidecars, regular and ephemeral containers, restart policies
// and rules, failed probes, and changed definitions and resources. Actions
// print as an explanation.
//
// [Runner] carries out plans on a runtime and implements podworker.Syncer.
// SyncPod prepares what the pod needs on the node and carries out one plan. The
// terminating syncs stop all containers by the deadline of the sync, run hooks,
// stop sidecars last, and then verify that the containers have stopped.
// SyncTerminatedPod releases what was prepared, and [Runner.RemovePod] removes
// everything else.
//
// [SandboxConfig] and [ContainerConfig] are pure functions from a spec to CRI
// messages. [Admit] and [Runner.Unsupported] return why a pod must be rejected
// as a whole, and [TerminationMessage] reads termination messages.
//
// # What you supply
//
// You supply the runtime as two small interfaces that cri.RuntimeService
// implements, and a third for resizing in place; images.Manager; a function
// that reads the current state of one pod (Refresh), which pleg and podcache
// provide; and the agent's name, which is set on every sandbox and container as
// the label io.kubeparts.agent.
//
// The rest is optional. [Runner.Unsupported] names the fields of a pod that
// need a missing part: volumes (volumes.Manager), cgroups of pods
// (cgroups.Cgroupfs), hooks (lifecycle.HookRunner), user IDs ([IDRanges]), a
// directory for hosts files, termination messages and sub-paths, the settings
// of pods ([Policy]), facts about the node ([Facts]), resources that allocators
// add to containers (resources.Combine), and probe results. Without a log
// directory ([Config].LogRoot) containers run without logs. Labels, annotations
// and log files are the kubelet's, so that crictl, log shippers and a kubelet
// recognize them.
//
// # What it guarantees
//
//  1. Plan depends only on its input and modifies nothing.
//  2. A running container that matches its spec is never touched. An agent that
//     starts while pods run adopts them, and their restart counts continue. It
//     also adopts containers that a kubelet created.
//  3. A container's restart count is one more than the highest one found in the
//     runtime or in its log directory, and no container is started twice with
//     the same count. A container that was created but not started is started,
//     not created again. An ephemeral container is started once.
//  4. A changed container is replaced even if the policy is Never, but only
//     when its new image is present and its configuration is complete; until
//     then the old one keeps running. A container that is no longer in the spec
//     is stopped and removed. A container that ended restarts only as its
//     policy and rules say, after its back-off.
//  5. An init container starts only after the ones before it have succeeded or,
//     if they are sidecars, have started. A regular container starts only after
//     all of them. A pod has ended when its regular containers have ended: then
//     sidecars are stopped, the last one first.
//  6. A restart of all containers is always completed: even if steps fail, or
//     containers end or are removed in between, no container of the old run is
//     left when the new run starts. After a restart of the agent it is
//     recognized by the pod's condition AllContainersRestarting. Ephemeral
//     containers keep running.
//  7. A resize in place never gives containers more than their pod has, and
//     restarts only the containers whose resize policy requires it. It compares
//     with the requests and limits that were enforced last ([Runner.Enforced]),
//     not with the values in the runtime. With [Config.State] they survive a
//     restart of the agent.
//  8. Only objects in the given status are stopped or removed. The caller that
//     made the status decides which objects belong to the agent
//     (pleg.Config.LabelSelector).
//  9. Volumes, user IDs and the cgroup are prepared before the sandbox is
//     created. They are removed when nothing runs any more, in order of their
//     dependencies, with retries until all has succeeded; only one goroutine
//     cleans up a pod at a time. RemovePod leaves nothing of a pod on disk, in
//     mounts, in cgroups or in the runtime. [Runner.Leftovers] finds what a
//     crash left behind.
//  10. A pod has one deadline for hooks, waiting and stops. A shorter deadline
//     also applies to hooks and stops in progress. A preStop hook that has
//     ended is not run again for its container. With [Config.State] both
//     survive a restart of the agent: the deadline is stored before anything is
//     stopped and whenever it changes, until the pod is released or wanted
//     again.
//  11. A terminating sync succeeds only if the runtime's current state shows
//     that nothing runs; otherwise the error is [ErrStillRunning].
//  12. A container that can't be started does not delay other containers.
//     [Runner.Waiting] returns the reason that the kubelet's status would show.
//  13. Nothing is done on the basis of a stale status, and nothing is retried
//     without a delay. Containers and sandboxes that end soon after their start
//     back off, even if the runtime's clock is behind.
//  14. No name in a manifest and no symbolic link leads out of the directories
//     for logs and files. Files that containers can write to, such as their
//     logs, are read only if they are regular files in the pod's own directory
//     and are not reached through a link; pipes and devices are never opened.
//  15. An image is protected from garbage collection from its pull until its
//     container is created.
//  16. A container gets what [Config].Inject returns for it, or is not created.
//     The CPUs and memory nodes of a running container are changed in the next
//     sync; a change that fails is retried in a later sync.
//  17. The start of a pod calls RunPodSandbox and PodSandboxStatus once, and for
//     each container ImageStatus, CreateContainer and StartContainer. It calls
//     no list, and writes one small file if the pod has requests or limits. The
//     termination of a pod writes one small file, which is written again when
//     the deadline changes or a hook has ended.
//
// # Goroutines and locking
//
// A Runner starts goroutines only to stop several containers at once, to watch
// the deadline of that, to run hooks, to limit how long a start occupies its
// slot, and to pull the images of a pod while its sandbox is created. It joins
// them before the call returns. Syncs of different pods may run concurrently,
// syncs of one pod may not; [Config.ParallelStarts] limits how many of them
// start a pod at a time. Every call takes a context. A cancelled sync may leave
// work half done; the next plan detects and finishes it.
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
//     the grace period as it is. It holds wall-clock time, from which a
//     starting agent computes the time that is left. If the clock was set back
//     meanwhile, the pod gets at most its grace period once more; if it was set
//     forward, it gets the minimum of 2 s. The record is not synced to disk,
//     because a crash of the machine ends the pod too.
//   - A preStop hook does not run for a container that completes or crashes, as
//     in the kubelet (kubernetes#55807).
//   - If an agent is killed while it starts a container, the kubelet counts the
//     container as exited with code 128. Here it has not failed, and the same
//     attempt is made again.
//   - The file of a container's termination message is named by its restart
//     count, so that it can be found and removed; the kubelet names it at
//     random and keeps it as long as the pod (kubernetes#106735). It is removed
//     when a later file is created and the runtime no longer has the instance.
//   - If volumes can't be mounted, or if the sandbox can't be created because
//     of the pod's spec, the status of the containers shows it, not only an
//     event as in the kubelet. Until then no image of the pod is pulled and no
//     container created.
//   - Volumes are refreshed in each sync that starts nothing.
//   - For the kubelet, the newest instance of a container is the one with the
//     latest creation time; for this package it is the one with the highest
//     restart count, because clocks may be set back (kubernetes#134153).
//   - A sandbox that ends soon after its creation is created again with the
//     restart back-off; the kubelet creates it again at once. With
//     restartPolicy Never, a container that had not been created when the
//     sandbox ended still runs; the kubelet leaves the pod Pending for ever.
//   - Containers that are no longer in the spec are stopped, as are second
//     instances of one name; the kubelet checks only the newest of each name in
//     the spec. What a changed container needs is prepared before the old one
//     is stopped.
//   - Images of one pod are pulled concurrently, and while its sandbox is
//     created.
//   - Only a few pods are started at the same time, not all at once: of 50 pods
//     on two processors the last one runs as soon, and half of them run much
//     earlier.
//   - The kubelet starts an ephemeral container again that is no longer in the
//     runtime; this package sees from its log that it has run.
//   - The kubelet lets an ephemeral container share the process namespace of a
//     target that has ended, even in a removed sandbox, which runtimes refuse;
//     here it fails until the target runs.
//   - A restart of all containers (KEP-5532) backs off like any other restart,
//     with everything stopped meanwhile.
//   - A resize that would change the pod's QoS class is not carried out, and
//     the plan reports it.
//   - The kubelet's hash of a definition covers its name and image; that of this package
//     covers everything except resources, because pods from files may change in other
//     ways. Containers have both hashes; the second is the annotation
//     io.kubeparts.container.definition.
//   - The kubelet replaces a container that has no hash; this package does not
//     touch it, because another agent created it.
//   - The kubelet's restart back-off grows with each attempt to start a
//     container; here it grows with each container that was created.
//   - The kubelet forgets with the sandbox when its init containers ended, and
//     starts them in the new one at once; this package applies the back-off.
//   - The kubelet creates another instance of a container that was created but
//     not started, after its back-off, and never starts such an ephemeral
//     container. This package starts the existing instance at once, with its
//     restart count.
//   - The kubelet forgets a container's back-off ten minutes after its last
//     start, even if the container has ended since and still waits; here it
//     waits to the end.
//   - A container that requests no CPU and gets its limit from the pod has CPU
//     shares according to that limit when the kubelet creates it, and the
//     minimum when the kubelet resizes it; here it always has the shares of the
//     limit.
//   - The kubelet resizes no container while an init container of the pod backs
//     off; this package does, because a container that can't be started does
//     not delay others.
//   - The kubelet resizes a pod's cgroup only together with a running
//     container, so a pod whose limits were raised while its containers were
//     down keeps the old limits. This package resizes the cgroup whenever it
//     differs.
//   - The kubelet counts an init container without a limit that comes after a
//     sidecar with one as if it had that limit, and so limits the pod as a
//     whole. This package does not limit a pod in which a container has no
//     limit.
//   - The kubelet resets the restart back-off of a container when its image or
//     resources change; this package resets it when anything of its definition
//     changes.
//   - Here a pod has not ended while a container runs that should not run; that
//     container is stopped first. The kubelet stops the pod together with it.
//   - The kubelet's plan continues with init containers and sidecars of a pod
//     whose regular containers have all ended for good, until the pod's phase
//     ends it; this package stops the pod.
//   - The kubelet checks only the init container that was started last. Here a
//     pod has ended when any of its init containers has failed for good, also
//     one of an earlier sandbox; the kubelet leaves that to the phase.
//   - The kubelet removes init containers that have ended, and leaves other
//     dead containers and sandboxes to its garbage collection. A plan of this
//     package removes all dead instances of a name except the newest and the
//     one before it, and replaced sandboxes without containers.
//   - The kubelet does not lower a memory limit below the memory that is in
//     use; this package does not check the use.
//   - In the kubelet, a container that was created but did not run when the
//     pod's limits were resized keeps the old ones; this package resizes it
//     when it runs.
//   - If a container inherits new limits from its pod, the kubelet sets the
//     container's CPU limit together with its memory limit, and once more with
//     the CPU; this package sets each once.
//   - The kubelet reports the CPU limit and the CPU shares of a resized pod to
//     the runtime in two calls; this package uses one.
//   - If CPU quotas are disabled, the kubelet sets and reports the configured
//     quota period for a pod with a CPU limit; this package leaves the kernel's
//     default.
//   - If a limit of a pod is removed, the kubelet leaves the old limit in the
//     pod's cgroup; this package removes it there too.
//   - The kubelet treats the missing limit of a pod as the lowest, and so
//     limits the pod before its containers shrink; this package treats it as
//     the highest.
//   - If a pod has no limit of memory or CPU, the kubelet subtracts its
//     overhead from the number that means "no limit" when it reports the pod to
//     the runtime; this package reports no limit.
//   - When all containers are restarted, the kubelet's event for each stopped
//     container reads "killing"; the event of this package has the cause.
//   - When all containers are restarted, the kubelet also stops those that were
//     created but not started; this package only removes them.
//   - If the runtime does not report the namespaces of a sandbox, the kubelet
//     creates the sandbox of a pod in the host's network again and again; this
//     package uses it.
//   - When the kubelet creates a pod's sandbox again and the pod has no init
//     containers, it starts a container that has ended and must not restart by
//     its own policy, and does not start a container that must restart by its
//     rules after exit code 0. This package always follows policy and rules.
//   - If the sandbox of a pod with restartPolicy Never was removed from the
//     runtime, the kubelet runs all its containers again; this package runs
//     only those that had not been created.
//   - The kubelet treats containers that an earlier sandbox has left, because
//     they could not be removed or stopped, as containers of the current
//     sandbox; this package does not.
//   - The kubelet stops the dead sandboxes of an ended pod in each sync; this
//     package does nothing once nothing of the pod runs.
//   - When the kubelet stops a pod it does not stop containers in an unknown
//     state, which continue to run if their sandbox is gone; this package stops
//     them.
//   - The kubelet starts a new ephemeral container in the sandbox of a pod that
//     it has just stopped because the pod has failed; this package does not.
//   - The kubelet can't stop a pod in which a container runs that is no longer
//     in the spec; this package can.
//   - A cancelled pull is not a failure of the image and starts no back-off.
//   - The limits of the pod's cgroup are set once after the whole resize, and
//     also before it if a limit grows, not resource by resource.
//   - Each sandbox and container has the label io.kubeparts.agent with the
//     agent's name, because an agent touches only what it created. The kubelet
//     sets no such label.
//   - If a sandbox can't be created because of the pod's spec, the event names
//     every problem; the kubelet's event names the first.
//   - The kubelet maps only the ports of regular containers, and ignores a host
//     port of a sidecar; this package also maps those of sidecars.
//   - The kubelet warns about a pod's resolv.conf in each sync, even if it
//     starts nothing or if no sandbox can be created; this package
//     warns only when it creates a sandbox.
//   - In the sync that creates a pod's sandbox the kubelet writes all addresses
//     of the pod into the hosts file, in the runtime's order. Later it writes
//     the first of each family, as in the status. This package always writes
//     the latter.
//   - A container that requests huge pages of a size that the node does not
//     have fails with the name of the resource; the kubelet starts it without
//     them.
//   - The kubelet checks and pulls the images of all volumes of a pod in each
//     sync, even if nothing starts; this package only those that are mounted by
//     containers that are about to start.
//   - If a pod has a group but no user, the kubelet sends the group with its
//     sandbox, although the CRI requires runtimes to refuse that; this package
//     does not send the group.
//   - After the sandbox was created, the kubelet sends the names of sysctls as
//     they are in the pod, with slashes; this package always sends them with
//     dots.
//   - In a pod that mounts an image the kubelet sends a volume's subPath also
//     as the image's; this package only with images.
//   - On a node without a cluster domain the kubelet ends the full name of a
//     pod with a subdomain with a dot, in its hosts file and hostname; this
//     package does not.
//   - For the restart count, the kubelet counts every file in a container's log
//     directory whose name begins like that of a log, such as 8.logs; this
//     package counts logs and rotated logs.
//   - With each change of CPU or memory the kubelet sends limits of zero for
//     the huge pages of a container that has some; this package sends the
//     container's limits.
//   - The kubelet sends zero for a limit that was removed, so the runtime keeps
//     the old limit and the status still shows it. This package sends -1, which
//     removes the limit.
//   - If the environment, command and arguments of a container are longer than
//     Linux permits (6 MiB together, including values that are replaced by
//     later ones of the same name), the container waits with
//     CreateContainerConfigError. The kubelet creates it, and the runtime
//     fails.
//   - The kubelet follows links to a container's log and to its termination
//     message, and opens any file they lead to; this package reads regular
//     files in the pod's own directories.
//   - A pod with a field that this package does not support, such as a variable
//     from a file (KEP-3721), is rejected as a whole by [Runner.Unsupported];
//     the kubelet starts it.
//   - The kubelet changes the cpusets of running containers every 10 s, except
//     those of ephemeral ones, and always once after a restart. This package
//     changes those of all containers in each sync, and after a restart only if
//     the runtime shows other values.
//   - An extended resource that the node does not list is rejected; the kubelet
//     ignores it.
//   - Not implemented: dynamic resources, block volumes, files as sources of
//     variables (KEP-3721), Windows. [Runner.Unsupported] names them.
//     Checkpoints.
//
// # Testing your code with it
//
// Plan needs no fake. A Runner runs on fakecri.Node through its Go interfaces,
// with an images.Manager on the same node.
package podrunner
