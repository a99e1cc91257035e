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
// that somebody can find out why they died, and because restarts are counted from them.
// The kubelet's settings mean what they mean there; [Policy] and [LogPolicy] have some
// that users have long asked it for: a time to live, a budget for pods that have ended,
// a limit in bytes, and logs that outlive their container.
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
//  6. Age counts from the end of a container and no longer than since it was first seen
//     dead, so that a clock that steps back makes nothing young for ever.
//  7. A pass takes one list of each kind, or one snapshot, for all that it does. One
//     with nothing to do makes no other call.
//  8. One that will not go, or hangs, stops nothing else. It is tried again after 1 min,
//     2 min, and so on up to 15 min; nothing is forgotten, because the next pass decides
//     on what is there. Requests for single pods are never dropped either.
//  9. Nothing outside the folders of logs is removed, whatever links a pod has planted.
//
// # Goroutines and locking
//
// New starts nothing. A pass removes with up to Workers goroutines, each of which cleans
// up one pod at a time; they end before it returns, provided that the runtime's calls
// end with their context. Passes wait for each other, no longer than their context
// lasts, and one that somebody needs for the disk makes the one before it hurry.
// CallTimeout is real time even on a fake clock.
//
// # Differences from the kubelet
//
//   - While a source of pods is not ready, the kubelet enforces limits and removes
//     sandboxes; here nothing happens, and DeleteAllUnusedContainers says so.
//   - Age counts from the end, not from the creation.
//   - A created container is not taken for a dead one.
//   - Attempts tell which container or sandbox is the newest, then creation times; there
//     it is creation times and, where they are equal, chance.
//   - One snapshot instead of three lists, and no status to find a container's log.
//   - A removal that fails is an error, and backs off, and keeps the sandbox and logs
//     that belong to it; there it is logged and assumed to have worked.
//   - The event about failures is made once in ten minutes instead of in each pass.
//   - Logs of an evicted pod stay until nothing of it is left in the runtime.
//   - Logs of containers that somebody else has removed go too, rotated ones included.
//   - Whether a link's container may write again is known from the snapshot.
//   - A container without a pod, or a folder not named as a pod's, is left alone.
//   - Requests are a set, not a queue of 50 that drops what does not fit.
//
// # Testing your code with it
//
// Call Collect instead of Run, with the node of package fakecri and the fake clock, or
// [Decide] with a snapshot written by hand. Loops are best tested with Run in a
// testing/synctest bubble.
package containergc
