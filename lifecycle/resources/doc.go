// Package resources defines allocators, which assign resources of the node to
// containers, such as CPUs, memory nodes and devices.
//
// # What it does
//
// An [Allocator] reserves a pod's share when the pod is admitted. For each
// container, the Allocator returns an [Injection]: what the container gets in
// addition to its spec. The kubelet's CPU, memory, device and topology managers
// correspond to allocators. [Combine] combines any number of allocators into
// one function for podrunner.Config.Inject. A podrunner.Runner calls this
// function before it creates a container, and in each sync for each running
// container. So an allocator can change the CPUs and memory nodes of running
// containers.
//
// # What you supply
//
// You supply the allocators. The agent calls Restore once, Admit as one of the
// admission handlers of package lifecycle, and Release when the pod has ended.
// An allocator that stores nothing on disk can store a pod's share in
// [Injection].Annotations. Restore then reads the share from the runtime. The
// runtime keeps the annotations with which a container was created. They do not
// change when the CPUs or memory nodes of the running container change.
//
// # What it guarantees
//
//  1. If two allocators set the same entry of a container's Injection, the
//     container is not created, and the message of its waiting state names both
//     allocators.
//  2. Combine calls the allocators, or other implementations of [Ledger], in
//     order. It merges their Injections in the same order, and does not modify
//     these Injections.
//
// # Goroutines and locking
//
// The package starts no goroutines and has no state. The function that Combine
// returns may be called concurrently for several containers, and then calls
// [Ledger].Container concurrently.
//
// # Differences from the kubelet
//
//   - If two device plugins set the same variable, mount, device or annotation,
//     the kubelet logs an error and uses the value of the first plugin. If two
//     allocators do this here, the container is not created and stays in the
//     state waiting.
//   - The kubelet's managers keep checkpoint files; here an allocator can store
//     a pod's share in annotations in the runtime.
//   - The kubelet changes the CPUs of running containers every 10 s. Here the
//     CPUs change in the next sync of the container's pod, and the allocator
//     requests this sync.
//   - The kubelet's managers call each other; here the managers are independent
//     allocators, and each allocator is an admission handler.
//
// # Testing your code with it
//
// Test an Allocator by calling its methods, as in the example. To see what
// containers get, use a podrunner.Runner on a fakecri.Node.
package resources
