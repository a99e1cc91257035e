// Package podrunner brings a pod in a CRI runtime to what its spec says. The
// kubelet's counterpart is in kuberuntime, and the part that every node agent
// of one's own has to write again.
//
// # What it does
//
// [Plan] is a pure function: from a pod's spec and what the runtime shows of it
// to [Actions], the sandbox to create, the containers to kill, remove, resize and
// start, each with its reason, and why others wait. It knows init containers,
// sidecars, regular and ephemeral containers, restart policies and rules, failed
// probes, changed definitions and resources. Actions print as an explanation.
// [Runner] does on a runtime what Plan says and implements podworker.Syncer: its
// SyncPod is one plan carried out, with what the pod needs on the node made ready
// before; its terminating turns end containers by the turn's deadline, hooks and
// the order of sidecars included, and then look whether they did. SyncTerminatedPod
// gives back what was made ready, and [Runner.RemovePod] removes what is left.
// [SandboxConfig] and [ContainerConfig] are the pure functions from a spec to the
// CRI's messages. [Admit] and [Runner.Unsupported] say which pods are to be refused
// whole, and [LastWords] reads termination messages.
//
// # What you supply
//
// The runtime as two small interfaces that cri.RuntimeService has, and a third to
// resize in place; images.Manager; a way to look at one pod now (Refresh), which
// pleg and podcache make; and the agent's name, which marks every sandbox and
// container as the label io.kubeparts.agent. The rest is optional, and what needs
// it is named by Unsupported: volumes (volumes.Manager), cgroups of pods
// (cgroups.Cgroupfs), hooks (lifecycle.HookRunner), user IDs ([IDRanges]), a folder
// for hosts files, termination messages and sub-paths, the settings of pods
// ([Policy]), what the node is ([Facts]), what allocators give to containers
// (resources.Combine), and what probes found. Without a folder
// for logs ([Config].LogRoot) containers run without logs. Labels, annotations and
// log files are the kubelet's, so that crictl, log shippers and a kubelet know them.
//
// # What it guarantees
//
//  1. Plan depends on nothing but its input and changes nothing.
//  2. What runs and matches its spec is never touched: an agent that starts over
//     running pods adopts them, and their restart counts go on. So are containers
//     that a kubelet made.
//  3. A container's restart count is one more than the highest seen, in the
//     runtime or in its log folder, and no container is started twice for one
//     count. One that was created but not started is started, not made again. An
//     ephemeral container is started once.
//  4. A changed container is replaced even where the policy says Never, once its
//     image is there and its configuration is complete: until then the old one
//     goes on. One that the spec does not name any more is stopped and removed. An
//     ended one comes again only as its policy and rules say, after its back-off.
//  5. No init container starts before those before it have ended well or, sidecars,
//     have started, and no regular one before all of them. A pod is over when its
//     regular containers are: sidecars are stopped then, the last one first.
//  6. A restart of all containers is carried through: whatever fails, dies or is removed
//     on the way, nothing of the old run is left when the new one begins. After a restart
//     of the agent the pod's condition AllContainersRestarting tells of it. Ephemeral
//     containers go on.
//  7. A resize in place never gives containers more than their pod has, and stops
//     nothing that its policy does not name. It compares with the requests and limits that
//     were enforced last ([Runner.Enforced]), not with what the runtime shows; with
//     [Config.State] they outlive the agent.
//  8. Only objects in the given status are stopped or removed. Whose they are was
//     decided where the status was made (pleg.Config.LabelSelector).
//  9. Volumes, user IDs and cgroup are there before the sandbox is made, and go when
//     nothing runs any more, in the order in which one rests on the other, until
//     all has succeeded; a pod has one cleaner at a time. RemovePod leaves nothing of
//     a pod on disk, in mounts, in cgroups or in the runtime; [Runner.Leftovers] finds
//     what a crash left.
//  10. A pod has one deadline for hooks, waiting and stops. A shorter one moves it
//     while they are under way. A preStop hook that has ended is not run again for
//     its container. With [Config.State] both hold over a restart of the agent: before
//     anything is stopped, and whenever it moves, the deadline is stored, until the
//     pod is given back or wanted again.
//  11. A terminating turn succeeds only when a fresh look at the runtime shows that
//     nothing runs; otherwise it is [ErrStillRunning].
//  12. One container that can't be started holds up no other, and its reason is
//     what the kubelet's status would show ([Runner.Waiting]).
//  13. Nothing is done upon a stale status, and nothing is retried without a pause:
//     containers and sandboxes that die young back off, also where the runtime's clock
//     is behind.
//  14. No name in a manifest and no symbolic link leads out of the folders for logs
//     and files. What containers can write to, such as their logs, is read only where
//     it is a regular file in the pod's own folder and no link leads to it; a pipe or a
//     device is never opened.
//  15. An image is leased from being wanted until its container is created.
//  16. A container gets what [Config].Inject returns for it, or is not created. The
//     CPUs and memory nodes of one that runs follow in the next turn; what fails to
//     change is changed by a later turn.
//  17. A pod start costs the sandbox and its status, and of each container its
//     image's status, create and start; no list; and one small file if it has requests
//     or limits. An end costs one small file, which is written again when the deadline
//     moves or a hook has ended.
//
// # Goroutines and locking
//
// A Runner starts goroutines only to end several containers at once, to watch the
// deadline of that, to run hooks, to hold a place among the starts and to fetch the
// images of one turn while its sandbox comes up, and joins them before the call
// returns. Turns of different pods may run at the same time, those of one pod may not;
// [Config.ParallelStarts] of them start something at a time. Every call takes a
// context; a cancelled turn leaves something half done that the next plan sees and finishes.
//
// # Differences from the kubelet
//
//   - What is done comes with its reason, as a value that can be printed, tested
//     and replayed.
//   - A pod that only the runtime knows is stopped within the grace period that is
//     written on its containers, not within one second, and its hooks run.
//   - A postStart hook has a deadline, [Config.PostStartTimeout]. One that was called
//     off because its pod ends does not get its container blamed.
//   - A preStop hook that a repeated turn finds ended is not run a second time.
//   - A pod whose end had begun when the agent was killed does not get its grace
//     period anew, although a pod from a manifest has no deletion timestamp. The file
//     can only make an end earlier: one that is missing, spoiled (an error is logged)
//     or in the far future leaves the grace period as it is. It holds wall clock
//     time, which an agent that starts turns into time left: a clock set back
//     meanwhile gives the grace period once more at most, one set forward what any
//     container gets, 2 s. It is not forced to disk: the machine's end is the pod's.
//   - A preStop hook runs for no container that completes or crashes, as in the
//     kubelet (kubernetes#55807).
//   - A container whose start was broken off because its agent was killed has exited
//     with 128 for the kubelet; for ours it has not failed, and the same attempt is
//     made again.
//   - The file of an instance's last words is named by its restart count, so that it
//     can be found and removed; the kubelet names it at random and keeps it as long as
//     the pod (kubernetes#106735). It is removed when a later one is made and the
//     runtime no longer has the instance.
//   - A container whose volumes can't be mounted, or whose sandbox can't be made
//     because of the pod's spec, says so in its status, not only in an event as in the
//     kubelet. Nothing of its pod is pulled or made until they can.
//   - Volumes are brought up to date in each turn in which nothing starts.
//   - The kubelet takes the instance of a container that has the latest creation time
//     for the newest; ours takes the one with the highest restart count, because
//     clocks are set back (kubernetes#134153).
//   - A sandbox that dies soon after it was made is made again with the restart
//     back-off, not as fast as its death is noticed. With Never a container that
//     had not been made when the sandbox died still gets its run; the kubelet
//     leaves the pod Pending for ever.
//   - Containers that the spec names no more are stopped, as are second instances
//     of one name; the kubelet looks only at the newest of each name in the spec. What
//     a changed container needs is made ready before the old one is stopped.
//   - Images of one pod are pulled at the same time, and while its sandbox is made.
//   - The runtime is asked to start a few pods at once, not all that there are: of 50
//     on two processors the last one runs as soon, and half of them long before.
//   - The kubelet starts an ephemeral container again that the runtime has forgotten;
//     ours recalls from its log that it has run.
//   - The kubelet has an ephemeral container share the processes of a target that has
//     ended, even in a sandbox that is gone, which runtimes refuse; in ours it fails
//     until the target runs.
//   - What a restart of all containers (KEP-5532) asks for backs off like any other
//     restart, with everything stopped meanwhile.
//   - A resize that would change the pod's QoS class is left undone, and the plan
//     says so.
//   - The kubelet's hash of a definition covers its name and image; ours covers all
//     but resources, because pods from files may change in other ways. Containers have
//     both, ours as the annotation io.kubeparts.container.definition.
//   - The kubelet replaces a container that carries no hash; ours leaves it alone,
//     because another agent made it.
//   - The kubelet's restart back-off grows with each attempt to start a container;
//     ours grows with each container that was made.
//   - The kubelet forgets the ends of init containers with the sandbox and starts
//     them in the new one at once; ours backs off from them.
//   - The kubelet makes another instance of a container that was created but not
//     started, after its back-off, and never starts an ephemeral one of those; ours
//     starts the one that there is at once, with its restart count.
//   - The kubelet forgets a container's back-off ten minutes after its last start,
//     also when the container has ended since and still waits; ours waits to the end.
//   - A container that requests no CPU and has its limit from the pod gets shares of
//     that limit when the kubelet makes it, and the fewest when the kubelet resizes it;
//     in ours those of the limit.
//   - The kubelet resizes no container while an init container of the pod backs off;
//     ours does, because one that can't be started holds up no other.
//   - The kubelet resizes a pod's cgroup only together with a container that runs, so
//     that a pod whose limits were raised while its containers were down keeps the
//     old ones; ours resizes it whenever it differs.
//   - The kubelet counts an init container without a limit that comes after a sidecar
//     with one as if it had that limit, and so limits the pod as a whole; ours limits
//     no pod in which a container has no limit.
//   - The kubelet's restart back-off of a container starts afresh when its image or
//     resources change; ours when anything of its definition changes.
//   - A pod in which a container runs that ought not to is not over for ours before
//     that is stopped; the kubelet stops the pod with it.
//   - The kubelet's plan goes on with init containers and sidecars of a pod whose
//     regular containers have all ended for good, until the pod's phase ends it; ours
//     stops the pod.
//   - The kubelet looks at the init container that was begun last; for ours a pod is
//     over when any of its init containers has failed for good, also one of an
//     earlier sandbox; the kubelet leaves that to the phase.
//   - The kubelet removes init containers that have ended, and leaves other dead
//     containers and sandboxes to its garbage collection; a plan of ours removes all
//     instances of a name that are dead but the newest and the one before it, and
//     replaced sandboxes without containers.
//   - The kubelet takes no memory away from containers that use more than they are to
//     have; ours is not held back by what is in use.
//   - A container that was created but did not run when the pod's limits were resized
//     keeps the old ones in the kubelet; ours resizes it when it runs.
//   - If a pod that gets limits passes them on to a container, the kubelet sets the
//     container's CPU limit together with its memory limit, and once more with the CPU;
//     ours sets each once.
//   - The kubelet reports the CPU limit and the CPU shares of a resized pod to the runtime
//     in two calls; ours in one.
//   - Where CPU quotas are off, the kubelet sets and reports the configured period of
//     quotas for a pod with a CPU limit; ours leaves the kernel's.
//   - The kubelet leaves a pod's cgroup with the limit that was taken away; ours takes it
//     away from there, too.
//   - The kubelet takes the missing limit of a pod for the least, and so limits the pod
//     before its containers shrink; ours takes it for the most.
//   - If a pod has no limit of memory or CPU, the kubelet subtracts its overhead from the
//     number that stands for no limit when it reports the pod to the runtime; ours reports
//     no limit.
//   - When all containers are restarted, the kubelet's event for each that is stopped
//     reads "killing"; ours has the cause.
//   - When all containers are restarted, the kubelet stops those that were created
//     but not started, too; ours only removes them.
//   - The kubelet makes the sandbox of a pod in the host's network anew, again and
//     again, where the runtime does not tell its namespaces; ours uses it.
//   - When the kubelet makes a pod's sandbox anew, it starts a container again that
//     has ended and is not to be restarted by its own policy, if the pod has no init
//     containers, and not one that its rules restart after an exit with 0; ours asks
//     policy and rules as always.
//   - The kubelet runs all containers of a pod with restartPolicy Never again whose
//     sandbox was removed from the runtime; ours runs those that had not been made.
//   - The kubelet takes containers that an earlier sandbox has left, because they
//     could not be removed or stopped, for those of the sandbox in use; ours does
//     not.
//   - The kubelet stops the dead sandboxes of a pod that is over in each sync; ours
//     does nothing once nothing of it runs.
//   - When the kubelet stops a pod it does not stop containers in an unknown state,
//     which go on if their sandbox is gone; ours stops them.
//   - The kubelet starts a new ephemeral container in the sandbox of a pod that it has
//     just stopped because the pod has failed; ours does not.
//   - The kubelet can't stop a pod in which a container runs that the spec names no
//     more; ours can.
//   - A cancelled pull is no failure of the image and starts no back-off.
//   - The pod's cgroup is limited anew after all of a resize, and before it where
//     something grows, not resource by resource.
//   - Each sandbox and container has the label io.kubeparts.agent with the agent's
//     name, because an agent touches only what it made. The kubelet sets no such
//     label.
//   - The event about a sandbox that can't be made because of the pod's spec names
//     every problem; the kubelet's names the first.
//   - The kubelet maps the ports of regular containers only, and ignores a host port of
//     a sidecar; ours maps those of sidecars, too.
//   - The kubelet warns about a pod's resolv.conf in each turn, even in one that starts
//     nothing or in which no sandbox can be made; ours only when it makes a sandbox.
//   - In the turn that makes a pod's sandbox the kubelet writes all its addresses into
//     the hosts file, in the runtime's order, and later the first of each family, as the
//     status has them; ours always those.
//   - A container that asks for huge pages of a size that the node does not have fails
//     with the name of the resource; the kubelet starts it without them.
//   - The kubelet looks up and pulls the images of all volumes of a pod in each turn,
//     even one in which nothing starts; ours those that the containers mount that are
//     about to start.
//   - The kubelet sends the group of a pod that names no user with its sandbox, which
//     the CRI has runtimes refuse; ours leaves the group out there.
//   - With requests after the one that makes a sandbox the kubelet sends the names of
//     kernel parameters as the pod has them, with slashes; ours always with dots.
//   - In a pod that mounts an image the kubelet sends a volume's subPath as the
//     image's, too; ours only with images.
//   - On a node without a cluster domain the kubelet ends the full name of a pod with
//     a subdomain with a dot, in its hosts file and hostname; ours does not.
//   - The kubelet counts every file in a container's log folder whose name begins like
//     that of a log, such as 8.logs, for the restart count; ours counts logs and
//     rotated logs.
//   - With each change of CPU or memory the kubelet sends limits of zero for the huge
//     pages of a container that has some; ours sends the limits that it has.
//   - The kubelet sends zero for a limit that is taken away, so that the runtime leaves the
//     old limit in force and the status goes on to show it; ours sends -1, which takes the
//     limit away.
//   - A container whose environment, command and arguments are longer than Linux lets
//     them be (6 MiB together, values that others of the same name replace included)
//     waits with CreateContainerConfigError; the kubelet makes them however long, and
//     the runtime fails.
//   - The kubelet follows links to a container's log and to its termination message, and
//     opens whatever they lead to; ours reads regular files in the pod's own folders.
//   - A pod with a field that this package does not support, such as a variable from a
//     file (KEP-3721), is refused as a whole by [Runner.Unsupported]; the kubelet
//     starts it.
//   - The kubelet changes the cpusets of running containers every 10 s, not those of
//     ephemeral ones, and after its restart once in any case; ours in each turn, those
//     of all, and after a restart only where the runtime does not show what is wanted.
//   - An extended resource that the node has never heard of is refused; the kubelet
//     ignores it.
//   - Not here: dynamic resources, block volumes, files as sources of
//     variables (KEP-3721), Windows. [Runner.Unsupported] names them. Checkpoints.
//
// # Testing your code with it
//
// Plan needs no fake. A Runner runs on fakecri.Node, over its Go interfaces, with
// an images.Manager on the same node.
package podrunner
