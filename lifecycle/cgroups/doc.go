// Package cgroups manages a cgroup for each pod, in the kubelet's tree and with
// the kubelet's names. The limits then apply to the pod as a whole, and
// monitoring tools find the pod's cgroup.
//
// # What it does
//
// [PodName] returns the name of a pod's cgroup. The cgroup of a Guaranteed pod
// is directly below kubepods. The cgroup of any other pod is below the cgroup
// of its QoS class. A [Name] can be written in the form of the cgroupfs driver
// (/kubepods/burstable/podUID) and in the form of the systemd driver
// (/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice).
// [PodLimits] returns the limits of a pod as a whole. These functions are pure.
// [Cgroupfs] creates, limits and removes the cgroups through the file system,
// on cgroup v1 and v2.
//
// # What you supply
//
// All fields of [Config] are optional. You pass the period of the CPU quotas to
// each call of Ensure and Update. Call [Cgroupfs.UpdateQoS] whenever the
// running pods or their requests change. A Cgroupfs requires a runtime that
// uses the cgroupfs driver. If the runtime uses the systemd driver, do not use
// a Cgroupfs. Instead, pass the pod's cgroup to the runtime as the cgroup
// parent, in the form of the systemd driver ([PodName] and [Name.Systemd]). The
// runtime and systemd then create the slices. These slices have no limits for
// the pod as a whole.
//
// # What it guarantees
//
//  1. The name of a pod's cgroup depends only on the pod's UID and QoS class.
//  2. When Ensure has succeeded, the cgroup exists in every hierarchy that has
//     a controller, and has its limits. If Ensure fails while it creates or
//     limits a new cgroup, it removes that cgroup. Ensure removes nothing else.
//     As in the kubelet, pods also start if the limits of an existing cgroup
//     kubepods can't be set: see Config.Allocatable.
//  3. Outside of the configured parent, Cgroupfs changes only the cgroups above
//     the parent. On cgroup v2 it enables controllers (cgroup.subtree_control).
//     On cgroup v1 it fills empty lists of CPUs and memory nodes (cpuset.cpus,
//     cpuset.mems).
//  4. A UID in a manifest can't select a directory outside of the tree.
//  5. Remove kills the processes that are left in a pod's cgroup, as the
//     kubelet does. For example, a process can be left if the agent was killed
//     while containerd started a container: containerd can then lose track of
//     the process. No other function kills processes.
//
// # Goroutines and locking
//
// The package starts no goroutines and has no locks. A Cgroupfs remembers only
// whether it has set the limits from Config.Allocatable; all other state is in
// the kernel's tree. Calls for different pods may run concurrently. The caller
// must make calls for the same pod one after the other. The same applies to
// calls of UpdateQoS.
//
// # Differences from the kubelet
//
//   - This package implements only the cgroupfs driver, because the systemd
//     driver needs systemd's bus.
//   - On cgroup v2, this package computes the CPU weight from shares as
//     runtimes do since runc 1.3: 1024 shares become a weight of 100, in the
//     kubelet a weight of 39. So here the weights of pods and containers are
//     comparable.
//   - Not implemented: memory.min of pods and QoS classes (KEP-2570), and the
//     reservations for system processes.
//   - The kubelet writes the files with opencontainers/cgroups. This package
//     writes the files itself, because opencontainers/cgroups depends on 12
//     packages of 8 modules and can't use another directory in tests.
//
// # Testing your code with it
//
// Declare an interface with the methods that you call, for example [Pods]. If
// Config.Root is an ordinary directory, a Cgroupfs creates directories and
// files in it.
package cgroups
