// Package fakehost returns the machine of a fake runtime, for programs that simulate nodes
// and for tests of agents.
//
// # What it does
//
// [New] returns a host.Host whose figures follow a fakecri.Node. The machine has 8
// processors, 32Gi of memory, the node's disk, and the address 192.0.2.1 (RFC 5737). Its
// kernel, operating system and IDs are called fake.
//
//   - Node statistics and the image filesystem are the node's disk: images, writable layers,
//     and what FillDisk put there. When it is full, evictions and image garbage collection
//     begin.
//   - Statistics of pods are those of their programs: Program.CPUMilli, Memory, Disk, Inodes.
//   - There is no Mounter, so volumes in memory are on the disk and an agent needs no root.
//     There is no Waker, no OOM source and no Run. Programs that exceed their memory limit
//     are killed by the fake runtime itself.
//
// # What you supply
//
// The node. If its programs listen on a fakecri.Network, set Dial to the network's. To change
// the machine, replace a capability:
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
//     runtime: they are neither in Node.Calls nor do they fail by Node.Fail. Statistics of
//     pods are two calls of the runtime, and fail with it.
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
//   - The signals memory.available and pid.available are unknown, so no memory or process
//     pressure ever occurs. In the summary the node uses what the given pods use.
//   - The disk usage of volumes and logs is unknown: these are on the real disk.
//   - The time of figures of programs is that of the node's clock. The time of the others is
//     the system's.
//   - All fake machines have the same IDs and the same address.
//
// # Testing your code with it
//
// Give New to the agent as its host, with the same node as its runtime. Change programs and
// the disk by the methods of the node while the agent runs.
package fakehost
