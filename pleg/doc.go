// Package pleg detects changes in the pods of a container runtime. It implements the kubelet's
// pod lifecycle event generator (PLEG).
//
// # What it does
//
// A [Generator] lists all sandboxes and containers every second and compares the lists with
// the previous ones. It requests the status of what has changed, writes it into a
// podcache.Cache and calls a handler with an event for the changed pod. [Generator.Relist]
// and [Generator.RelistPod] do one such pass; [Generator.Run] decides when to do one. The
// lists are authoritative: a change that one relist missed is found by the next. Only a
// container that is created and removed between two relists is never seen. The baseline is
// the generic PLEG of kubelet 1.36.
//
// With [Config].Events, the runtime's event stream, changes are found within milliseconds.
// An event is a hint to list its pod: at once if a container or sandbox has stopped, after
// a second if one was created, started or removed, because that is nearly always the
// agent's own work. An event whose change the last list already contains is dropped. The
// other contents of events are not used, because events may be late, duplicated, out of
// order or incomplete.
//
// There are two periods. The time between two global relists is Period, or MaxPeriod while
// the stream can be relied on:
//
//   - it is open and has sent an event (an open stream may send nothing),
//   - a global relist has succeeded since it was opened,
//   - and in the last ten minutes it has announced all changes that global relists found.
//
// A stream that breaks is opened again, with back-off and without a limit on attempts.
//
// The next global relist is done within Period, not MaxPeriod, if a reader waits in the
// cache for a newer status of a pod, if a reinspection was requested, or if the last pass
// was not completed.
//
// # What you supply
//
// The four calls of [Runtime], which any CRI client has; a cache that has no other writer;
// and a handler. The handler runs during the pass, one event at a time, so it should record
// the pod and return. [Generator.Watch] returns the events in a channel instead. It keeps
// one event per pod for each reader, so it neither misses a pod nor waits for readers; the
// handler may then be empty. Optional are the event stream, from the same client, and a
// faster [Lister]: pleg/wirelist.
//
// # What it guarantees
//
//  1. No event is lost. An event is delivered when the handler has returned. The next pass
//     delivers what a cancelled pass did not.
//  2. The cache is written before the events of that pod are delivered. A container's death
//     is delivered before its removal.
//  3. A reader that asks the cache for a pod as new as t never gets an older status, and
//     never an absent pod that the runtime listed: a pod that has changed and is not
//     inspected yet is excluded from the global time of the cache. If the inspection
//     failed, the reader gets the last known status, marked as stale, with the error. It
//     does not wait for the next attempt: how long the runtime will fail is not known, and
//     a pod worker can decide without a new status.
//  4. A pod whose inspection fails or hangs does not delay others. It is retried after 1 s,
//     2 s, and so on up to 1 min; its events are delivered in the meantime. Such pods use
//     at most half of MaxInspections. Only pods that hang for the first time can use all of
//     it. They delay the inspection of other pods by at most one InspectTimeout each time
//     they do. Pods that are unchanged or absent stay fresh all the same.
//  5. A failed list changes nothing except the health. A list that hangs fails after
//     ListTimeout. If a list fails because it is too large, pods are still relisted one by
//     one: see [ErrTooLarge].
//  6. The record of a removed pod is deleted when its last event is delivered and a global
//     relist has confirmed the removal.
//  7. Events and requests of the same pod are merged. If more than eight pods are due, or
//     more than one with a [Config].Lister, one global relist serves them. After serving
//     hints or requests, Run waits three times as long as that took, at most 100 ms, before
//     it serves more. Relists that take less than 33 ms thus use at most a quarter of the
//     time.
//  8. [Generator.RelistPod] and [Generator.RequestRelist] always lead to a list that begins
//     after the call, so a caller that has changed something sees the result.
//
// # Goroutines and locking
//
// New starts nothing. Run lists, compares and delivers on its own goroutine. Inspections
// run on up to MaxInspections other goroutines; Run processes their results one by one.
// They end before Run returns if the runtime's calls return when their context is done, and
// so do the two goroutines that read the event stream. Each watcher has one goroutine until
// its context is done. Relist and RelistPod wait for the inspections that they started and
// deliver events on the caller's goroutine. If they are called while Run is running, each
// of them may deliver events that the other found, but never at the same time. One lock
// serialises the passes and is held while the handler runs. Before they list, Relist and
// RelistPod wait for it at most until their context is done; afterwards they wait until the
// pass in progress has ended. Healthy, Stats, Watch and the two request methods do not need
// it.
//
// ListTimeout and InspectTimeout are real time even on a fake clock.
//
// # How it works
//
// Run calls plan (period.go), which returns what is due: a relist of everything, or of some
// pods. relist and relistPod (relist.go) list (listing.go), compare with the previous
// listing, and call processPod for each changed pod. It inspects the pod (inspect.go),
// deletes its record, or only delivers its events. An inspection of a changed pod requests
// only the statuses of objects that are new or have changed state: an exited container does
// not change. The event stream (stream.go) only records hints for plan.
//
// A record (record.go) has three views of a pod: the newest listing, the result of the last
// successful inspection, and what was delivered to the handler. Events are the difference
// between the first and the last. They are delivered one at a time, so the next pass
// continues where a cancelled one stopped.
//
// If a relist finds a change that no hint announced, the hint may still be on its way. If
// it does not arrive before the next relist, the stream has missed it, and global relists
// are done every Period for ten minutes (checkMissedHints, in period.go).
//
// # Differences from the kubelet
//
//   - The kubelet's channel holds 1,000 events and loses those that do not fit; here no
//     event is lost.
//   - While the inspection of a pod fails, the kubelet does not deliver the pod's events;
//     here they are delivered.
//   - In the kubelet, no pod becomes fresh before all pods are inspected, so one slow pod
//     delays all; here the other pods become fresh at once.
//   - The kubelet waits for an inspection without a limit, and all pods wait with it; here
//     an inspection fails after InspectTimeout and is retried.
//   - After a failed inspection the kubelet inspects the pod again in each relist; here it
//     is retried after 1 s, 2 s, and so on up to 1 min.
//   - The kubelet inspects all sandboxes and containers of a pod that changed; here only
//     those are inspected whose listed state changed, until a reinspection is requested.
//   - A status may contradict the list, because the state changed in between or an answer
//     of the runtime was wrong. The kubelet keeps it until the pod's list changes; here it
//     is requested again with the next list.
//   - The kubelet's error of an unhealthy generator has no cause; here it wraps the error
//     of the last failed list. The lists have their own deadline, and a slow inspection
//     does not make the generator unhealthy.
//   - The kubelet's count of the containers in a state keeps its last value when no
//     container is in that state any more; here it becomes 0.
//   - The kubelet panics on a state that it does not know; here such a state counts as
//     unknown.
//   - The kubelet's generator does not distinguish a created container from one in an
//     unknown state; here a change from one to the other causes an inspection of the pod.
//   - A requested reinspection of an unknown pod is dropped after the next global relist.
//   - A requested reinspection that finds only changes without an event causes no event in
//     the kubelet, so the request is lost; here it causes a PodSync.
//   - Requests to relist a pod are not limited to 200.
//   - The kubelet's evented PLEG writes events into the cache, and is disabled for good
//     after five failures in quick succession. Since 1.37 its events are only hints as
//     well, in addition to a list every second; here they replace most of those lists.
//   - Hints of creations, starts and removals wait for up to 1 s, unless a relist is
//     requested, so that the runtime does not list while it starts a pod.
//   - The kubelet's relist of one pod does not notice that the pod is gone; here it does.
//   - When the network of a ready sandbox is removed before the sandbox, the kubelet drops
//     the pod's addresses; here they stay.
//   - The kubelet drops the addresses of a pod when an inspection fails; here they stay.
//   - [Config].LabelSelector restricts the generator to some pods, for runtimes shared with
//     other agents.
//   - The kubelet assigns containers without the pod UID label to a pod without a UID, and
//     its relist of one pod misses sandboxes without that label; here both belong to the
//     pod of the sandbox.
//   - The kubelet assigns all sandboxes and containers that name no pod to one pod without
//     a UID; here they are ignored.
//   - If the newest sandbox is removed while its pod is inspected, the kubelet has no
//     address and no active container of the pod until the next relist; here it has those
//     of the sandbox that is now the newest.
//   - A pod whose newest sandbox has no name has no name in the kubelet's status; here it
//     has the name from another sandbox or a container.
//
// # Testing your code with it
//
// Call Relist instead of Run, with a scripted Runtime and the fake clock. It returns when
// all events are delivered. Test loops with Run and the real clock inside a
// testing/synctest bubble. [Generator.Stats] returns the counters, including missed hints.
package pleg
