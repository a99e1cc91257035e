// Package host describes the machine of a node agent as a struct of capabilities.
//
// # What it does
//
// A [Host] has functions and small interfaces for everything that an agent needs from the
// machine except the container runtime: its facts ([Facts]), its statistics ([Stats]), wake-ups
// under pressure, the size of the image filesystem, tmpfs mounts, and OOM kills. A nil
// capability is missing, and the agent works without it.
//
// [Local] returns the Host of the machine of this process. It reads /proc, /sys and /etc, and
// measures with package agent/stats. Package fakehost returns the Host of a fake runtime.
//
// # What you supply
//
// Local needs the runtime's statistics, the agent's folders, and its eviction thresholds. You
// may change any capability of the result before you pass it to the agent:
//
//	h, err := host.Local(host.LocalConfig{Runtime: client, Images: client, Root: "/var/lib/agent", PodLogs: "/var/log/pods"})
//	…
//	h.Mounter = nil // the agent is not allowed to mount
//
// For another kind of machine, such as a virtual one, write your own Host. Only [Host].Facts is
// required.
//
// # What it guarantees
//
//  1. Local opens and starts nothing. Each capability reads its files when it is used.
//  2. Facts are cheap: about 0.2 ms. The CPUs, the identity of the machine and the features of
//     the kernel are read once. Memory, swap, huge pages, the size of the disk, addresses,
//     resolv.conf and hosts are read in each call.
//  3. Unknown is not zero. A figure that could not be read is missing, the error names its
//     file, and the other figures are still returned.
//  4. Without a caller that needs more, the runtime's statistics are refreshed once a minute.
//     When figures of pods are compared with limits, they are at most 9 s old. When the node
//     is below a threshold, they are newer than the measurement that detected this.
//  5. A runtime that hangs delays [Stats].Pods by at most 2 s. The result then has the old
//     figures, each with the time at which it was measured.
//  6. When Run has returned, no file is open. Later requests for statistics return an error.
//     A request in progress continues and closes the files at its end.
//  7. A failure to refresh statistics is logged once per cause.
//
// # Goroutines and locking
//
// The package starts no goroutines. Run refreshes statistics in the goroutine of its caller.
// All functions and methods are safe for concurrent use, and no lock is held during a call of
// the runtime.
//
// Without Run the runtime's figures are never refreshed, and each call of Pods waits 2 s for
// them.
//
// # Differences from the kubelet
//
//   - The kubelet reads the capacity once at its start. Here memory, swap, huge pages and the
//     disk may grow while the agent runs.
//   - The kubelet gets the runtime's statistics every 10 s. Here it is once a minute on an
//     idle node.
//   - The kubelet uses the address of the node name or of the default route. Here it is the
//     first global unicast address of each family, in the order of the interfaces.
//   - A machine without a network has the address 127.0.0.1. The kubelet does not start there.
//   - Windows hosts are not supported. On operating systems other than Linux, Local only
//     returns facts.
//
// # Testing your code with it
//
// Use fakehost with a fakecri.Node, or a Host with your own functions. An agent reads the
// machine only through its Host.
package host
