// Package eviction frees memory, disk space, inodes and process ids before the node runs
// out of them. It reports pressure as node conditions, refuses new pods, deletes dead
// containers and unused images, and then evicts pods. It evicts as few pods as are needed,
// and explains their order. It also evicts pods that use more local storage than their
// limits allow.
//
// It behaves like kubelet 1.36, with the same messages, except for the differences listed
// below.
//
// # What it does
//
// [ParseThresholds] reads the kubelet's settings. [PlanEviction] makes the whole decision as a
// pure function: it takes observations and the previous state, and returns a [Decision] that
// prints as an explanation and marshals to JSON. A threshold is met when less than its amount is
// available. A hard threshold is due as soon as it is met, a soft threshold when it has been met
// for its whole grace period. PlanEviction acts on hard thresholds before soft thresholds. In
// both groups, it acts on memory first, then on processes and then on disks. For each disk, it
// acts on bytes before inodes. For a disk, dead containers and unused images are deleted before
// pods are evicted. The shortfall is the amount that must become free to reach the threshold plus
// its minimum reclaim. PlanEviction subtracts the amounts that evictions in progress are expected
// to free, and chooses as many victims as are needed to free the rest.
//
// [Manager.Evaluate] is one step: it measures, decides, and starts the actions.
// [Manager.Run] repeats this step. When the [Waker] reports pressure, Run runs a step at
// once, and then every 50 ms for 3 s. Otherwise it waits a quarter of the time in which
// the nearest threshold could be reached, at least 100 ms and at most 10 s.
// [Manager.Admit] refuses pods under pressure.
//
// # What you supply
//
// You supply [Stats], which measures the node and its pods (package agent/stats implements
// it), a function that returns the active pods, and a [Killer]. With KillPod of package
// podworker, a Killer is a few lines:
//
//	func (k killer) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
//		grace := time.Duration(e.GracePeriodSeconds) * time.Second
//		return k.workers.KillPod(ctx, pod, podworker.KillOptions{Evict: true, Grace: &grace, StatusFn: e.Apply})
//	}
//
// [ImageGC], [ContainerGC], a [Waker] and event recorders are optional.
//
// # What it guarantees
//
//  1. Static, mirror and critical pods, and pods that [Policy.Protect] selects, are never
//     evicted. No pod is evicted for a threshold that is not due.
//  2. Of the pods that may be evicted, the victims are the first in the order. Pods of equal rank
//     are ordered by age and UID, so that the same input always gives the same victims.
//  3. For a threshold, no more pods are evicted than are expected to be enough.
//     [Policy.MaxParallelEvictions] limits how many of them terminate at the same time.
//  4. A signal that is unknown, stale or implausible causes no eviction and no reclaim. It
//     neither resets a grace period nor prevents the evaluation of other signals. A stale
//     signal can still set a node condition.
//  5. A kill or a reclaim that hangs or fails does not block other evictions. After the
//     deadline of a kill, the Manager no longer expects the pod to free anything, and
//     evicts the next pod. It waits for a reclaim for at most [Policy.ReclaimTimeout]. A
//     pod that could not be killed counts towards MaxParallelEvictions for
//     [Config.KillRetry]. After that, it may be evicted again, but only after all other
//     pods.
//  6. When a hard threshold is due, some pods may already be terminating for a soft
//     threshold. The Manager then shortens their grace period to one second, for as many of
//     these pods as are needed.
//  7. A wake-up only starts an evaluation. It is never a reason to evict a pod.
//
// # Goroutines and locking
//
// New starts nothing. Steps run one at a time. Each kill, each reclaim and the Waker runs
// on its own goroutine, with the context that the caller passed to the step or to Run. Run
// waits for all these goroutines, and [Manager.Wait] for kills and reclaims. Wait may be
// called concurrently with a step. Most Observer callbacks are called by the step. They may
// call any method except Evaluate, Run and Wait.
//
// # Differences from the kubelet
//
// Ours refuses settings that can only be mistakes, with one error for all of them;
// [ThresholdSettings.Lenient] accepts them as the kubelet does. Ours refuses an amount
// with an excessively large exponent without computing the amount. For a number or a
// duration that cannot be parsed, the kubelet reports the error of Go's packages; ours
// names a valid example. If a flag has two values for one signal, the kubelet uses the
// last; ours refuses the flag. The error also names each malformed pair.
//
// Thresholds. If several thresholds are due, the kubelet acts on a memory threshold if one
// is due, and otherwise on an arbitrary threshold; ours acts on hard thresholds first,
// then in a fixed order. Our messages name the threshold that ours acted on; the kubelet's
// messages may name another threshold of the same resource. The kubelet omits containerfs
// thresholds in its first pass; ours does not. While the filesystem layout is unknown, the
// kubelet does nothing; ours uses the last known layout, or a single filesystem if no
// layout was ever known.
//
// Measurements. The kubelet counts a threshold as met by a measurement of any age; ours
// treats a measurement older than [Policy.MaxObservationAge] as unknown. The kubelet ranks
// pods by stats of any age; ours uses only stats up to [Policy.MaxObservationAge] old, and
// disk usage up to an hour old. The kubelet accepts impossible values, such as 0 available
// of 0; ours treats them as unknown. The kubelet restarts a grace period after the signal
// was unknown; ours continues it. The kubelet restarts a grace period after a single
// measurement above the threshold; ours extends it by twice the time for which the
// threshold was not met, and restarts it after 10 s above the threshold. The kubelet sets
// no condition if the transition period is 0; in ours a condition holds while its
// threshold is met, however short the period. As in the kubelet, measurements of any age
// count for conditions, and conditions do not change while all signals are unknown.
//
// The kubelet evaluates every 10 s, with measurements up to 30 s old. Ours evaluates
// again after a quarter of the time in which a fast consumer could reach a threshold, at
// most once every 100 ms. The kubelet evaluates thresholds and node conditions once per
// pass; ours evaluates them again after it has reclaimed a disk.
//
// Reclaiming. In each pass the kubelet deletes unused containers, then images, and then
// evicts; ours takes new measurements after each of the two deletions, waits
// [Policy.ReclaimInterval] between two rounds, and does only what is still needed. After
// reclaiming a disk, the kubelet evicts pods if any threshold is met; ours evicts pods
// only if the threshold that it acts on is still met. The kubelet ranks pods by stats from
// before it reclaimed a disk, and reports these stats in messages; ours uses stats from
// after the reclaim.
//
// The order of pods. The kubelet evicts a pod without stats first; ours treats it as a pod
// that uses nothing until [Policy.StatsGrace] has passed since the first evaluation that
// needs its stats. After that, ours evicts the pod first. The delay is needed because a
// pod whose containers have just exited has no cgroup any more. The kubelet also evicts
// pods that use none of the starved resource; ours skips them. The kubelet also ranks pods
// by what is in their host paths; ours ignores host paths, because they are not deleted
// with the pod. When it ranks pods, ours counts a pod's other files on the node's disk,
// such as its /etc/hosts; the kubelet does not. If only containers have memory stats, the
// kubelet counts the pod's memory as zero; ours uses the sum of the containers' memory.
// The kubelet subtracts a pod's request for ephemeral storage, in bytes, from the number
// of its inodes; ours does not. The kubelet ignores the ephemeral storage requests of
// containers if the pod also has pod-level resources, which cannot include ephemeral
// storage; ours counts them. For a filesystem that pods do not use, the kubelet orders
// pods of the same priority by their requests; ours orders them by their age.
//
// Evictions. The kubelet waits for each kill. Ours does not wait: several pods may
// terminate at the same time, a failed kill does not count as an eviction, and the grace
// period of a slow kill is shortened when a hard threshold is due. The kubelet evicts one
// pod per pass; ours evicts as many pods as are expected to free enough, up to
// [Policy.MaxParallelEvictions]. The kubelet evicts the same pod again if it does not
// terminate in time or could not be killed; ours evicts the next pod. The kubelet does not
// count the disk space of a terminated pod that is not cleaned up yet; ours counts it as
// being freed, for at most 30 s. After a restart, the kubelet evicts more pods although
// the pods that it evicted before are still terminating; ours counts what these pods will
// free.
//
// In a pass that evicts a pod for a limit, the kubelet does nothing about thresholds; ours
// does the same, except that a pod whose earlier kill failed does not block the actions
// for thresholds.
//
// With a negative MaxPodGracePeriodSeconds, a pod keeps its own grace period in ours;
// in the kubelet it gets one second.
//
// Limits. The kubelet evicts a pod with a local storage limit of zero as soon as it uses
// anything; ours treats zero as no limit, as the kubelet does for a container. If only
// images have a filesystem of their own, the kubelet does not count the writable layer
// towards a container's limit; ours counts it. A volume without stats makes the kubelet
// panic; ours ignores it.
//
// The kubelet repeats its events in each pass; ours sends the event
// EvictionThresholdMet at most once per [Config.EventPeriod] for each resource, and the
// event about an evicted pod once, however often its kill is retried.
//
// # Testing your code with it
//
// All interfaces are small: a struct with fixed values implements [Stats].
// [Manager.Evaluate] works with a fake clock. It starts goroutines only for kills and
// reclaims, and [Manager.Wait] waits for these. [Manager.Run] works in a testing/synctest
// bubble.
package eviction
