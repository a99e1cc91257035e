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
// pleg and podcache make; a folder for logs; and the agent's name, which marks
// every sandbox and container as the label io.kubeparts.agent. The rest is
// optional, and what needs it is named by Unsupported: volumes (volumes.Local),
// cgroups of pods (podcgroup.Cgroupfs), hooks (lifecycle.HookRunner), user IDs
// ([IDRanges]), a folder for hosts files, termination messages and sub-paths, what
// is known of the node, and what probes found. Labels, annotations and log files
// are the kubelet's, so that crictl, log shippers and a kubelet know them.
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
//  6. A restart of all containers is carried through: whatever fails or dies on the
//     way, nothing of the old run is left when the new one begins.
//  7. A resize in place never gives containers more than their pod has, and stops
//     nothing that its policy does not name.
//  8. Only objects in the given status are stopped or removed. Whose they are was
//     decided where the status was made (pleg.Config.LabelSelector).
//  9. Volumes, user IDs and cgroup are there before the sandbox is made, and go when
//     nothing runs any more, in the order in which one rests on the other, until
//     all has succeeded. RemovePod leaves nothing of a pod on disk, in mounts, in
//     cgroups or in the runtime; [Runner.Leftovers] finds what a crash left.
//  10. A pod has one deadline for hooks, waiting and stops. A shorter one moves it
//     while they are under way. A preStop hook that has ended is not run again for
//     its container. With a RootDir both hold over a restart of the agent: before
//     anything is stopped, and whenever it moves, the deadline is in a file of the
//     pod's folder, whole, until the pod is given back or wanted again.
//  11. A terminating turn succeeds only when a fresh look at the runtime shows that
//     nothing runs; otherwise it is [ErrStillRunning].
//  12. One container that can't be started holds up no other, and its reason is
//     what the kubelet's status would show ([Runner.Waiting]).
//  13. Nothing is done upon a stale status, and nothing is retried without a pause:
//     containers and sandboxes that die young back off.
//  14. No name in a manifest and no symbolic link leads out of the folders for logs
//     and files.
//  15. An image is leased from being wanted until its container is created.
//  16. A pod start costs the sandbox and its status, and of each container its
//     image's status, create and start; no list. An end costs one small file, which
//     is written again when the deadline moves or a hook has ended.
//  17. Every instance of a container that ran is reported once when it has ended,
//     however it did: [Observer.PostExit].
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
//     kubelet (kubernetes#55807); PostExit tells of those too.
//   - A container that never began because the agent was killed in the middle of
//     starting it has not failed (podcache.BrokenOff): the same attempt is made again,
//     whatever the policy says. In the kubelet it is an exit of 128.
//   - The file of an instance's last words goes when a later one is made and the runtime
//     has the instance no more, not with the pod only (kubernetes#106735).
//   - A container whose volumes can't be mounted says so in its status, not only in
//     an event; nothing of its pod is pulled or made until they can.
//   - Volumes are brought up to date in each turn in which nothing starts.
//   - The newest instance of a container is told by its restart count before its
//     creation time, because clocks step back (kubernetes#134153).
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
//   - An ephemeral container runs once even if the runtime has forgotten it.
//   - What a restart of all containers (KEP-5532) asks for backs off like any other
//     restart, with everything stopped meanwhile.
//   - A resize that would change the pod's QoS class is left undone, and the plan
//     says so. One that takes memory away is not held back by what is in use.
//   - The definition's hash covers all but resources, not name and image alone: pods
//     from files may change in other ways. A hash of another form is left alone.
//   - The restart back-off grows with starts, not with attempts to start.
//   - A cancelled pull is no failure of the image and starts no back-off.
//   - The pod's cgroup is limited anew after all of a resize, and before it where
//     something grows, not resource by resource.
//   - Not here: devices and dynamic resources, block volumes, files as sources of
//     variables (KEP-3721), Windows. [Runner.Unsupported] names them. Checkpoints.
//
// # Testing your code with it
//
// Plan needs no fake. A Runner runs on fakecri.Node, over its Go interfaces, with
// an images.Manager on the same node.
package podrunner
