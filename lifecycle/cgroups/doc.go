// Package cgroups manages a cgroup for each pod, in the kubelet's tree and with
// the kubelet's names, so that a pod as a whole has limits and monitoring tools
// find it.
//
// # What it does
//
// [PodName] returns the cgroup of a pod: Guaranteed pods are directly below
// kubepods, others below the cgroup of their class. [Name] is a path with two
// forms: that of the cgroupfs driver (/kubepods/burstable/podUID) and that of
// systemd
// (/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice).
// [PodLimits] returns the limits of a pod as a whole. These functions are pure.
// [Cgroupfs] creates such cgroups through the file system, on cgroup v1 and v2.
//
// # What you supply
//
// The mount point of cgroups, the total resources for pods, the period of CPU
// quotas with each pod, and a call of [Cgroupfs.UpdateQoS] after each change of
// pods. The runtime must use the same driver. With a runtime that uses the
// systemd driver no Cgroupfs is needed: pass [Name.Systemd] of the pod's name
// as the cgroup parent. Runtime and systemd then create the slices, without
// limits of the pod as a whole.
//
// # What it guarantees
//
//  1. The name of a pod's cgroup depends only on its UID and class.
//  2. Ensure succeeds only if the cgroup exists in every hierarchy and has its
//     limits. After a failure it removes what it created, and nothing else.
//  3. Nothing outside of the configured parent is changed, except the list of
//     enabled controllers (cgroup.subtree_control) of the cgroups above it on
//     cgroup v2.
//  4. No name in a manifest leads out of the tree.
//  5. Remove kills remaining processes of a pod that has nothing in the runtime
//     any more, as the kubelet does: containerd can lose a process that it was
//     starting when its client was killed. No other function kills processes.
//
// # Goroutines and locking
//
// The package has no goroutines and no locks. Its only state is that the limits
// from Config.Allocatable were set once; everything else is in the kernel's
// tree. Calls for different pods may run concurrently, calls for one pod may
// not, nor two calls of UpdateQoS.
//
// # Differences from the kubelet
//
//   - Only the cgroupfs driver is implemented: the systemd driver needs
//     systemd's bus.
//   - The CPU weight on cgroup v2 is computed from shares as in runtimes since
//     runc 1.3, so that pods and containers are comparable: 1024 shares are a
//     weight of 100.
//   - Neither memory.min of pods and classes (KEP-2570) nor the reservations
//     for system processes are set.
//   - The files are written by this package, not by opencontainers/cgroups,
//     which depends on 12 packages of 8 modules and can't use another directory
//     in tests.
//
// # Testing your code with it
//
// Declare an interface with the methods that you call, for example [Pods]. A
// Cgroupfs on an ordinary directory creates directories and files in it.
package cgroups
