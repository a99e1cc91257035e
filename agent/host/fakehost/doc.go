// Package fakehost provides a host.Host for a fake runtime, for programs that simulate nodes and
// for tests of agents.
//
// # What it does
//
// [New] returns a host.Host whose figures follow a fakecri.Node. The machine has 8 CPUs, 32Gi of
// memory, the node's disk, and the address 192.0.2.1 (RFC 5737). The IDs of the machine and the
// names of its kernel and OS image contain the word fake.
//
//   - Node statistics and the image filesystem describe the disk of the fakecri.Node. This disk
//     contains images, writable layers, and the data of FillDisk. When it is nearly full,
//     evictions and image garbage collection start.
//   - Statistics of pods come from the fields CPUMilli, Memory, Disk and Inodes of their
//     Programs.
//   - There is no Mounter, so memory-backed volumes are directories on the disk, and an agent
//     needs no root privileges. There is no Waker, no OOM source and no Run. The fake runtime
//     itself kills programs that exceed their memory limit.
//
// # What you supply
//
// You supply the fakecri.Node. If its programs listen on a fakecri.Network, set the Dial of the
// host to the Dial of the network. To change the machine, replace a capability:
//
//	h := fakehost.New(node)
//	original := h.Facts
//	h.Facts = func(ctx context.Context) (host.Facts, error) {
//		f, err := original(ctx)
//		f.Capacity[corev1.ResourceCPU] = resource.MustParse("64")
//		return f, err
//	}
//
// # What it guarantees
//
//  1. Nothing is read from the machine on which the process runs.
//  2. Facts, node statistics and the size of the image filesystem need no calls of the runtime. So
//     they add nothing to Node.Calls, and Node.Fail does not make them fail. Statistics of pods
//     need two calls of the runtime, and fail if one of the calls fails.
//  3. The same calls at the same times return the same figures. In a testing/synctest bubble,
//     the figures are deterministic.
//
// # Goroutines and locking
//
// The package starts no goroutines and has no state. All functions are safe for concurrent
// use.
//
// # Differences from a real machine
//
//   - The signals memory.available and pid.available are unknown, so memory or process
//     pressure never occurs. In the summary, the node's usage is the sum of the given pods.
//   - The disk usage of volumes and logs is unknown, because volumes and logs are on the real
//     disk.
//   - The times of figures of programs are from the clock of the fakecri.Node. The times of
//     other figures are from the system clock.
//   - All fake machines have the same IDs and the same address.
//
// # Testing your code with it
//
// Pass the result of New to the agent as its Host, and the same fakecri.Node as its runtime.
// While the agent runs, change programs and the disk with the methods of the fakecri.Node.
package fakehost
