// Package eviction frees a node of what it has too little of before the kernel
// does: memory, space and inodes of disks, processes. It reports the pressure as a
// node condition, refuses new pods, removes what nobody uses, and then ends pods,
// as few as are needed and in an order that it can explain. It also ends pods that
// use more local storage than their limits allow.
//
// It behaves as the kubelet 1.36 does, in the same words, where the differences
// below don't say otherwise.
//
// # What it does
//
// [ParseThresholds] reads the kubelet's settings. [Evaluate] is the whole decision
// as a pure function: facts and the past go in, a [Decision] comes out that prints
// as an explanation and marshals to JSON. A threshold is met when less than its
// amount is available; a hard one is due at once, a soft one when it was met
// without a break for its grace period. Thresholds that are due are acted upon
// hard ones first, then memory, processes, and disks, bytes before inodes. For a
// disk, containers that have ended and unused images go first. What is still
// missing to the threshold and its minimum reclaim, less what evictions under way
// will free, decides how many pods go.
//
// [Manager.Evaluate] is one step: it measures, decides, and begins what has to be
// done. [Manager.Run] steps at once when the [Waker] reports pressure, and often for a
// while after it. Else the next look comes in a quarter of the time in which the nearest
// threshold could be reached, between 100 ms and 10 s. [Manager.Admit] refuses pods under
// pressure.
//
// # What you supply
//
// [Stats], which measures (agent/stats has one), the active pods, and a
// [Killer]; podworker's KillPod is one in a few lines:
//
//	func (k killer) Kill(ctx context.Context, pod *corev1.Pod, e eviction.Eviction) error {
//		grace := time.Duration(e.GracePeriodSeconds) * time.Second
//		return k.workers.KillPod(ctx, pod, podworker.KillOptions{Evict: true, Grace: &grace, StatusFn: e.Apply})
//	}
//
// [ImageGC], [ContainerGC], a [Waker] and recorders of events are optional.
//
// # What it guarantees
//
//  1. Static, mirror and critical pods and those that [Policy.Protect] names are
//     never evicted, and nothing is while no threshold is due.
//  2. Every victim is the first in the order that may go; ties are decided by age
//     and UID, so that the same facts always give the same victims.
//  3. No more pods go than are expected to be enough, and at most
//     [Policy.MaxParallelEvictions] end at a time.
//  4. A signal that is unknown, stale or impossible leads to nothing, and neither
//     ends a grace period nor keeps other signals from counting.
//  5. A kill or a reclaim that hangs or fails holds up nothing else: its pod is
//     no longer counted on after a while, and the next has its turn. One that could
//     not be killed keeps its place among those that end at a time for
//     [Config.KillRetry], and is tried again after all others.
//  6. A hard threshold shortens slow ends that a soft one began.
//  7. A wake-up is a reason to look, never one to evict.
//
// # Goroutines and locking
//
// New starts nothing. Steps run one at a time; each kill, each reclaim and the
// Waker has a goroutine, which ctx ends and Run or [Manager.Wait] waits for. Wait may
// be called beside a step. An Observer is called without the lock of the state, mostly
// by the step: it may call any method but Evaluate and Wait.
//
// # Differences from the kubelet
//
// Settings that can only be mistakes are refused, all at once; [ThresholdSettings.Lenient]
// accepts them as the kubelet does. An amount with an endless exponent is refused, not
// calculated with. Where a number or a duration can't be read, the kubelet has the words of
// Go's packages; ours says what one looks like. Of a flag, the kubelet takes the last of two
// values for a signal; ours refuses both, and names each malformed pair.
//
// Thresholds. Of several thresholds that are due, the kubelet acts on one of memory, else
// on any; ours acts on hard ones first, and the rest has a fixed order. Messages name the
// threshold that was acted upon, not another one of the same resource. The kubelet leaves
// out thresholds of containerfs in its first turn; ours does not. While the filesystem
// layout is unknown, the kubelet does nothing; ours goes by the last one known, else by a
// single filesystem.
//
// Figures. The kubelet keeps a threshold met by a figure of any age; ours treats a figure
// older than [Policy.MaxObservationAge] as unknown. The kubelet ranks pods by figures of
// any age; ours by those that are not older than that, or an hour for disk usage. The
// kubelet believes impossible figures, such as nothing available of nothing; ours treats
// them as unknown. The kubelet begins a grace period anew after the signal was unknown;
// ours keeps it running. The kubelet begins a grace period anew after one good figure; ours
// takes back twice the time for which the threshold was not met, and 10 s of that end it. A
// condition holds while its threshold is met, however short the transition period.
// As in the kubelet, it goes by figures of any age, and stays while none is known.
//
// The kubelet looks every 10 s at figures of up to 30 s. Here the next look comes in a
// quarter of the time in which a hog could reach a threshold, every 100 ms at most. The
// kubelet evaluates thresholds and node conditions once a turn; ours again after it has
// reclaimed a disk.
//
// Reclaiming. In each turn the kubelet deletes unused containers, then images, and then
// evicts; ours needs new figures after each of the two, leaves [Policy.ReclaimInterval]
// between two rounds, and does only what is still needed. After reclaiming a disk, the
// kubelet evicts pods if any threshold is met; ours only if the one that it acts on is.
// The kubelet ranks pods by figures from before it reclaimed a disk, and names those in
// messages; ours by those from after it.
//
// The order of pods. The kubelet evicts a pod without figures first; ours treats it as one
// that uses nothing for [Policy.StatsGrace], counted from the first look that needs them.
// After that it is the first to go; a pod that has just ended has no cgroup any more. The
// kubelet also evicts pods that use nothing of what the node lacks; ours passes them over.
// The kubelet also ranks pods by what is in their host paths; ours leaves host paths out,
// because they stay. When it ranks pods, ours counts a pod's other files on the node's
// disk, such as its /etc/hosts; the kubelet does not. Where only containers have a memory
// figure, the kubelet counts the pod's memory as zero; ours adds them up. The kubelet
// subtracts a pod's request of ephemeral storage, in bytes, from the number of its inodes;
// ours does not. The kubelet ignores what containers request of ephemeral storage if the
// pod also has resources as a whole, which can't include it; ours counts it. For a
// filesystem that pods use nothing of, the kubelet orders pods of the same priority by
// their requests; ours by their age.
//
// Evictions. Kills don't block: several pods may end at a time, a failed kill is not
// counted as an eviction, and a slow one is shortened when a hard threshold is met. The
// kubelet evicts one pod a turn; ours as many as are expected to be enough, up to
// [Policy.MaxParallelEvictions]. The kubelet evicts a pod again that does not end in time,
// or that it could not kill; ours evicts the next one. The kubelet does not count the disk space of a pod that has
// ended and is not cleaned up; ours counts it as being freed, for 30 s at most. After a
// restart, the kubelet evicts again for what an earlier eviction is still freeing; ours
// counts on the pods that are ending.
//
// The kubelet does nothing about thresholds in a turn that evicts a pod for a limit;
// neither does ours, but one that could not be killed before holds up nothing.
//
// A negative MaxPodGracePeriodSeconds leaves a pod its own grace period. The kubelet makes
// one second of it.
//
// Limits. The kubelet evicts a pod with a local storage limit of zero as soon as it uses
// anything; ours treats a limit of zero as none, as that of a container. Where images
// alone have a filesystem of their own, the kubelet leaves the writable layer out of a
// container's limit; ours counts it. A volume without a figure makes the kubelet panic;
// ours leaves it out.
//
// The event EvictionThresholdMet comes once in [Config.EventPeriod] for each resource, and
// the one about a pod once, however often its kill is tried.
//
// # Testing your code with it
//
// All interfaces are small; a struct with a map of figures is a provider, and a
// fake clock drives [Manager.Evaluate] with no goroutine but those of kills, which
// [Manager.Wait] joins. [Manager.Run] works in a testing/synctest bubble.
package eviction
