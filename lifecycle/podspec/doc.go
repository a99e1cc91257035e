// Package podspec answers questions about a pod that several managers ask, from
// the pod alone.
//
// # What it does
//
// Where does the pod come from ([IsStatic], [IsMirror]) and what is it called
// ([FullName])? Which containers has it, in what order ([Containers],
// [IsSidecar])? Is one to run again after it ended ([ShouldRestart])? Is a
// container of the spec still the one that was created ([ContainerHash])? Which
// quality of service does it get ([QOSClass])? What does it ask for and what may
// it use, sidecars, overhead and resources of the pod as a whole included
// ([Requests], [Limits], [EnforceableLimits], [Held])? Does the node depend on it, and who may take its
// place ([IsCritical], [CanPreempt])? Has it ended for good ([IsTerminal])? Which port
// does a probe or a hook mean ([PortNumber])?
//
// # What you supply
//
// A pod, never nil. It need not have passed through an API server: where
// defaulting matters to an answer, the function says what it takes an unset
// field for.
//
// # What it guarantees
//
//  1. Every function is pure: the same pod has the same answer, anywhere, at any
//     time.
//  2. Nothing is kept or changed. [Containers] hands out pointers into the spec
//     that it was given; everything else is by value.
//  3. Unknown values of enumerations have a documented answer.
//
// # Goroutines and locking
//
// None. Call anything from anywhere, as long as nobody writes to the pod.
//
// # Differences from the kubelet
//
//   - A container's hash covers its whole spec but for resources, not its name
//     and image alone, so that an edited manifest takes effect even if its pod
//     keeps its UID. [KubeletHash] is the kubelet's, for the annotation by which it
//     would know a container again.
//   - QOSClass, Requests and Held work on a pod without defaults: a missing
//     request counts as equal to the limit, for a container and for the pod as a
//     whole. The kubelet relies on defaulting for that.
//
// # Testing your code with it
//
// There is nothing to fake: write the pod that you mean.
package podspec
