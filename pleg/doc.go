// Package pleg detects changes in the pods of a container runtime. It implements the kubelet's
// pod lifecycle event generator (PLEG).
//
// # What it does
//
// A [Generator] lists all sandboxes and containers every second and compares the lists with
// the previous lists. It requests the statuses of the changed sandboxes and containers,
// writes them into a podcache.Cache and calls a handler with an event for each change.
// [Generator.Relist] and [Generator.RelistPod] do a single pass; [Generator.Run] does each
// pass when it is due. The lists are authoritative: if a relist misses a change, the next
// relist finds it. A container that is created and removed between two relists is never
// detected. The baseline is the generic PLEG of kubelet 1.36.
//
// With the runtime's event stream ([Config].Events), an event is a hint to list its pod. If
// a container or sandbox has stopped, the generator lists the pod at once, and so finds the
// change within milliseconds. If a container or sandbox was created, started or removed, it
// lists the pod after a second, because these changes are nearly always the agent's own
// work. It drops an event whose change the last list already contains. It does not use the
// states in events, because events may be late, duplicated, out of order or incomplete.
//
// A relist of all pods is a global relist. The time between two global relists is Period, or
// MaxPeriod while the generator relies on the stream. It relies on the stream if all of the
// following are true:
//
//   - The stream is open and has sent an event. (An open stream may send nothing.)
//   - A global relist has succeeded since the stream was opened.
//   - In the last ten minutes the stream has announced all changes that global relists
//     found.
//
// If the stream breaks, the generator opens it again, with back-off and without a limit on
// attempts.
//
// The generator does the next global relist within Period, not MaxPeriod, in these cases:
//
//   - A reader of the cache waits for a newer status of a pod.
//   - A reinspection was requested.
//   - An event did not name its pod.
//   - The last pass was not completed.
//
// # What you supply
//
// You supply a [Runtime], a cache that no other code writes, and a handler. Any CRI client
// has the four methods of a Runtime. The generator calls the handler during the pass, with one event at
// a time, so the handler should record the pod and return. [Generator.Watch] returns a
// channel of events as an alternative; the handler may then do nothing. For each channel
// the generator stores at most one unread event per pod. A slow reader thus misses no
// changed pod and does not delay the generator. The event stream and a faster [Lister] are
// optional. The CRI client also provides the event stream; package pleg/wirelist provides a
// faster Lister.
//
// # What it guarantees
//
//  1. No event is lost. An event counts as delivered when the handler has returned. The
//     next pass delivers the events that a cancelled pass did not deliver.
//  2. The generator updates the status of a pod in the cache before it delivers the pod's
//     events. It delivers the death of a container before the removal.
//  3. A reader that requests a status at least as new as t gets such a status or an error.
//     If the inspection failed, the reader gets the error and the last known status, marked
//     as stale. The reader does not wait for the next attempt, because the runtime may fail
//     for an unknown time, and a pod worker can decide without a new status. If the runtime
//     listed the pod, the reader never gets the answer that the pod is absent. The
//     global time of the cache does not apply to a changed pod until its inspection has
//     ended, so the reader waits for the inspection.
//  4. A pod whose inspection fails or hangs does not delay other pods. The generator
//     retries the inspection after 1 s, 2 s, and so on up to 1 min, and delivers the pod's
//     events in the meantime. Retries use at most half of MaxInspections. Other pods
//     are delayed in only one case: if MaxInspections inspections hang at the same time,
//     further inspections wait until one of the hanging inspections fails after
//     InspectTimeout. Even then the cache stays current for unchanged and absent pods.
//  5. A failed list does not change the cache. Only a failed list of all pods affects
//     [Generator.Healthy]. A list that hangs fails after ListTimeout. If the list of all pods
//     fails because it is too large, Run still relists pods one by one: see [ErrTooLarge].
//  6. The generator deletes the record of a removed pod after it has delivered the pod's
//     last event and a global relist has confirmed the removal.
//  7. Run merges the hints and requests of a pod. If more than eight pods are due (with a
//     [Config].Lister: more than one), one global relist serves all of them, unless the last
//     global relist failed. After Run has served hints or requests, it pauses before it
//     serves more. The pause is three times as long as the relists took, but at most 100 ms.
//     Relists that take less than 33 ms thus use at most a quarter of the time.
//  8. [Generator.RelistPod] and [Generator.RequestRelist] always cause a list that begins
//     after the call. If the caller has changed a pod before the call, that list contains
//     the change.
//
// # Goroutines and locking
//
// New starts nothing. Run lists, compares and delivers events on the goroutine of its
// caller. Inspections run on up to MaxInspections other goroutines; Run processes the
// results one by one. Two more goroutines read the event stream. The runtime's calls must
// return when their context is done; all of these goroutines then end before Run returns.
// Each watcher has one goroutine until its context is done. Relist and RelistPod wait for
// the inspections that they started and deliver events on the caller's goroutine. While Run
// is in progress, Run may deliver events that Relist or RelistPod found, and Relist and
// RelistPod may deliver events that Run found. Events are never delivered at the same time.
//
// One lock serialises the passes; a pass holds the lock while the handler runs. To start a
// pass, Relist and RelistPod wait for the lock until their context is done. To process the
// results of their inspections, they wait for the lock even if their context is done.
// Healthy, Stats, Watch, RequestRelist and RequestReinspect do not need the lock.
//
// ListTimeout and InspectTimeout are measured in real time, even if the clock is fake.
//
// # How it works
//
// Run calls plan (period.go), which returns the relists that are due: a global relist, or
// relists of some pods. relist and relistPod (relist.go) list the sandboxes and containers
// (listing.go), compare them with the previous listing, and call processPod for each
// changed pod. processPod inspects the pod (inspect.go), deletes its record, or only
// delivers its events. An inspection of a changed pod requests only the statuses that may
// be outdated. These are the statuses of new objects, of objects whose state has changed, of
// objects in the state CREATED or UNKNOWN, and of ready sandboxes without an address. The
// code for the event stream (stream.go) only records hints for plan.
//
// A record (record.go) contains the newest listing of a pod, the result of the pod's last
// successful inspection, and the listing up to which all events were delivered. The events
// of the pod are the differences between the two listings. The record is updated after the
// delivery of each event, so the next pass continues where a cancelled pass stopped.
//
// If a global relist finds a change that no hint announced, the hint may still arrive. If
// it does not arrive before the next global relist, it counts as missed. The generator then
// does a global relist every Period for ten minutes (checkMissedHints in period.go).
//
// # Differences from the kubelet
//
//   - The kubelet's channel holds 1,000 events and loses events that do not fit; here no
//     event is lost.
//   - While the inspection of a pod fails, the kubelet does not deliver the pod's events;
//     here they are delivered.
//   - The kubelet advances the global time of the cache only after it has inspected all
//     changed pods, so one slow inspection delays the readers of all pods; here it delays
//     only the readers of its own pod.
//   - The kubelet waits for an inspection without a limit, and all pods wait with it; here
//     an inspection fails after InspectTimeout and is retried.
//   - After a failed inspection the kubelet inspects the pod again in each relist; here the
//     inspection is retried after 1 s, 2 s, and so on up to 1 min.
//   - The kubelet inspects all sandboxes and containers of a pod that changed; here only
//     sandboxes and containers whose listed state changed are inspected, unless a
//     reinspection is requested.
//   - A status may contradict the list, because the state changed in between or an answer
//     of the runtime was wrong. The kubelet keeps such a status until the pod's list
//     changes; here the status is requested again with the next list.
//   - The kubelet's error of an unhealthy generator has no cause; here the error wraps the
//     error of the last failed list. In the kubelet a slow inspection can make the
//     generator unhealthy; here the lists have their own deadline, and only the lists
//     count.
//   - The kubelet's count of the containers in a state keeps its last value when no
//     container is in that state any more; here it becomes 0.
//   - The kubelet panics on a state that it does not know; here such a state counts as
//     unknown.
//   - The kubelet's generator does not distinguish a created container from one in an
//     unknown state; here a change from one to the other causes an inspection of the pod.
//   - The kubelet keeps a requested reinspection of an unknown pod until the pod appears;
//     here the request is dropped if the next global relist does not find the pod.
//   - If a requested reinspection finds only changes to the state CREATED or UNKNOWN, the
//     kubelet delivers no event, so the request is lost; here the generator delivers a
//     PodSync.
//   - The kubelet limits the number of requests to relist a pod to 200; here there is no
//     limit.
//   - The kubelet's evented PLEG writes events into the cache, and is disabled for good
//     after five failures in quick succession. Since 1.37 the events of the kubelet are
//     only hints as well, but the kubelet still lists all pods every second; here the
//     events replace most of these lists.
//   - Here Run holds back hints of creations, starts and removals for up to 1 s, so
//     that the runtime does not list while it starts a pod. A requested relist of the
//     pod serves these hints earlier.
//   - The kubelet's relist of one pod does not detect that the pod was removed; here this
//     relist detects the removal.
//   - When the network of a ready sandbox is removed before the sandbox, the kubelet drops
//     the pod's addresses; here they stay.
//   - The kubelet drops the addresses of a pod when an inspection fails; here they stay.
//   - The kubelet lists all pods of the runtime; here [Config].LabelSelector can restrict
//     the generator to some pods, for runtimes that other agents use too.
//   - The kubelet assigns containers without the pod UID label to a pod without a UID, and
//     its relist of one pod misses sandboxes without that label; here a container without
//     the label belongs to the pod of its sandbox, and a sandbox without the label to the
//     pod in its metadata.
//   - The kubelet assigns all sandboxes and containers that name no pod to one pod without
//     a UID; here they are ignored.
//   - If the newest sandbox is removed while its pod is inspected, the kubelet's status has
//     no address and no active container until the next relist; here the status has the
//     address and the active containers of the next newest sandbox.
//   - If the newest sandbox of a pod has no pod name, the kubelet's status of the pod has
//     no name; here the status has the name from another sandbox or a container.
//
// # Testing your code with it
//
// Call Relist instead of Run, with a scripted Runtime and a fake clock. Relist returns when
// all events are delivered. To test a loop, call Run with the real clock inside a
// testing/synctest bubble. [Generator.Stats] returns the counters, including missed hints.
package pleg
