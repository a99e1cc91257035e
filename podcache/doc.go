// Package podcache caches the state of each pod in the container runtime, with the time at
// which it was observed.
//
// # What it does
//
// One writer, usually a pleg.Generator, stores a [Status] per pod. Readers get the newest
// status with [Cache.Get], or wait with [Cache.GetNewerThan] for a status at least as new
// as a given time, for example the time of the reader's last change to the pod. With
// [Cache.UpdateTime], the writer sets the global time, which is the start of a listing of
// all pods. The baseline is the cache of kubelet 1.36.
//
// # What you supply
//
// Nothing: [New] has no configuration. The writer supplies the times. Each time is the
// start of an inspection or of a listing of the runtime, not the end, so that no status is
// recorded as newer than it is.
//
// # What it guarantees
//
//  1. There is one rule of freshness: a pod is as new as t if the writer wrote the pod with
//     a time of t or later, or if the global time applies to the pod and is t or later.
//  2. Freshness never decreases: neither the freshness of a pod nor the global time. An
//     older write never replaces a newer write.
//  3. The global time applies to all pods, including those that are not in the cache,
//     except the pods that the writer excludes. The writer excludes a pod that has changed
//     and is not inspected yet, so that GetNewerThan does not return its old status, or
//     report the pod as absent.
//  4. Before the first global time, a pod that is not in the cache may exist: readers wait,
//     and [Cache.Known] returns false.
//  5. A reader waits only for the pod that it asked for, and only until its context is
//     done.
//  6. A Status does not change after the Cache has returned it.
//
// # Goroutines and locking
//
// The package starts no goroutine, and its only callback is the function that
// [Cache.OnWait] sets. All methods are safe for concurrent use; only GetNewerThan blocks.
// Statuses are shared by all readers, which must not modify them.
//
// There is one lock. Methods hold the lock briefly; a read takes tens of nanoseconds.
//
// # Differences from the kubelet
//
//   - A reader of the kubelet's cache waits until the status is new enough; here
//     GetNewerThan also returns when its context is done.
//   - Here a status is new enough if its time is at or after the requested time. In the
//     kubelet an equal time wakes a waiter but does not satisfy a new call.
//   - The kubelet's cache accepts a status that is older than the cached status; here Set
//     rejects it.
//   - The kubelet deletes a pod even if its status is newer than the deletion; here such a
//     deletion changes nothing.
//   - In the kubelet, an older observation or global time makes a status older again; here
//     freshness never decreases.
//   - In the kubelet, a deletion leaves readers waiting until the next global time; here a
//     deletion wakes them.
//   - The kubelet does not record when it observed that a pod was missing; here the cache
//     keeps that time until the global time has reached it.
//   - Here UpdateTime can exclude pods. The kubelet calls UpdateTime only after it has
//     inspected every changed pod, so a pod whose inspection hangs delays all other pods.
//   - The kubelet's cache does not report whether a reader waits; here it does, so that the
//     writer can list the runtime less often while no reader waits.
//   - After a failed inspection the kubelet has only the error; here the writer also stores
//     the last known status, marked as stale.
//   - [StartInterrupted] distinguishes a container whose start was interrupted, for example
//     because the agent was killed, from a failed container. The kubelet treats such a
//     container as failed.
//   - The kubelet sorts the containers of a pod by creation time; here the restart count
//     comes first, because clocks may go backwards (kubernetes#134153). Both sort sandboxes
//     by attempt first (kubernetes#130551).
//   - The kubelet leaves sandboxes or containers created at the same time in the order of
//     the runtime's list, which may differ each time; here they are sorted by ID.
//
// # Testing your code with it
//
// Use a real Cache; it needs no configuration and no clock:
//
//	cache := podcache.New()
//	cache.Set(uid, &podcache.Status{UID: uid}, nil, now)
//	cache.UpdateTime(now)
package podcache
