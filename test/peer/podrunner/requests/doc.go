// Package requests compares the CRI requests that start a pod with those of the kubelet,
// field by field: RunPodSandbox, CreateContainer, PullImage, UpdateContainerResources, and
// the order of calls. It also compares the content of the mounted files, the events about
// starting, and the waiting reasons of containers.
//
// The kubelet's side is kuberuntime's manager with a Kubelet as its helper. Only those fields
// of the Kubelet are set that influence requests: its own functions create environment
// variables, mounts, resolv.conf, names, user IDs and cgroup names. Our side is a
// podrunner.Runner with an images.Manager. Both sides run over a CRI runtime in memory, which
// records requests and responds as the world specifies.
//
// # Worlds
//
// A world is a node with its configuration, images, ConfigMaps, Secrets and services, and a
// pod with init containers, sidecars and regular containers. All pod fields that reach a
// request are drawn. A turn is one sync of the pod. A scenario consists of the turns that
// start the pod, followed by some of these events: a container exits, the sandbox stops, an
// ephemeral container is added, resources change, or a call of the runtime fails. All
// back-offs end between two turns.
//
// One world in five is direct: our side makes configurations with the functions below a
// Runner, because a Runner mounts subPaths, and rejects block devices. In these worlds only
// requests and failure reasons are compared.
//
// # Left out
//
//   - Pods that the API server or an admission handler rejects.
//   - Stops, removals, restart rules, the termination of a pod, and the state of a
//     container that could not be started: package plan compares them.
//   - The contents of volumes, and the resolution of links in a subPath.
//   - Devices and dynamic resources that a Runner rejects, except for those that are
//     passed to ContainerConfig.
//   - Hooks, probes, and events about successful pulls.
//   - Image credential providers, and credentials of the node.
//   - The choice of user IDs, which is random in the kubelet. The user IDs of the worlds
//     are already on disk.
//   - The reduction of memory requests that exceed the node's memory.
package requests
