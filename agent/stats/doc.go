// Package stats measures a node and its pods for package eviction, and wakes it
// up when memory becomes tight: /proc, cgroups of both versions, pressure stall
// information, statfs, and what a container runtime says over CRI.
//
// # What it does
//
// A [Provider] is an eviction.Stats and an eviction.Waker. [Provider.Node] measures
// the node's signals from a few files that stay open, in microseconds, and may be
// asked twenty times a second. [Provider.Pods] reads the cgroup of each pod, for when
// a victim has to be found. What takes longer is done ahead, by [Provider.Refresh]:
// which filesystems there are, what the runtime says, and what volumes and logs take;
// [Provider.Run] does it every ten seconds. [Provider.Summary] is all of it in the
// types of the kubelet's /stats/summary, for metrics-server and kubectl top.
// [Provider.Watch] waits for the kernel to say that memory becomes tight. The
// baseline of formulas and names is kubelet 1.36.
//
// # What you supply
//
// A CRI client for figures of containers and for the places of images and writable
// layers, and with each call the pods that the figures are asked of. All paths can be
// set, for an agent in a container and for tests. Run the provider beside the eviction
// manager:
//
//	stats, err := stats.New(stats.Config{Runtime: client, Images: client})
//	…
//	manager, err := eviction.New(eviction.Config{Stats: stats, Waker: stats, …})
//	…
//	group.Go(func() error { return stats.Run(ctx) })
//	group.Go(func() error { return manager.Run(ctx) })
//
// It needs to read /proc and the cgroups, and for disk usage the folders of the
// pods or their quotas; it writes nothing but a trigger into a pressure file, and on cgroup v1 a
// threshold if UsageEvents asks for it.
//
// # What it guarantees
//
//  1. Unknown is not zero. What can't be read is missing or nil, never 0, and what
//     else there is comes all the same, beside an error that tells why.
//  2. Each figure has the time at which it was measured. One that could not be
//     measured anew keeps its old time.
//  3. No difference wraps, and an available amount above the total is no figure.
//  4. Node and Pods ask nobody: a runtime that hangs delays neither. It delays a
//     refresh by 10 s a call, after the disks have been measured.
//  5. A refresh looks at no more than WalkEntries files. Pods take turns, so one with
//     millions of files keeps the others waiting for 4,096 of its own at most; what was
//     counted of it so far is told as soon as it is more than what was known. At most
//     three folders of a pod are open at a time, however deep they are nested.
//  6. Nothing outside a pod's folders is read for it, nothing that is mounted in
//     them is counted, and no symbolic link is followed, while it writes there.
//  7. A trigger of a cgroup that was removed is not taken for pressure.
//
// # Goroutines and locking
//
// There are no goroutines but those that call; Watch has one for a moment when its
// context ends, and joins it. It waits in poll(2), which takes a thread. New opens
// nothing; the files that Node keeps open are closed by [Provider.Close]. All methods
// may be called at the same time. Node has a lock of its own, which nobody holds for
// longer than it takes to read a few files.
//
// # Memory
//
// The default is the kernel's MemAvailable and the free pages that it forgets, those on
// the lists of processors. It leaves out huge pages and the watermarks, and counts
// caches and slabs as what can be had of them; the kubelet's formula gets all of these
// wrong on one version of cgroups or the other. What counts for the limit that all pods
// share is its working set, as in the kubelet, for there the kernel has no estimate.
// See [Estimator].
//
// CPU and memory of a pod are those of its cgroup. Without one they are what the runtime
// reports of its sandbox, or else the sums of its containers. containerd reports nothing of
// a sandbox without a cgroup, so such a pod has no network figures.
//
// # Disk
//
// What volumes and logs take is found out by walking over them: blocks, as du counts.
// Files with several names count once. A refresh looks by itself which pods have folders
// on the disk: one that has begun is measured before Pods is called with it, one that has
// ended is as long as something of it is left, and one of which nothing is left is
// forgotten. A pod is measured again when its figures
// are a minute old, or at once when the filesystem has grown by 16 MiB or 1,000 files:
// an idle node costs next to nothing, and who fills a disk is found in ten seconds.
//
// A folder that is a project of ext4 or XFS is not walked over: its quota knows what is
// in it (Linux 5.14, CAP_SYS_ADMIN). Assigning projects is up to whoever makes the
// volumes; one counts here if the folder has it for itself and passes it on. As files of
// a pod could be moved out of it, volumes are believed only of pods with a user
// namespace, which are those that the kubelet assigns projects to (KEP-1029), and logs
// of all. That a pod has a user namespace is known from the file userns in its folder,
// which the kubelet and package podrunner write.
//
// Only volumes whose contents are on the node itself are looked at; a share that does
// not answer can't hold anybody up. Writable layers are the runtime's figures, those of
// containers that have ended included.
//
// # Wake-ups
//
// The kernel looks at a trigger ten times per window and tells once per window at
// most. Without CAP_SYS_RESOURCE it takes only windows of a multiple of 2 s (from Linux
// 6.4 on; none before): if it refuses the one configured, the next such one with the
// same share is tried. A wake-up is a reason to look, and no more.
//
// # Differences from the kubelet
//
//   - Node signals are measured when asked for; the kubelet waits for a housekeeping
//     of up to 15 s, and files rest with the time of the root cgroup's sample.
//   - One source that fails leaves the others usable; in the kubelet it blinds all.
//   - The layout of filesystems is looked at again with each refresh, and a limit on
//     the number of processes of all pods together counts if it is closer than the node's.
//   - A filesystem without a limit on inodes has no inode signals.
//   - Volumes and logs are measured when the filesystem grows, and within a budget, not
//     every one to two minutes without one; logs of containers that have ended count.
//   - A project of ext4 or XFS is found by looking at the folder, whoever assigned it, and
//     no feature gate has to be on. The kubelet assigns projects; nothing here does.
//   - hostPath volumes are not measured: evicting their pod frees none of it.
//   - Pressure totals are in nanoseconds, as their type says.
//   - There are wake-ups on cgroup v2, and by pressure on both.
//   - The network's default interface is that of the default route, not eth0.
//
// # Testing your code with it
//
// Give it folders in place of ProcRoot and CgroupRoot, with files as the kernel writes
// them, and fakecri's node as Runtime and Images. Everything but statfs and Watch
// then works on any system.
package stats
