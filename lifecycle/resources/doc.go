// Package resources defines what hands out parts of a node to containers: CPUs, memory
// nodes, devices, and whatever else a vendor's node has.
//
// # What it does
//
// An [Allocator] reserves a pod's share when the pod is admitted, and returns for each
// container an [Injection]: what the container gets in addition to its spec. The kubelet's
// CPU, memory and device managers are such allocators, and so is what coordinates them by
// topology. [Combine] makes one function of any number of them, which a podrunner.Runner
// calls as its Config.Inject: before it creates a container, and in each sync of one that
// runs, so that CPUs and memory nodes of running containers follow the allocator.
//
// # What you supply
//
// The allocators. Who drives them calls Restore once, Admit as a handler among those of
// package lifecycle, and Release when the pod has ended. An allocator that keeps nothing on
// disk writes a pod's share into [Injection].Annotations and reads it back in Restore, from
// the runtime, which can't disagree with what the containers have.
//
// # What it guarantees
//
//  1. A container that two allocators would give the same thing is not created, and the
//     message of its waiting state names both.
//  2. Combine calls the ledgers in their order, merges in that order, and modifies nothing
//     that they return.
//
// # Goroutines and locking
//
// No goroutines, no state. The function that Combine returns may be called for several
// containers at once, as [Ledger].Container may.
//
// # Differences from the kubelet
//
//   - If two device plugins set the same variable, mount, device or annotation, the kubelet
//     logs an error and uses the first; here the container waits.
//   - The kubelet's managers keep checkpoint files; here the runtime's annotations are enough.
//   - The kubelet changes the CPUs of running containers every 10 s; here it happens in the
//     next sync of their pod, which the allocator asks for.
//   - The kubelet's managers call each other in code; here each is an admission handler.
//
// # Testing your code with it
//
// An Allocator is tested by its methods, see the example. podrunner on a fakecri.Node shows
// what containers get.
package resources
