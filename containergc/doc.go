// Package containergc deletes dead containers, their sandboxes and their logs.
//
// # What it does
//
// Every minute, a [Manager] lists the log folders, and the containers and sandboxes in the
// container runtime. It decides which of these objects to remove, and removes them.
// [Manager.Collect] runs one pass, [Manager.Run] runs passes until its context is done,
// and [Manager.DeleteAllUnusedContainers] runs a pass for an eviction manager that needs
// disk space. [Manager.Plan] removes nothing and returns what would be removed and kept,
// and why; a [Plan] prints as text and as JSON. The pure function [PlanRemovals] makes the
// decisions. The baseline is the container garbage collection of kubelet 1.36.
//
// One limit applies to the dead containers with the same name in the same pod, and another
// limit to all dead containers of the node. The newest containers are kept, so that users
// can find out why they exited, and because the restart count is derived from them.
// [Policy] has the kubelet's settings with the kubelet's meaning.
//
// The sub-package logrotate limits the size of the logs of running containers. Rotated
// files are removed together with the container's log.
//
// # What you supply
//
// You supply a CRI client, as [Runtime] and [Remover], the state of the pod workers, as
// [PodState], and a function that reports whether every pod source has been read. An agent
// that already has a recent snapshot of the runtime, for example from a podcache, can supply
// it as [Config].Snapshot. On a runtime with other clients, [Config].Owned selects the
// objects of this agent:
//
//	Owned: func(o containergc.Object) bool {
//		if o.Labels == nil { // logs have no labels
//			return ourPods.Has(o.PodUID)
//		}
//		return o.Labels["example.com/agent"] == "mine"
//	}
//
// # What it guarantees
//
//  1. Running containers and ready sandboxes are not removed. A sandbox is not removed
//     while one of its containers is kept. The log folder of a pod is not removed while
//     the pod has a container or sandbox in the runtime.
//  2. Nothing is removed before every pod source has been read.
//  3. Objects that are not owned or belong to no pod are never removed.
//  4. A container that was created and not started is kept as long as its pod may still
//     start it. The Manager checks this again right before it removes the container. Right
//     before it removes the log folder of a pod, it checks again that the pod was deleted,
//     because a static pod may return with the same UID.
//  5. Of the dead containers with the same name in the same pod, the oldest are removed
//     first. An older container outlasts a newer container only if the older container
//     exited less than MinAge ago or could not be removed. The container with the higher
//     attempt is newer, whatever the clocks showed.
//  6. The age of a container counts from its exit. If the first pass that lists the
//     container as dead finds an exit time in the future, the age counts from that pass.
//     So a container reaches MinAge even if the clock is set back.
//  7. A pass lists sandboxes and containers once each, or takes one snapshot. If MinAge or
//     MaxContainers is set, it also makes one ContainerStatus call for each exited container
//     whose exit time is unknown. A pass with nothing to do makes no other call.
//  8. A removal that fails or hangs does not stop other removals. A failed removal is
//     retried after 1 min, 2 min, and so on up to 15 min. No removal is lost, because each
//     pass decides from the objects that exist. No request for a single pod is lost
//     either. If as many calls time out as there are Workers, the runtime is considered
//     unresponsive, and the next pass removes the remaining objects.
//  9. No file outside the log folders is removed, whatever links a pod has created.
//
// # Goroutines and locking
//
// New starts nothing. A pass removes objects on up to Workers goroutines. Each goroutine handles
// one pod at a time. The pass waits for these goroutines, so calls of the runtime must end when
// their contexts are done. Only one pass decides at a time. A pass waits for its turn until its
// own context is done. Passes remove objects concurrently, so that a container that uses its
// whole grace period delays no other pass. A pass skips an object that another pass is removing.
// CallTimeout is real time even with a fake clock.
//
// # Differences from the kubelet
//
//   - While a pod source is not ready, the kubelet enforces limits and removes
//     sandboxes and dead links; ours does nothing, and DeleteAllUnusedContainers
//     returns ErrNotReady.
//   - Ours uses one snapshot for the whole pass, and does nothing without it; the
//     kubelet lists again for each step, and continues after a list that failed.
//   - The kubelet removes a container or a sandbox without a pod UID as if its pod did
//     not exist any more; here a container without a pod UID belongs to the pod of its
//     sandbox, and objects that belong to no pod are kept.
//   - The kubelet treats a created container as dead; ours keeps the container while
//     its pod may still start it.
//   - Here a container or a sandbox in a state that this version does not know counts
//     as running; the kubelet removes it.
//   - Here the age of a dead container counts from its exit; in the kubelet it counts
//     from its creation, so that a container that ran for a long time is never young.
//   - Here the container or sandbox with the highest attempt is the newest, and
//     creation times matter only for equal attempts; the kubelet compares only creation
//     times, although the clock may have been set.
//   - The kubelet does not remove a container whose status it cannot get; ours needs
//     no status to remove a container.
//   - The kubelet retries a failed removal in each pass; ours retries it after 1 min,
//     2 min, and so on up to 15 min.
//   - Here a failed removal is part of the error of the pass and of its event; the
//     kubelet only logs it.
//   - Here a failed DeleteAllUnusedContainers also causes the event ContainerGCFailed;
//     the kubelet only logs the failure.
//   - As long as all passes fail, ours records the event ContainerGCFailed at most once
//     in ten minutes; the kubelet records it in each pass that fails.
//   - The kubelet removes a container's logs and the link to them before the
//     container, and keeps the logs of a container that another client removed; ours
//     removes both after the container, whichever client removed it.
//   - Ours keeps the logs of a pod that was deleted or evicted until nothing of the pod
//     is left in the runtime; the kubelet removes them at once.
//   - The kubelet uses what follows the last underscore of a log folder's name as a
//     UID; ours ignores folders whose names are not those of pods.
//   - If the folder of pod logs does not exist, the kubelet's pass fails; ours treats
//     the folder as empty.
//   - If the folder of pod logs cannot be read, the kubelet keeps dead links; ours
//     removes them.
//   - If the folder of links cannot be read, ours still removes containers, sandboxes
//     and logs, and the pass returns an error; the kubelet removes no container, because
//     it cannot remove the container's link first.
//   - Ours uses the snapshot to find out whether the container of a dead link may write again;
//     the kubelet requests the container's status, and if this request fails, it removes the link
//     even if the container is running.
//   - Ours stores requests for single pods in a set, and drops none; the kubelet has a
//     queue of 50 requests, and drops further requests.
//
// # Testing your code with it
//
// Call Collect instead of Run, with the node of package fakecri and a fake clock, or call
// [PlanRemovals] with a snapshot written by hand. Test loops with Run in a testing/synctest
// bubble.
package containergc
