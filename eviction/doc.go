// Package eviction frees memory, disk space, inodes and process ids before the node runs
// out of them. It reports the pressure as a node condition, refuses new pods, deletes
// dead containers and unused images, and then evicts pods: as few as are needed, in an
// order that it can explain. It also evicts pods that use more local storage than their
// limits allow.
//
// It behaves like kubelet 1.36, with the same messages, except for the differences listed
// below.
//
// # What it does
//
// [ParseThresholds] reads the kubelet's settings. [PlanEviction] makes the whole decision as
// a pure function: it takes observations and the previous state, and returns a [Decision]
// that prints as an explanation and marshals to JSON. A threshold is met when less than
// its amount is available. A hard threshold is due as soon as it is met, a soft one when
// it was met for its whole grace period. PlanEviction acts on hard thresholds first, then on
// memory, processes and disks, in this order, and on bytes before inodes. For a disk,
// dead containers and unused images are deleted before pods are evicted. The number of
// victims follows from the shortfall: what is missing to the threshold plus its minimum
// reclaim, minus what evictions in flight will free.
//
// [Manager.Evaluate] is one step: it measures, decides, and starts the actions.
// [Manager.Run] runs a step at once when the [Waker] reports pressure, and further steps
// often for a few seconds after that. Otherwise it waits a quarter of the time in which
// the nearest threshold could be reached, between 100 ms and 10 s. [Manager.Admit]
// refuses pods under pressure.
//
// # What you supply
//
// [Stats], which measures the node and its pods (agent/stats has one), the active pods,
// and a [Killer]; with podworker's KillPod it is a few lines:
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
//  1. Static, mirror and critical pods, and pods that [Policy.Protect] selects, are
//     never evicted. While no threshold is due, no pod is evicted for one.
//  2. Victims are taken from the start of the order, without the pods that must not be
//     evicted. Ties are decided by age and UID, so that the same input always gives
//     the same victims.
//  3. No more pods are evicted than are expected to be enough, and at most
//     [Policy.MaxParallelEvictions] terminate at the same time.
//  4. A signal that is unknown, stale or implausible causes no action. It neither ends
//     a grace period nor keeps other signals from being evaluated.
//  5. A kill or a reclaim that hangs or fails blocks nothing else: after its deadline
//     it no longer counts, and the next pod is evicted. A pod that could not be killed
//     counts towards MaxParallelEvictions for [Config.KillRetry]. After that it is
//     retried after all other pods.
//  6. When a hard threshold is met, pods that terminate slowly for a soft threshold
//     are given the short grace period.
//  7. A wake-up starts an evaluation. It is never itself a reason to evict.
//
// # Goroutines and locking
//
// New starts nothing. Steps run one at a time. Each kill, each reclaim and the Waker has
// its own goroutine, which gets ctx; Run and [Manager.Wait] wait for these goroutines.
// Wait may be called concurrently with a step. An Observer is called without the state
// lock, mostly by the step: it may call any method except Evaluate and Wait.
//
// # Differences from the kubelet
//
// Settings that can only be mistakes are refused, all of them at once;
// [ThresholdSettings.Lenient] accepts them as the kubelet does. An amount with an
// excessively large exponent is refused without computing it. For a number or a duration
// that cannot be parsed, the kubelet reports the error of Go's packages; ours names a
// valid example. If a flag has two values for one signal, the kubelet uses the last; ours
// refuses both, and names each malformed pair.
//
// Thresholds. If several thresholds are due, the kubelet acts on one of memory if there
// is one, else on any; ours acts on hard ones first, then in a fixed order. Messages name
// the threshold that was acted on, not another one of the same resource. The kubelet
// omits containerfs thresholds in its first pass; ours does not. While the filesystem
// layout is unknown, the kubelet does nothing; ours uses the last known layout, or a
// single filesystem if no layout was ever known.
//
// Measurements. The kubelet counts a threshold as met by a measurement of any age; ours
// treats a measurement older than [Policy.MaxObservationAge] as unknown. The kubelet
// ranks pods by stats of any age; ours uses only stats up to that age, and disk usage up
// to an hour old. The kubelet accepts impossible values, such as 0 available of 0; ours
// treats them as unknown. The kubelet restarts a grace period after the signal was
// unknown; ours continues it. The kubelet restarts a grace period after a single
// measurement above the threshold; ours extends it by twice the time for which the
// threshold was not met, and restarts it after 10 s above the threshold. A condition
// holds while its threshold is met, however short the transition period. As in the
// kubelet, measurements of any age count for conditions, and conditions do not change
// while all signals are unknown.
//
// The kubelet evaluates every 10 s, with measurements up to 30 s old. Ours evaluates
// again after a quarter of the time in which a fast consumer could reach a threshold, at
// most once every 100 ms. The kubelet evaluates thresholds and node conditions once per
// pass; ours evaluates them again after it has reclaimed a disk.
//
// Reclaiming. In each pass the kubelet deletes unused containers, then images, and then
// evicts; ours takes new measurements after each of the two, waits
// [Policy.ReclaimInterval] between two rounds, and does only what is still needed. After
// reclaiming a disk, the kubelet evicts pods if any threshold is met; ours only if the
// threshold that it acts on is still met. The kubelet ranks pods by stats from before it
// reclaimed a disk, and reports those in messages; ours uses stats from after the
// reclaim.
//
// The order of pods. The kubelet evicts a pod without stats first; ours treats it as a
// pod that uses nothing for [Policy.StatsGrace], counted from the first evaluation that
// needs its stats. After that it is the first to be evicted; a pod whose containers have
// just exited has no cgroup any more. The kubelet also evicts pods that use none of the
// starved resource; ours skips them. The kubelet also ranks pods by what is in their host
// paths; ours ignores host paths, because they are not deleted with the pod. When it
// ranks pods, ours counts a pod's other files on the node's disk, such as its /etc/hosts;
// the kubelet does not. If only containers have memory stats, the kubelet counts the
// pod's memory as zero; ours uses the sum of its containers. The kubelet subtracts a
// pod's request for ephemeral storage, in bytes, from the number of its inodes; ours does
// not. The kubelet ignores the ephemeral storage requests of containers if the pod also
// has pod-level resources, which cannot include ephemeral storage; ours counts them. For
// a filesystem that pods do not use, the kubelet orders pods of the same priority by
// their requests; ours by their age.
//
// Evictions. Kills do not block: several pods may terminate at the same time, a failed
// kill does not count as an eviction, and a slow one is shortened when a hard threshold
// is met. The kubelet evicts one pod per pass; ours as many as are expected to be enough,
// up to [Policy.MaxParallelEvictions]. The kubelet evicts the same pod again if it does
// not terminate in time or could not be killed; ours evicts the next pod. The kubelet
// does not count the disk space of a terminated pod that is not cleaned up yet; ours
// counts it as being freed, for at most 30 s. After a restart, the kubelet evicts more
// pods for what an earlier eviction is still freeing; ours counts the pods that are
// already terminating.
//
// In a pass that evicts a pod for a limit, the kubelet does nothing about thresholds;
// ours does the same, except that a pod that could not be killed before does not block
// them.
//
// With a negative MaxPodGracePeriodSeconds, a pod keeps its own grace period; in the
// kubelet it gets one second.
//
// Limits. The kubelet evicts a pod with a local storage limit of zero as soon as it uses
// anything; ours treats zero as no limit, as the kubelet does for a container. If only
// images have a filesystem of their own, the kubelet does not count the writable layer
// towards a container's limit; ours counts it. A volume without stats makes the kubelet
// panic; ours ignores it.
//
// The event EvictionThresholdMet is sent at most once per [Config.EventPeriod] for each
// resource, and the event about an evicted pod once, however often its kill is retried.
//
// # Testing your code with it
//
// All interfaces are small: a struct with fixed stats is a provider. A fake clock drives
// [Manager.Evaluate]; the only goroutines are those of kills and reclaims, which
// [Manager.Wait] waits for. [Manager.Run] works in a testing/synctest bubble.
package eviction
