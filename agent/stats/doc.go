// Package stats measures a node and its pods for package eviction, and wakes it up when memory
// becomes tight. It reads /proc, cgroups of both versions, pressure stall information and
// statfs, and gets the statistics of a container runtime over CRI.
//
// # What it does
//
// A [Provider] is an eviction.Stats and an eviction.Waker. [Provider.Node] measures the node's
// signals from a few files that stay open. It takes microseconds and may be called twenty times
// a second. [Provider.Pods] reads the cgroup of each pod, to select a pod for eviction.
// [Provider.Refresh] does the slow work in advance: it finds the filesystems, gets the
// runtime's statistics, and measures volumes and logs. [Provider.Run] calls it every ten
// seconds. [Provider.Summary] returns everything in the types of the kubelet's /stats/summary,
// for metrics-server and kubectl top. [Provider.Watch] waits until the kernel reports that
// memory becomes tight. The baseline of formulas and names is kubelet 1.36.
//
// # What you supply
//
// You supply a CRI client, for the figures of containers and the locations of images and
// writable layers, and the pods in each call. All paths can be set, for an agent in a container
// and for tests. Run the provider next to the eviction manager:
//
//	stats, err := stats.New(stats.Config{Runtime: client, Images: client})
//	…
//	manager, err := eviction.New(eviction.Config{Stats: stats, Waker: stats, …})
//	…
//	group.Go(func() error { return stats.Run(ctx) })
//	group.Go(func() error { return manager.Run(ctx) })
//
// It needs read access to /proc and the cgroups, and for disk usage to the folders of the pods
// or their quotas. It writes nothing except a trigger into a pressure file and, on cgroup v1
// with UsageEvents, a threshold.
//
// # What it guarantees
//
//  1. Unknown is not zero. A figure that can't be read is missing or nil, never 0. The other
//     figures are returned with an error that describes the cause.
//  2. Each figure has the time of its measurement. A figure that could not be measured again
//     keeps its old time.
//  3. Differences never wrap, and an available amount above the total is discarded.
//  4. Node and Pods call no other process, so a runtime that hangs does not delay them. It
//     delays a refresh by 10 s per call, after the disks have been measured.
//  5. A refresh examines at most WalkEntries files. Pods take turns of at most 4,096 files, so
//     that a pod with millions of files does not block the others. The count of an unfinished
//     pod is reported as soon as it exceeds the previous figure. At most three folders of a
//     pod are open at a time, however deeply they are nested.
//  6. Even while a pod writes to its folders, nothing outside them is read for it, nothing
//     mounted in them is counted, and no symbolic link is followed.
//  7. The removal of a cgroup with a trigger is not mistaken for pressure.
//
// # Goroutines and locking
//
// All work runs in the caller's goroutines, except that Watch starts a goroutine for a moment
// when its context ends, and joins it. Watch waits in poll(2), which occupies a thread. New
// opens nothing. [Provider.Close] closes the files that Node keeps open. All methods may be
// called concurrently. Node has its own lock, which is only held while a few files are read.
//
// # Memory
//
// The default is the kernel's MemAvailable plus free pages that it does not include: those on
// the per-CPU lists. It excludes huge pages and the watermarks, and includes the reclaimable
// part of caches and slabs; the kubelet's formula gets all of these wrong on one of the cgroup
// versions. For the common limit of all pods, the working set counts, as in the kubelet,
// because the kernel has no estimate for it. See [Estimator].
//
// CPU and memory of a pod are those of its cgroup. Without a cgroup they are what the runtime
// reports for its sandbox, or else the sums of its containers. containerd reports nothing for a
// sandbox without a cgroup, so such a pod has no network figures.
//
// # Disk
//
// The usage of volumes and logs is measured by walking over their files. It counts blocks, as
// du does, and files with several names once. A refresh finds the pods with folders on the disk
// itself. So a new pod is measured before Pods is called with it, an ended pod is measured
// until its data is removed, and then it is forgotten. A pod is measured again when its figures
// are a minute old, or at once when the filesystem has grown by 16 MiB or 1,000 files. So an
// idle node costs next to nothing, and a pod that fills the disk is found within ten seconds.
//
// A folder that is a project of ext4 or XFS is not walked over: its quota has the usage (Linux
// 5.14, CAP_SYS_ADMIN). The creator of the volumes assigns projects. A project is used here if
// only this folder has it and passes it on. Because the owner of a file could move it out of a
// project, quotas of volumes are only trusted for pods with a user namespace, which are the
// pods to which the kubelet assigns projects (KEP-1029). Quotas of logs are trusted for all
// pods. A pod has a user namespace if the file userns exists in its folder, which the kubelet
// and package podrunner write.
//
// Only volumes with data on the node are measured, so a network share that hangs delays
// nothing. Figures of writable layers come from the runtime, including those of exited
// containers.
//
// # Wake-ups
//
// The kernel evaluates a trigger ten times per window and reports at most once per window.
// Without CAP_SYS_RESOURCE it only accepts windows of a multiple of 2 s (from Linux 6.4 on;
// none before): if it refuses the configured one, the next such window with the same ratio is
// tried. A wake-up is only a reason to measure.
//
// # Differences from the kubelet
//
//   - Node signals are measured on each call; the kubelet waits for a housekeeping of up to
//     15 s, and filesystem figures get the time of the root cgroup's sample.
//   - If one source fails, the others are still used; in the kubelet all are lost.
//   - The layout of filesystems is detected again in each refresh. A limit on the number of
//     processes of all pods is used if it is closer than the node's limit.
//   - A filesystem without a limit on inodes has no inode signals.
//   - Volumes and logs are measured when the filesystem grows, and within a budget. The kubelet
//     measures them every one to two minutes without a budget. Logs of exited containers count.
//   - A project of ext4 or XFS is detected on the folder, whatever program assigned it, and no
//     feature gate is needed. The kubelet assigns projects; this package does not.
//   - hostPath volumes are not measured: evicting their pod frees nothing of them.
//   - Pressure totals are in nanoseconds, as documented for their type.
//   - There are wake-ups on cgroup v2, and wake-ups by pressure on both versions.
//   - The network's default interface is that of the default route, not eth0.
//
// # Testing your code with it
//
// Use folders as ProcRoot and CgroupRoot, with files in the kernel's format, and a fakecri.Node
// as Runtime and Images. Everything except statfs and Watch then works on any operating system.
package stats
