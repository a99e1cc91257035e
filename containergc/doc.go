// Package containergc removes what dead containers leave behind: themselves, their
// sandboxes and their logs.
//
// # What it does
//
// A [Manager] looks at what there is in the container runtime and in the folder of logs
// every minute, decides what goes, and removes it. [Manager.Collect] does one pass,
// [Manager.Run] does them for ever, [Manager.DeleteAllUnusedContainers] removes what an
// eviction manager wants gone. [Manager.Plan] does nothing and says what would go, what
// stays, and why; a [Plan] prints as text and as JSON. The decision is a pure function,
// [Decide]. The baseline is the container garbage collection of kubelet 1.36.
//
// Rules are about the dead containers of one name in one pod: the newest are kept, so
// that users can find out why they died, and because restarts are counted from them.
// [Policy] has the kubelet's settings, which mean what they mean there.
//
// Logs of running containers are kept small by the sub-package logrotate. What it has
// rotated goes with the container's log.
//
// # What you supply
//
// A CRI client, as [Runtime] and [Remover]; what the pod workers know, as [PodState];
// and whether every source of pods has been read. Who has a fresh view of the runtime
// already, such as the one behind a podcache, hands it over as [Config].Snapshot. On a
// runtime that serves others too, [Config].Owned says what is ours:
//
//	Owned: func(o containergc.Object) bool {
//		if o.Labels == nil { // logs have none
//			return ourPods.Has(o.PodUID)
//		}
//		return o.Labels["example.com/agent"] == "mine"
//	}
//
// # What it guarantees
//
//  1. Nothing that runs is removed, nor a sandbox with a container that stays, nor the
//     logs of a pod of which anything is left in the runtime.
//  2. Nothing is removed before every source of pods has been read.
//  3. What is not ours, or belongs to no pod, is never touched.
//  4. A container that was created and not started stays for as long as somebody may be
//     about to start it. That is asked again right before it goes, and so is whether a
//     pod is gone before its logs go: static pods come back with the same UID.
//  5. Of one name in one pod, what stays is newer than what goes, but for what is young
//     or failed to go; attempts tell, whatever clocks said.
//  6. Age counts from the end of a container and no longer than since it was last seen
//     dead at a later time, so that a clock that steps back makes nothing young for ever.
//  7. A pass takes one list of each kind, or one snapshot, for all that it does. One
//     with nothing to do makes no other call.
//  8. One that will not go, or hangs, stops nothing else. It is tried again after 1 min,
//     2 min, and so on up to 15 min; nothing is forgotten, because the next pass decides
//     on what is there. Requests for single pods are never dropped either. If Workers
//     calls hang, the runtime does, and the pass leaves the rest to the next.
//  9. Nothing outside the folders of logs is removed, whatever links a pod has planted.
//
// # Goroutines and locking
//
// New starts nothing. A pass removes with up to Workers goroutines, each of which cleans
// up one pod at a time; they end before it returns, provided that the runtime's calls
// end with their context. Passes wait for each other to decide, no longer than their
// context lasts, and one that somebody needs for the disk makes the one before it hurry.
// They remove at the same time, so that a container that uses up its grace period delays
// no other pass. What one pass is removing, another leaves to it.
// CallTimeout is real time even on a fake clock.
//
// # Differences from the kubelet
//
//   - While a source of pods is not ready, the kubelet enforces limits and removes
//     sandboxes and dead links; here nothing happens, and DeleteAllUnusedContainers
//     returns ErrNotReady.
//   - One snapshot serves the whole pass, and nothing happens without it; the kubelet
//     lists again for each step, and continues after a list that failed.
//   - The kubelet removes a container or a sandbox without a pod as if its pod were gone;
//     here such a container belongs to the pod of its sandbox, and what has no pod is left
//     alone.
//   - The kubelet treats a created container as a dead one; here it stays while its pod
//     may start it.
//   - A container or a sandbox in a state that this version does not know counts as
//     running; the kubelet removes it.
//   - The age of a dead container counts from its end; in the kubelet it counts from the
//     creation, so that a container that ran for long is never young.
//   - The highest attempt is the newest container or sandbox, and creation times decide
//     only between equal ones; in the kubelet they decide alone, although the clock may
//     have been set.
//   - The kubelet does not remove a container whose status it cannot get; ours needs no
//     status for that.
//   - The kubelet repeats a failed removal in each pass; here it is repeated after a
//     minute, two, and so on up to 15 minutes.
//   - A failed removal is an error of the pass, and in its event; the kubelet only logs
//     it.
//   - A failed DeleteAllUnusedContainers makes the event ContainerGCFailed, too; the
//     kubelet only logs the failure.
//   - The event ContainerGCFailed is made once in ten minutes; the kubelet makes it in
//     each pass that fails.
//   - The kubelet removes a container's logs and the link to them before the container, and
//     keeps the logs of a container that another client removed; here both go after their
//     container, whoever removed it.
//   - The logs of a pod that is gone or evicted stay until nothing of the pod is left in
//     the runtime; the kubelet removes them at once.
//   - The kubelet takes what follows the last underscore of a log folder's name as a UID;
//     here a folder that is not named like a pod's is left alone.
//   - If there is no folder of pod logs, the kubelet's pass fails; here there is nothing
//     to do.
//   - If the folder of pod logs cannot be read, the kubelet leaves dead links alone; ours
//     removes them.
//   - If the folder of links cannot be read, the pass fails; the kubelet takes it for empty,
//     and removes no container.
//   - The snapshot tells whether the container of a dead link may write again; the kubelet
//     asks for its status, and removes the link of a running container if that fails.
//   - Requests are a set, not a queue of 50 that drops what does not fit.
//
// # Testing your code with it
//
// Call Collect instead of Run, with the node of package fakecri and the fake clock, or
// [Decide] with a snapshot written by hand. Loops are best tested with Run in a
// testing/synctest bubble.
package containergc
