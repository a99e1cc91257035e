// Package podcache keeps what the container runtime says about each pod, and
// how new that is.
//
// # What it does
//
// One writer, usually a pleg.Generator, stores a [Status] per pod. Any number of
// readers take the newest one with [Cache.Get], or with [Cache.GetNewerThan] one
// that is at least as new as a moment they name: "show me this pod as it is after
// what I just did to it". The baseline is the cache of kubelet 1.36.
//
// # What you supply
//
// Nothing: [New] has no configuration. Whoever writes supplies the times. A time
// says when the look at the runtime began, not when it ended, so that nothing in
// the cache is ever claimed to be newer than it is.
//
// # What it guarantees
//
//  1. There is one rule of freshness: a pod is as new as t if a write to it, or
//     the global time, was at t or later.
//  2. Freshness never goes back, neither of a pod nor of the whole. An older write
//     never replaces a newer one.
//  3. The global time speaks for all pods, those that are not in the cache included,
//     but for those that its writer names: they are known to have changed and not
//     looked at yet, so nobody is told that they are fresh or that they are absent.
//  4. Before the first global time, absence means nothing: readers wait, and
//     [Cache.Known] reports false.
//  5. A reader waits for its own pod only, and no longer than its context.
//  6. A Status that was handed out does not change.
//
// # Goroutines and locking
//
// The package starts no goroutine and makes no callback but that of [Cache.OnWait].
// All methods may be called by any number of goroutines; only GetNewerThan blocks.
// Statuses are shared by all their readers, who must not modify them.
//
// One lock is enough: no method does more under it than it must, and a read takes
// tens of nanoseconds.
//
// # Differences from the kubelet
//
//   - A reader of the kubelet's cache waits until there is a status; here GetNewerThan
//     returns when its context ends.
//   - "At or after" is the rule for all; in the kubelet an equal time releases a
//     waiter but does not satisfy a new call.
//   - The kubelet's cache accepts a status that is older than the known one; here Set
//     refuses it.
//   - The kubelet deletes a pod whatever is known of it; here a deletion that is older
//     than the known status changes nothing.
//   - In the kubelet, an older observation or global time makes a status older again;
//     here freshness never goes back.
//   - In the kubelet, a deletion leaves readers waiting until the next global time; here
//     it wakes them.
//   - The kubelet forgets at once when it saw that a pod was missing; here the cache
//     remembers that until the global time has passed it.
//   - UpdateTime takes the pods that it does not speak for. In the kubelet it comes
//     only after every pod was inspected, so that one that hangs holds up all.
//   - The writer can learn that somebody waits, so it need not look all the time.
//   - After a failed inspection the kubelet has nothing but the error; here the cache
//     keeps the last known status beside the error, and flags it as stale.
//   - [BrokenOff] tells a container that never began, because its agent was killed in
//     the middle of starting it, from one that failed. The kubelet takes it for failed.
//   - The kubelet sorts the containers of a pod by creation time; here the restart count
//     comes first, because clocks step back (kubernetes#134153). Both sort sandboxes by
//     attempt first (kubernetes#130551).
//   - The kubelet leaves sandboxes or containers made at the same time in the order of
//     the runtime's list, which may be another each time; here their IDs decide.
//
// # Testing your code with it
//
// Use the real thing; it needs no set-up and no clock:
//
//	cache := podcache.New()
//	cache.Set(uid, &podcache.Status{UID: uid}, nil, now)
//	cache.UpdateTime(now)
package podcache
