// Package podworker runs the life cycle of pods. Each pod has a worker, which
// runs one sync of the pod at a time.
//
// # What it does
//
// [Workers] have one record for each pod. They call a [Syncer] when the pod is
// new or has changed, when its containers have changed, and when a failed sync
// must be repeated. Otherwise they call the Syncer 60 to 90 s after the last
// sync. Each call is a sync, and its argument is a [SyncRequest]. A pod is
// known while it has a record. It is forgotten when its record was deleted. A
// pod is desired while a source of pods lists it. A known pod is in one of four
// phases. The pod may skip a phase, but never goes back to an earlier phase:
//
//	Syncing → Terminating → Terminated → Finished → forgotten
//
// A pod becomes Terminating in one of these cases:
//
//   - It is deleted, killed or evicted.
//   - Its API status has a terminal phase.
//   - SyncPod reports that it ran to completion.
//   - It is not desired any more.
//
// It becomes Terminated when SyncTerminatingPod succeeds: all containers of the
// pod have stopped. It becomes Finished when SyncTerminatedPod succeeds: the
// resources of the pod are released. A finished pod stays known until it is
// forgotten. [Workers.SyncKnownPods] forgets it if it is not desired or was
// created again under the same UID, and [Workers.Forget] forgets it in any
// case. A forgotten pod can be created again. A pod that only the runtime knows
// is forgotten as soon as it has finished.
//
// Two static pods with the same full name never run at the same time: the later
// pod waits until the earlier pod has finished. A pod that only the runtime
// knows can only be killed: [Workers.KillOrphans] finds such pods in the
// runtime's list.
//
// Each sync gets a status of the pod that is newer than the end of the pod's
// previous sync. With an older status, the sync could repeat the actions of the
// previous sync. The exception is a sync of a Terminating or Terminated pod: it
// gets an older status if no new status arrives in time, see
// [Config.FreshTimeout]. If a Syncer has refreshed the cache after its last
// change, it calls [SyncRequest.Refreshed], and the next sync need not wait for
// a newer status. A pod that is created with the UID of a forgotten pod does
// not get the status of the forgotten pod. If the clock does not advance, as in
// a testing/synctest bubble whose runtime answers at once, a sync waits for the
// first status with a later time.
//
// When the node shuts down, [PlanShutdown] returns the order in which pods are
// terminated: by priority, critical pods last. [Shutdown] terminates the pods
// in this order, and [HoldShutdown] delays the shutdown of the machine until
// Shutdown has returned.
//
// # What you supply
//
// You supply a [Syncer] that does the work (lifecycle/podrunner has a Syncer
// for CRI), a [Cache] of the runtime's state (podcache), and the updates of
// pods. [Config.AfterSync] should request a new status from the runtime. For
// shutdowns: an [Inhibitor], if the machine can delay its shutdown, and
// functions that wait for volumes and write out statuses.
//
// # What it guarantees
//
//  1. At most one call of the Syncer per UID runs at a time; other pods never
//     wait for this call.
//  2. Phases only move forward. After a pod became Terminating, SyncPod is not
//     called any more, and the ctx of a running call is cancelled.
//  3. The newest update counts. An update that arrives after a sync has begun
//     leads to another sync. Intermediate updates may be skipped, but a
//     termination is never skipped.
//  4. The grace period never grows, and all terminating syncs of a pod share
//     one deadline. A shorter grace period moves this deadline to an earlier
//     time. If the running sync has called [SyncRequest.Deadline], it continues
//     with the new deadline. Otherwise the sync is cancelled, and the next sync
//     has the shorter grace period.
//  5. [Workers.KillPod] always returns: when nothing of the pod runs, when its
//     ctx is done, or when Run returns.
//  6. A pod is terminated even if the runtime does not return its status: see
//     [Config.FreshTimeout].
//  7. A failed sync is repeated: after 10 to 15 s, or at the time that its
//     error requests, see [RetryError] and [TransientError].
//  8. For a forgotten pod, the Workers store only the time at which its last
//     sync ended. They delete this time in the second call of SyncKnownPods
//     after the pod was forgotten.
//  9. SyncKnownPods never terminates a pod that is newer than the list of
//     desired pods.
//  10. [Shutdown] carries out every stage, even if an earlier stage fails. It
//     stops early only if its ctx is done. A stage takes at most its period,
//     and the flush after the stage takes at most
//     [ShutdownOptions].FlushTimeout. For this, the functions that Shutdown
//     calls must return when their ctx is done.
//
// # Goroutines and locking
//
// A pod has a goroutine only during a sync. Every sync has its own ctx, which
// is cancelled when the sync ends. The due times of all syncs are in one heap,
// and Run sleeps until the earliest due time; nothing polls. One mutex guards
// the records. The mutex is not held while the Syncer, the Cache's
// GetNewerThan, AfterSync or an Observer runs, so all of them may call methods
// of the Workers. After Run's ctx is done, Run returns when every sync has
// ended; a Syncer that ignores its ctx delays the return of Run.
//
// # Differences from the kubelet
//
//   - The kubelet's killPodNow waits 10 s for a pod that has finished, for a
//     static pod that never started, and for a forgotten pod: nothing notifies
//     the caller. Here every waiting caller is notified. There is no timeout of
//     1.5 times the grace period either: the caller's ctx limits the wait.
//   - If a pod has a terminal phase when it becomes known, the Workers stop the
//     pod. They skip this only if the cache has a status in which nothing of
//     the pod runs. While the kubelet's cache has no status of the pod, the
//     kubelet assumes that the pod has stopped.
//   - The termination of a pod interrupts a sync that waits for a fresh status.
//     In the kubelet, nothing interrupts this wait, so pods can't be evicted
//     while the runtime hangs.
//   - If a second deletion has a shorter grace period, the Workers cancel the
//     running sync (kubernetes#127339, kubernetes#113606). If the sync has
//     called [SyncRequest.Deadline], it continues with the new deadline
//     instead.
//   - In the kubelet, an idle pod costs a goroutine; here it costs a record of
//     a few hundred bytes. Here a sync starts exactly when it is due; the
//     kubelet checks once a second.
//   - Here a static pod that waits for another static pod is started as soon as
//     the other pod has finished. The kubelet tries again after a back-off.
//   - In the kubelet, a static pod that is killed before its start finishes at
//     once. Here it goes through the phases Terminating and Terminated. It
//     finishes at once only if it waits for another static pod of its name,
//     nothing of it can run, and the kill has no [KillOptions.StatusFn]. If the
//     first update of a static pod already makes it Terminating, later pods of
//     its name wait for it.
//   - A sync that returns a [RetryError] is repeated at the time in the error,
//     without jitter; the kubelet prolongs the delay by up to half. If the
//     RetryError is joined with other errors, the sync is repeated at that time,
//     or earlier after [Config.BackoffPeriod] with its jitter.
//   - The Workers recognize the error of a network that is not ready by its
//     type, [TransientError]; the kubelet recognizes it by its text.
//   - Here a pod whose spec has no grace period gets 30 s, the API's default;
//     in the kubelet it gets 1 s.
//   - In the kubelet, the sync loop sends an update for each resync and retry.
//     Here the Workers do resyncs and retries themselves.
//   - Workers ignore a Sync of an unknown pod; the kubelet starts the pod. In
//     the kubelet, one goroutine sends all updates. Here PLEG's events and the
//     Create of a pod may come from two goroutines, in any order. If a Sync
//     started a pod and the pod ended before its Create came, the Create would
//     run the pod a second time.
//   - The kubelet's SyncKnownPods gets the list of desired pods. Here it gets a
//     function that returns the list, so SyncKnownPods need not be called in
//     the loop that passes updates.
//   - If the Flush function of a shutdown writes statuses, the status of a pod
//     that ended in the shutdown is written before the machine goes down. The
//     kubelet does not wait for statuses.
//   - A cancelled shutdown stops at once; the kubelet notices the cancellation
//     after it has killed all pods.
//   - If the machine allows less time than a shutdown needs, this package
//     shortens the first stages. The kubelet skips the graceful shutdown.
//   - The kubelet rounds ShutdownGracePeriod and
//     ShutdownGracePeriodCriticalPods down to whole seconds; here a stage has
//     all of its time.
//   - The kubelet accepts negative periods in shutdownGracePeriodByPodPriority.
//     It also accepts two entries with the same priority, and uses either entry.
//     This package rejects both.
//   - The kubelet waits for the volumes of all pods of a stage, even when the
//     stage's time is over. This package waits only for the volumes of pods
//     that have ended in time, because the other pods still use their volumes.
//
// # Testing your code with it
//
// Run it in a testing/synctest bubble with a Syncer and a Cache of a few lines
// each; see the example. Every time comes from [Config.Clock], every random
// number from [Config.Jitter].
package podworker
