// Package fakehost provides the host of a fake runtime, for programs that simulate nodes and
// for tests of agents.
//
// # What it does
//
// [New] returns a host.Host whose figures follow a fakecri.Node. The machine has 8 CPUs, 32Gi
// of memory, the node's disk, and the address 192.0.2.1 (RFC 5737). Its kernel, operating
// system and IDs are called fake.
//
//   - Node statistics and the image filesystem are those of the node's disk: images, writable
//     layers, and the data of FillDisk. When it is full, evictions and image garbage
//     collection start.
//   - Statistics of pods are those of their programs: Program.CPUMilli, Memory, Disk, Inodes.
//   - There is no Mounter, so memory-backed volumes are on the disk and an agent needs no root
//     privileges. There is no Waker, no OOM source and no Run. The fake runtime itself kills
//     programs that exceed their memory limit.
//
// # What you supply
//
// You supply the node. If its programs listen on a fakecri.Network, set Dial to that of the
// network. To change the machine, replace a capability:
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
//  2. Facts, node statistics and the size of the image filesystem make no calls of the
//     runtime: they do not appear in Node.Calls and are not affected by Node.Fail. Statistics
//     of pods make two calls of the runtime, and fail if these fail.
//  3. The same calls at the same times return the same figures. In a testing/synctest bubble
//     they are deterministic.
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
//   - The disk usage of volumes and logs is unknown: they are on the real disk.
//   - Figures of programs have the time of the node's clock. Other figures have the time of
//     the system clock.
//   - All fake machines have the same IDs and the same address.
//
// # Testing your code with it
//
// Pass New to the agent as its host, with the same node as its runtime. Change programs and the
// disk with the methods of the node while the agent runs.
package fakehost
