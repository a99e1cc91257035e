// Package resources defines allocators, which give parts of a node to
// containers: CPUs, memory nodes, devices, and other resources of the node.
//
// # What it does
//
// An [Allocator] reserves a pod's share when the pod is admitted, and returns
// for each container an [Injection]: what the container gets in addition to its
// spec. The kubelet's CPU, memory, device and topology managers correspond to
// allocators. [Combine] combines any number of them into one function, which a
// podrunner.Runner calls as its Config.Inject: before it creates a container,
// and in each sync for a running one, so that CPUs and memory nodes of running
// containers follow the allocator.
//
// # What you supply
//
// The allocators. The agent calls Restore once, Admit as one of the admission
// handlers of package lifecycle, and Release when the pod has ended. An
// allocator that keeps nothing on disk stores a pod's share in
// [Injection].Annotations and reads it in Restore from the runtime, which
// always matches what the containers have.
//
// # What it guarantees
//
//  1. If two allocators set the same thing for a container, the container is
//     not created, and the message of its waiting state names both.
//  2. Combine calls the ledgers in order, merges in that order, and does not
//     modify their results.
//
// # Goroutines and locking
//
// The package has no goroutines and no state. The function that Combine returns
// may be called concurrently for several containers, as [Ledger].Container may.
//
// # Differences from the kubelet
//
//   - If two device plugins set the same variable, mount, device or annotation,
//     the kubelet logs an error and uses the first; here the container waits.
//   - The kubelet's managers keep checkpoint files; here the runtime's
//     annotations are enough.
//   - The kubelet changes the CPUs of running containers every 10 s; here it
//     happens in the next sync of their pod, which the allocator requests.
//   - The kubelet's managers call each other in code; here each is an admission
//     handler.
//
// # Testing your code with it
//
// An Allocator can be tested by calling its methods, see the example. podrunner
// on a fakecri.Node shows what containers get.
package resources
