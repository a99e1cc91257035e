// Package podspec answers common questions about a pod from the pod object
// alone.
//
// # What it does
//
// Where does the pod come from ([IsStatic], [IsMirror]) and what is its full
// name ([FullName])? Which containers does it have, in what order
// ([Containers], [IsSidecar])? Must a container run again after it has ended
// ([ShouldRestart])? Has the spec of a container changed since it was created
// ([ContainerHash])? What is the pod's quality-of-service class ([QOSClass])?
// What does it request and what may it use, including sidecars, overhead and
// pod-level resources ([Requests], [Limits], [EnforceableLimits], [AllocatedResources])? Is
// it critical, and which pods may preempt it ([IsCritical], [CanPreempt])? Has
// it ended for good ([IsTerminal])? Which port does a probe or a hook refer to
// ([PortNumber])?
//
// # What you supply
//
// A pod, never nil. It need not have passed through an API server: where
// defaults matter, the function documents how it treats an unset field.
//
// # What it guarantees
//
//  1. Every function is pure: it depends only on its arguments.
//  2. Arguments are neither retained nor modified. [Containers] yields pointers
//     into the spec that it was given; all other results are values.
//  3. Unknown values of enumerations have a documented result.
//
// # Goroutines and locking
//
// None. All functions are safe for concurrent use, as long as the pod is not
// modified.
//
// # Differences from the kubelet
//
//   - A container's hash covers its whole spec except resources, not only its
//     name and image, so that an edited manifest takes effect even if its pod
//     keeps its UID. [KubeletHash] is the kubelet's hash, for the annotation by
//     which a kubelet recognizes a container.
//   - QOSClass, Requests and AllocatedResources work on a pod without defaults: a missing
//     request counts as equal to the limit, for a container and for the pod as
//     a whole. The kubelet relies on the API server's defaults.
//
// # Testing your code with it
//
// There is nothing to fake: construct the pod that you need.
package podspec
