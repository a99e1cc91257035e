// Package pleg notices what changes in the pods of a container runtime: the pod
// lifecycle event generator.
//
// # What it does
//
// A [Generator] lists all sandboxes and containers every second, compares the
// lists with those before, asks for the status of what has changed, writes that
// into a podcache.Cache and tells a handler which pod to look at. [Generator.Relist]
// and [Generator.RelistPod] do one such pass; [Generator.Run] decides when. The
// lists are the truth: what was missed is found by the next one. Only a container
// that comes and goes between two of them is never seen. The baseline is the
// generic PLEG of kubelet 1.36.
//
// With [Config].Events, the runtime's stream of events, a change is seen within
// milliseconds: an event is a hint to list its pod, at once if something has ended, and
// a second later if something was created, started or removed, which the agent itself has
// done nearly always. An event that reports what the last list has shown already is
// dropped. What else events contain is not used, for they come late, twice, out of order
// or without their contents.
//
// There are two periods. The time between two global relists is Period, or MaxPeriod
// while the stream can be relied on:
//
//   - it is open and has sent an event: an open one may yet be silent,
//   - a global relist has succeeded since it was opened,
//   - and in the last ten minutes it has announced all changes that global relists found.
//
// A stream that breaks is opened again, with back-off, for ever.
//
// A reader that waits in the cache for news of a pod, a request for a reinspection, and
// what an unfinished pass has left do not wait for MaxPeriod: there is a relist within
// Period.
//
// # What you supply
//
// The four calls of [Runtime], which any CRI client has, a cache that nobody else
// writes to, and a handler. The handler runs during the pass, one event at a time,
// so it should note the pod and return. Where a channel fits better, there is
// [Generator.Watch], which keeps one event per pod for each of its readers and so
// neither loses any nor waits for them; the handler may then do nothing. Optional are
// the stream, of the same client, and a [Lister] that lists faster: pleg/wirelist.
//
// # What it guarantees
//
//  1. No event is lost. One counts as delivered when the handler has returned; what
//     a pass that was cut short did not deliver, the next one does.
//  2. The cache is written before the events of that pod are delivered. A container's
//     death is delivered before its removal.
//  3. A pod that is read as new as t is not shown older than t, and never as absent if
//     the runtime listed it: what has changed and was not inspected yet is kept out
//     of the cache's global time. Where the inspection failed, the reader gets what was
//     known, flagged stale, with the error. It is not kept waiting: how long the
//     runtime will take is not known, and a worker can decide what to do without it.
//  4. A pod whose inspection fails or hangs delays no other. It is set aside and tried
//     again after 1 s, 2 s, and so on up to 1 min; its changes are told meanwhile.
//     Such pods get half of MaxInspections at most. So many pods hanging for the first
//     time at once as to fill all places do delay the inspection of others, by one
//     InspectTimeout at most for each time they fill them; what has not changed, or
//     is absent, is fresh all the same.
//  5. A list that fails changes nothing but the health, and one that hangs fails after
//     ListTimeout. If it fails because it is too large, single pods are still looked
//     at: see [ErrTooLarge].
//  6. The record of a removed pod is deleted when its last event is delivered and a global
//     relist has confirmed the removal.
//  7. However many events and requests come, those of one pod are one, and those of more
//     than eight pods, or of more than one with a [Config].Lister, are one global relist.
//     After it has served hints or requests, Run waits three times as long as that took, at
//     most 100 ms, before it serves more: calls that take less than 33 ms together use at most
//     a quarter of the time.
//  8. [Generator.RelistPod] and [Generator.RequestRelist] always lead to a list that begins
//     after the call, so a caller that has changed something sees the result.
//
// # Goroutines and locking
//
// New starts nothing. Run lists, compares and delivers on its own goroutine and
// inspects on up to MaxInspections others, whose results it takes one by one. They
// end before Run returns, provided that the runtime's calls end with their context,
// and so do the two that read the stream. Each watcher has one until its context ends.
// Relist and RelistPod wait for the inspections they set off, and deliver on the
// goroutine of their caller; beside Run, either may deliver what the other found,
// but never both at a time. One lock serialises the passes and is held while the
// handler runs. Relist and RelistPod wait for it no longer than their context lasts before
// they list; after that, until the pass under way has ended. Healthy, Stats, Watch and the
// two requests do not need it.
//
// ListTimeout and InspectTimeout are real time even on a fake clock.
//
// # How it works
//
// Run asks plan (period.go) what is due: a relist of everything, or of some pods. relist
// and relistPod (relist.go) list (listing.go), compare with the listing before, and have
// proceed decide for each changed pod: inspect it (inspect.go), forget it, or only deliver
// its events. Of a changed pod only the containers are inspected that are new or in
// another state: of an exited one nothing changes any more. The stream of events
// (stream.go) only records hints for plan.
//
// Of each pod there are three views (record.go): what the lists show, what the last good
// inspection found, and what the handler knows. Events are the difference between the first
// and the last, and are delivered one at a time, so that a pass that was cancelled goes on.
//
// A relist that finds a change which no hint announced makes the pod a suspect; if no hint
// follows before the next relist, the stream has missed it, and relists come each Period for
// ten minutes (judge, in period.go).
//
// # Differences from the kubelet
//
//   - The kubelet's channel holds 1,000 events and loses those that do not fit; here
//     no event is lost.
//   - While the inspection of a pod fails, the kubelet holds back the pod's events;
//     here they are delivered.
//   - In the kubelet, no pod becomes fresh before all pods are inspected, so one slow
//     pod delays all; here the other pods become fresh at once.
//   - The kubelet waits for an inspection as long as it takes, and all pods wait with
//     it; here an inspection fails after InspectTimeout and is tried again.
//   - The kubelet inspects a pod whose inspection failed again with each relist; here
//     the next attempts follow after 1 s, 2 s, and so on up to 1 min.
//   - The kubelet inspects all sandboxes and containers of a pod that changed; here
//     only those are inspected whose listed state changed, until a reinspection is
//     requested.
//   - A status that contradicts the list, because the state changed in between or the runtime
//     answered wrongly, is asked for again with the next list; the kubelet keeps it until
//     the pod's list changes.
//   - The kubelet's error of an unhealthy generator does not say why; here it names the
//     last failure of a list. The lists have a deadline of their own, and a slow
//     inspection does not count.
//   - The kubelet's count of the containers in a state keeps its last value when none is
//     left in that state; here it becomes 0.
//   - A state this build does not know counts as unknown; the kubelet panics.
//   - To the kubelet's generator a container that is created and one in an unknown state
//     are the same; here a pod is inspected whose container goes from one to the other.
//   - A requested reinspection of an unknown pod is forgotten after the next full list.
//   - A requested reinspection that meets nothing but changes without an event yields no
//     event in the kubelet, so the request is lost; here it yields a PodSync.
//   - Requests to relist a pod are not limited to 200.
//   - The evented PLEG writes events into the cache and gives up for good after five
//     failures within a moment; since 1.37 it is but a hint as well, on top of a list
//     each second. Here the hints save the lists.
//   - Hints of creations, starts and removals wait for up to 1 s, unless a relist is asked
//     for: the runtime has better to do during a start than to list.
//   - The kubelet's relist of one pod does not notice that the pod is gone; here it does.
//   - When the network of a ready sandbox goes before the sandbox does, the kubelet drops
//     the pod's addresses; here they stay.
//   - The kubelet forgets the addresses of a pod when an inspection fails; here they stay.
//   - [Config].LabelSelector restricts the view, for runtimes shared with others.
//   - For the kubelet, containers without the label of their pod's UID are of a pod
//     without a UID, and its relist of one pod misses sandboxes without that label; here
//     both belong to the pod of the sandbox.
//   - For the kubelet, sandboxes and containers that name no pod at all are those of one
//     pod without a UID; here they are left alone.
//   - Where the newest sandbox vanishes while its pod is inspected, the kubelet shows no
//     address and no active container until the next relist; here those of the sandbox
//     that is now the newest show.
//   - A pod whose newest sandbox has no name has none in the kubelet's status; here it has
//     the name that another sandbox or a container tells.
//
// # Testing your code with it
//
// Call Relist instead of Run, with a scripted Runtime and the fake clock: it returns
// when all is delivered. Loops are best tested with Run and the real clock inside a
// testing/synctest bubble. [Generator.Stats] tells what happened, missed hints included.
package pleg
