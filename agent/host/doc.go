// Package host describes the machine of a node agent as a struct of capabilities.
//
// # What it does
//
// A [Host] has functions and small interfaces for everything that an agent needs from the machine,
// except the container runtime. These are facts ([Facts]), statistics ([Stats]), wake-ups under
// pressure, the size of the image filesystem, tmpfs mounts, and OOM kills. If a capability is nil,
// the agent works without this capability.
//
// [Local] returns the Host of the machine of this process. It reads /proc, /sys and /etc, and
// measures with package agent/stats. Package fakehost returns a Host for a fake runtime.
//
// # What you supply
//
// You supply the runtime's statistics, the agent's folders, and the agent's eviction thresholds
// in a [LocalConfig]. You may replace any capability of the result before you pass the result to
// the agent:
//
//	h, err := host.Local(host.LocalConfig{Runtime: client, Images: client, Root: "/var/lib/agent", PodLogs: "/var/log/pods"})
//	…
//	h.Mounter = nil // the agent is not allowed to mount
//
// For another kind of machine, such as a simulated machine, write your own Host. Only
// [Host].Facts is required.
//
// # What it guarantees
//
//  1. Local opens and starts nothing. Each capability reads its files when it is used.
//  2. A call of [Host].Facts takes about 0.2 ms. Only the first call reads the CPUs, the identity
//     of the machine and the features of the kernel. Each call reads memory, swap, huge pages, the
//     size of the disk, addresses, resolv.conf and hosts.
//  3. Unknown is not zero. A figure that could not be read is missing, and the error names the
//     file. The other figures are still returned.
//  4. On an idle node, the runtime's statistics are refreshed once a minute. [Stats].Pods waits
//     for figures of the runtime that are at most 9 s old. While a signal of the node is below a
//     threshold, [Stats].Pods waits for figures that are newer than the last measurement of the
//     node.
//  5. A runtime that hangs delays [Stats].Pods by at most 2 s. The result then has the old
//     figures, and each figure has the time of its measurement.
//  6. After Run has returned, new calls of the methods of Stats and Waker return an error. Calls in
//     progress continue, and the last of these calls closes all files. If no call is in progress,
//     Run closes all files.
//  7. Run logs a failed refresh, except if the previous refresh failed with the same cause.
//
// # Goroutines and locking
//
// The package starts no goroutines. Run refreshes statistics in the goroutine of its caller.
// All functions and methods are safe for concurrent use, and no lock is held during a call of
// the runtime.
//
// Until [Host].Run is called, no statistics are refreshed. Each call of [Stats].Pods then waits 2 s
// and returns only the memory and the processes of the pods' cgroups. After Run has returned,
// [Stats].Pods returns an error.
//
// # Differences from the kubelet
//
//   - The kubelet reads the capacity once at its start. Here, memory, swap, huge pages and the
//     disk may grow while the agent runs.
//   - The kubelet gets the runtime's statistics every 10 s. Here, they are refreshed once a
//     minute on an idle node.
//   - The kubelet uses the address of the node name or of the default route. Here, the node has
//     the first global unicast address of each family, in the order of the interfaces.
//   - Here, a machine without a network has the address 127.0.0.1. The kubelet does not start on
//     such a machine.
//   - This package does not support Windows hosts; the kubelet does. On operating systems other
//     than Linux, the Host that Local returns has only Facts.
//
// # Testing your code with it
//
// Use fakehost with a fakecri.Node, or a Host with your own functions. An agent reads the
// machine only through its Host.
package host
