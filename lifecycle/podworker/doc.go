// Package podworker brings pods through their lives, one step of one pod at a
// time.
//
// # What it does
//
// [Workers] hold a small record per pod and call a [Syncer] for it, never twice
// at once: when the pod is new or changed, when something happened to it, when a
// turn failed and is to be repeated, and once a minute in any case. A pod moves
// through four phases and never back:
//
//	Syncing → Terminating → Terminated → Finished → forgotten
//
// A deletion, a kill, an eviction, a terminal phase in its API status, the verdict
// of SyncPod that it ran to completion, or the news that nobody wants it make a
// pod Terminating. When the Syncer says that nothing runs any more, it is
// Terminated, and when what it held is released, Finished. It stays known until
// [Workers.SyncKnownPods] finds that it is not desired, or desired again under the
// same UID; then it is forgotten and may begin anew.
//
// Two static pods of one name never run at once: the one that came later waits
// until the one before has finished. A pod that only the runtime knows can be
// killed and nothing else: [Workers.KillOrphans] finds it in the runtime's list.
//
// Every turn gets a status of the pod that is newer than the end of the turn
// before, so that no turn repeats what the last one did; a Syncer that has refreshed
// the cache after its last change says so by [Turn.Refreshed]. That holds across lives of
// one UID too: a new one does not begin with what the last one has left behind. It
// also holds where the clock stands still, as in a testing/synctest bubble whose
// runtime answers at once: there a turn waits for the first look at a later time.
//
// When the node shuts down, [PlanShutdown] says which pods end in which order, by
// priority and critical ones last, [Shutdown] does that, and [HoldShutdown] has the
// machine wait for it.
//
// # What you supply
//
// A [Syncer] that acts (lifecycle/podrunner has one for CRI), a [Cache] of what
// the runtime says (podcache), and the updates. AfterSync is where to hook up the
// request for another look at the runtime. For shutdowns, an [Inhibitor] if the
// machine has one, and what waits for volumes and flushes statuses.
//
// # What it guarantees
//
//  1. At most one call of the Syncer per UID at a time; other pods never wait
//     for it.
//  2. Phases only move forward. After a pod became Terminating, SyncPod is not
//     called any more, and a call under way has its ctx cancelled.
//  3. The newest update counts. One that came after a turn had begun leads to
//     another turn. Intermediate ones may be passed over, an end never is.
//  4. Grace never grows, and is one deadline for all terminating turns of a pod. A
//     shorter one moves it for a turn under way that follows [Turn.Deadline], and
//     cancels the ctx of one that does not; the next turn has the shorter one.
//  5. [Workers.KillPod] always reports, once: when nothing of the pod runs, when
//     its ctx is done, or when Run returns.
//  6. A pod ends even if the runtime cannot be asked about it: see
//     [Config.FreshTimeout].
//  7. A failed turn is repeated: after 10 to 15 s, or when its error says, see
//     [RetryError] and [TransientError].
//  8. Of a forgotten pod nothing is left but the time of its end, for two calls of
//     SyncKnownPods.
//  9. A sweep never ends a pod that is newer than its list of what is desired.
//  10. A stage of a shutdown never takes longer than its period and one flush, if
//     what it calls heeds its ctx, and every stage gets its turn.
//
// # Goroutines and locking
//
// A pod has a goroutine only while it has a turn. Every turn has a ctx of its own, so
// that nothing that hangs on it outlives the turn. All due times are in one heap and
// Run sleeps until the first of them; nothing polls. One mutex guards the
// records and is held for bookkeeping only: not while the Syncer, the Cache's
// GetNewerThan, AfterSync or an Observer runs, so all of them may call back. Run
// returns when every turn has; a Syncer that ignores its ctx delays that.
//
// # Differences from the kubelet
//
//   - killPodNow waits 10 s for a pod that has finished, for a static pod that
//     never started, and for one that was forgotten: nobody tells it. Here
//     everybody who waits is told. There is no timeout of 1.5 times the grace
//     either: ctx is the caller's.
//   - A pod that has a terminal phase when it becomes known is stopped unless the cache
//     knows that nothing of it runs; the kubelet takes it for stopped as long as its
//     cache knows nothing.
//   - The wait for a fresh status can be interrupted. In the kubelet, a runtime
//     that hangs keeps pods from being evicted.
//   - Turns get a ctx that ends when a second deletion has a shorter grace
//     (kubernetes#127339, kubernetes#113606).
//   - An idle pod costs a record of a few hundred bytes, not a goroutine; the due
//     time of a pod is met, not looked up once a second.
//   - A static pod that waits for another is started by the end of that one,
//     without back-off.
//   - A static pod that is killed before its start ends like any other, unless it
//     waits behind another of its name, nothing of it can run, and the kill has no
//     [KillOptions.StatusFn]: then it is finished at once. One that is to end when it
//     first comes keeps those of its name that come later waiting.
//   - [RetryError] names a time and gets no jitter; the kubelet adds up to half.
//     A plain error joined to it still has the turn repeated after the back-off.
//   - "Network not ready" is a type, not a text.
//   - A pod whose spec has no grace period gets 30 s, the API's default.
//   - Who called SyncKnownPods need not replay anything: resyncs and retries
//     happen here.
//   - Workers ignore a Sync of a pod that they do not know; the kubelet begins the pod.
//     In the kubelet, one goroutine sends all updates. Here PLEG's events and the Create
//     of a pod may come from two goroutines, in any order. If a Sync began a pod and the
//     pod ended before its Create came, the Create would run it a second time.
//   - SyncKnownPods asks for the list of what is desired itself, and so needs no
//     loop that it shares with the updates.
//   - The status of a pod that ended in a shutdown is written before the machine goes
//     down, if Flush sees to that.
//   - A shutdown that is called off stops at once; the kubelet notices that after it
//     has ended all pods.
//   - If the machine allows less time than a shutdown needs, the first stages give up
//     theirs. The kubelet does without the graceful shutdown then.
//   - The kubelet cuts ShutdownGracePeriod and ShutdownGracePeriodCriticalPods to
//     whole seconds; here a stage has all of its time.
//   - The kubelet accepts negative periods in shutdownGracePeriodByPodPriority, and two
//     of one priority, of which it uses any; ours refuses them.
//   - The kubelet asks for the volumes of all pods of a stage, also when its time is
//     over; ours for those of the pods that have ended in time, because the others
//     still use theirs.
//
// # Testing your code with it
//
// Run it in a testing/synctest bubble with a Syncer and a Cache of a few lines
// each; the example does without even that. Every time comes from [Config.Clock],
// every random number from [Config.Jitter].
package podworker
