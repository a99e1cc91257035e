// Package cgroups keeps a cgroup for each pod, in the kubelet's tree and with
// the kubelet's names, so that a pod as a whole has limits and monitoring tools
// find it.
//
// # What it does
//
// [PodName] is where a pod's cgroup is: below kubepods, Guaranteed ones directly,
// others below the cgroup of their class. [Name] is a path that has two spellings,
// that of the cgroupfs driver (/kubepods/burstable/podUID) and that of systemd
// (/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice).
// [PodLimits] is what a pod as a whole is limited to; both are pure functions.
// [Cgroupfs] makes such cgroups through the file system, on cgroup v1 and v2.
//
// # What you supply
//
// Where cgroups are mounted, what the pods together may use, the period of CPU quotas
// with each pod, and after a change of pods a call of [Cgroupfs.UpdateQoS]. The runtime must use the same driver.
// With a runtime that uses the systemd driver no Cgroupfs is needed: give
// [Name.Systemd] of the pod's name as the cgroup's parent, and runtime and systemd
// make the slices, without limits of the pod as a whole.
//
// # What it guarantees
//
//  1. What a pod's cgroup is called depends on its UID and class alone.
//  2. Ensure says yes only when the cgroup is there in every hierarchy and has its
//     limits. If that fails, what it made is gone again, and nothing else.
//  3. Nothing outside of the configured parent is written to, but for the list of
//     controllers that the cgroups above it hand down on cgroup v2.
//  4. No name in a manifest leads out of the tree.
//  5. Remove kills what is left of a pod of which the runtime has nothing any more, as
//     the kubelet does: containerd can lose a process that it was starting when its
//     client died. Nothing else here ends a process.
//
// # Goroutines and locking
//
// No goroutines, no locks, and nothing kept but that Config.Allocatable was written
// once: the kernel's tree is the state. Calls
// for different pods may run at the same time, those for one pod may not, nor two
// of UpdateQoS.
//
// # Differences from the kubelet
//
//   - Only the cgroupfs driver is implemented: systemd's needs its bus.
//   - A weight of cpu on cgroup v2 is what runtimes since runc 1.3 make of shares,
//     so that pods and containers compare: 1024 shares are a weight of 100.
//   - Neither memory.min of pods and classes (KEP-2570) nor the reservations for
//     the system outside of pods are set.
//   - The files are written by this package, not by opencontainers/cgroups, which
//     links 12 packages of 8 modules and can't be pointed at a folder in tests.
//
// # Testing your code with it
//
// Declare an interface of the methods that you call; [Pods] is one. A Cgroupfs on
// an ordinary folder makes folders and files in it.
package cgroups
