// Package stats measures a node and its pods for package eviction, and wakes up the eviction
// manager when memory becomes scarce. It reads /proc, cgroups of both versions and pressure
// stall information, calls statfs, and gets the statistics of a container runtime over CRI.
//
// # What it does
//
// A [Provider] is an eviction.Stats and an eviction.Waker. [Provider.Node] measures the node's
// signals from a few files that stay open. A call takes microseconds, so the caller may call Node
// twenty times a second. [Provider.Pods] reads the cgroup of each pod, for the selection of a pod
// to evict. [Provider.Refresh] does the slow work in advance: it finds the filesystems, gets the
// runtime's statistics, and measures volumes and logs. [Provider.Run] calls Refresh every ten
// seconds. [Provider.Summary] returns all figures in the types of the kubelet's /stats/summary, for
// metrics-server and kubectl top. [Provider.Cgroups] returns what cAdvisor measures, for the
// kubelet's /metrics/cadvisor. [Provider.Watch] calls its wake function when the kernel reports
// that memory becomes scarce. Formulas and names are those of kubelet 1.36.
//
// # What you supply
//
// You supply a CRI client, for the figures of containers and for the locations of images and
// writable layers. You pass the pods to each call of Pods and Summary. All paths are fields of
// [Config], for an agent in a container and for tests. Run the provider next to the eviction
// manager:
//
//	stats, err := stats.New(stats.Config{Runtime: client, Images: client})
//	…
//	manager, err := eviction.New(eviction.Config{Stats: stats, Waker: stats, …})
//	…
//	group.Go(func() error { return stats.Run(ctx) })
//	group.Go(func() error { return manager.Run(ctx) })
//
// The provider needs read access to /proc and the cgroups and, for disk usage, to the folders
// of the pods or their quotas. It writes nothing except a trigger into each watched pressure
// file and, on cgroup v1 with UsageEvents, thresholds into cgroup.event_control.
//
// # What it guarantees
//
//  1. Unknown is not zero. A figure that can't be read is missing or nil, never 0. The call
//     returns all figures that can be read. Node and Refresh also return an error that
//     describes the cause.
//  2. Each figure in the results of Node, Pods and Summary has the time of its measurement. If
//     a refresh can't measure a figure again, the previous figure stays, with its old time.
//  3. Differences never wrap below zero, and an amount of available memory above the total is
//     treated as unknown.
//  4. Node and Pods call no other process, so a runtime that hangs does not delay them. A
//     runtime that hangs delays a refresh by at most 10 s per call, and only after the refresh
//     has measured the disks.
//  5. A refresh examines at most WalkEntries files. It examines at most 4,096 files of a pod before
//     it continues with the next pod. So a pod with millions of files does not block other pods.
//     Before all files of a pod are examined, the usage that was counted so far is reported as
//     soon as it exceeds the previous figure.
//     At most three folders of a pod are open at a time, however deeply they are nested.
//  6. Even while a pod changes its folders, a refresh reads nothing outside these folders,
//     counts no filesystem mounted in them, and follows no symbolic link.
//  7. Watch does not mistake the removal of a watched cgroup for memory pressure.
//
// # Goroutines and locking
//
// All work runs in the caller's goroutines, with one exception. When the context of Watch is done,
// a goroutine runs for a moment to wake Watch up. Watch waits until that goroutine has ended. Watch
// waits in poll(2), which occupies a thread. New opens no file. [Provider.Close] closes the files
// that Node keeps open. All methods may be called concurrently. Node has its own lock, which is
// only held while a few files are read.
//
// # Memory
//
// By default, available memory is the kernel's MemAvailable plus the free pages on the per-CPU
// lists, which MemAvailable omits. This estimate excludes huge pages and the watermarks, and
// includes the reclaimable part of caches and slabs. The kubelet's formula is wrong about each
// of these on at least one cgroup version. For the common limit of all pods, the available
// memory is the limit minus the working set, as in the kubelet, because the kernel has no
// estimate for a cgroup. See [Estimator].
//
// CPU and memory of a pod are the figures of the pod's cgroup. If a pod has no cgroup, Summary uses
// what the runtime reports for the pod's sandbox. If the runtime reports nothing for the sandbox,
// Summary uses the sums of the containers. Pods uses the sum of the containers for each pod without
// a cgroup. containerd reports nothing for a sandbox without a cgroup, so a pod without a cgroup
// has no network figures.
//
// # Disk
//
// A refresh measures the usage of volumes and logs by walking over their files. It counts blocks,
// as du does, and counts a file with several hard links once. It finds the pods by the folders on
// the disk. So a new pod is measured before Pods is called with the pod, and an ended pod is
// measured until its data is removed. A refresh measures a pod again when the pod's figures are a
// minute old. It measures all pods again if the usage of the filesystems has grown by 16 MiB or
// 1,000 files. So measuring an idle node costs very little, and a pod that fills the disk is found
// within ten seconds.
//
// If a folder is a project of ext4 or XFS, a refresh reads the usage from the project's quota
// and does not walk over the files (Linux 5.14, CAP_SYS_ADMIN). The program that creates the
// volumes assigns projects. The quota is only used if no other folder has the same project and
// new files inherit the project. The owner of a file could move the file out of a project.
// Therefore quotas of volumes are only trusted for pods with a user namespace, which are the
// pods to which the kubelet assigns projects (KEP-1029). Quotas of logs are trusted for all
// pods. A pod has a user namespace if the pod's folder contains the file userns, which the
// kubelet and package podrunner write.
//
// Only volumes with data on the node are measured, so a network share that hangs does not delay
// a refresh. As in the kubelet, hostPath volumes are not measured: the eviction of a pod does not
// delete the files in its hostPath volumes. Figures of writable layers come from the runtime, also
// for exited containers.
//
// # Wake-ups
//
// The kernel evaluates a pressure trigger ten times per window and reports at most once per
// window. From a process without CAP_SYS_RESOURCE, Linux 6.4 and later only accept windows of a
// multiple of 2 s, and older versions accept no trigger. If the kernel refuses the configured
// window, Watch tries the next multiple of 2 s with the same ratio of Stall and StallWindow. A
// wake-up does not prove that memory is scarce; it only asks the eviction manager to measure
// now.
//
// # Differences from the kubelet
//
//   - This package measures the node signals on each call; the kubelet waits up to 15 s for the
//     next housekeeping of cAdvisor. In the kubelet, figures of filesystems have the time of the
//     root cgroup's sample. Here, they have the time of their own measurement.
//   - If one source of figures fails, this package still uses the figures of the other sources; the
//     kubelet has no figures in this case.
//   - This package detects the layout of filesystems again in each refresh; the kubelet detects it
//     once. For pid.available, this package uses the limit of the cgroup of all pods if fewer
//     processes are left until this limit than until the node's limit. The kubelet uses only the
//     node's limit.
//   - Here, a filesystem without a limit on inodes has no inode signals; in the kubelet, its inode
//     signals are 0 of 0 inodes.
//   - This package measures volumes and logs every minute and when the usage of the filesystems has
//     grown, and limits the number of files per refresh. The kubelet measures them every one to two
//     minutes without a limit. Here, the logs of exited containers also count.
//   - This package detects the ext4 or XFS project of a folder, whichever program assigned the
//     project, and needs no feature gate. The kubelet assigns projects; this package does not.
//   - Here, pressure totals are in nanoseconds, as documented for their type. The kubelet's totals
//     are in microseconds.
//   - Here, wake-ups also work on cgroup v2, and wake-ups by pressure work on both cgroup versions.
//     The kubelet's wake-ups work only on cgroup v1.
//   - Cgroups measures cgroups on each call; cAdvisor measures them in the background.
//   - Here, the network's default interface is the interface of the default route; in the kubelet,
//     it is eth0.
//
// # Testing your code with it
//
// Set ProcRoot and CgroupRoot to folders with files in the kernel's format, and Runtime and Images
// to a fakecri.Node. Everything except disk figures and Watch then works on any operating system.
package stats
