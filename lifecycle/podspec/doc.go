// Package podspec answers common questions about a pod from the pod object
// alone.
//
// # What it does
//
// Where does the pod come from ([IsStatic], [IsMirror]) and what is its full
// name ([FullName])? Which containers does the pod have, and in what order
// ([Containers], [IsSidecar])? Must a container run again after it has ended
// ([ShouldRestart])? Has the spec of a container changed since the container
// was created ([ContainerHash])? What is the pod's quality-of-service class
// ([QOSClass])? What does the pod request, and what may it use, including
// sidecars, overhead and pod-level resources ([Requests], [Limits],
// [EnforceableLimits], [AllocatedResources])? Is the pod critical, and which
// pods may preempt it ([IsCritical], [CanPreempt])? Is its phase terminal
// ([IsTerminal])? Which port does a probe or a hook refer to ([PortNumber])?
//
// # What you supply
//
// You supply a pod, never nil. The pod need not have the defaults that an API
// server sets. If a default matters, the function documents how it treats an
// unset field.
//
// # What it guarantees
//
//  1. Every function is pure: its result depends only on its arguments.
//  2. Arguments are neither retained nor modified. [Containers], [Container]
//     and [Ephemeral] return pointers into their argument. The list that
//     [AllocatedResources] returns may be part of its argument. All other
//     results are values or new objects.
//  3. Unknown values of enumerations have a documented result.
//
// # Goroutines and locking
//
// The package starts no goroutines and has no locks. All functions are safe for
// concurrent use while no goroutine modifies the pod.
//
// # Differences from the kubelet
//
//   - The kubelet's hash of a container covers only its name and image.
//     [ContainerHash] covers the whole spec except resources and the resize
//     policy, so that an edited manifest takes effect even if its pod keeps its
//     UID. [KubeletHash] is the kubelet's hash, for the annotation by which a
//     kubelet recognizes a container.
//   - Here QOSClass, Requests and AllocatedResources work on a pod without
//     defaults: a missing request counts as equal to the limit, for a container
//     and for the pod as a whole. The kubelet relies on the API server's
//     defaults.
//
// # Testing your code with it
//
// No fake is needed: construct the pod that you need.
package podspec
