// Package requests compares the CRI requests that start a pod with those of the
// kubelet, field by field: RunPodSandbox, CreateContainer, PullImage,
// UpdateContainerResources, and the order of calls. It also compares the files that
// containers have mounted, events about starting, and why a container waits.
//
// The kubelet's side is kuberuntime's manager with a Kubelet as its helper, of which
// only the fields are set that requests are made from: its own functions make
// variables, mounts, resolv.conf, names, user IDs and names of cgroups. Our side is a
// podrunner.Runner with an images.Manager. Both run over a CRI runtime in memory that
// records requests and answers as the world says.
//
// # Worlds
//
// A world is a node with its configuration, images, ConfigMaps, Secrets and services,
// and a pod with init containers, sidecars and regular containers, whose fields are
// drawn as far as they reach a request. A scenario is the turns that start it, and
// then some of these: a container ends, the sandbox dies, an ephemeral container is
// added, resources change, a call of the runtime fails. Between two turns all
// back-offs pass.
//
// One world in five is direct: our side makes configurations by the functions that
// are below a Runner, because a Runner mounts what a subPath needs, and refuses block
// devices. There, only requests and reasons of failures are compared.
//
// # Left out
//
//   - Pods that the API server or an admission handler refuses.
//   - What is stopped and removed, restart rules and the end of a pod: that is the
//     plan's comparison. What becomes of a container that could not be started, too.
//   - The contents of volumes; how links in a subPath are followed.
//   - Devices and dynamic resources that a Runner refuses, but for those that are
//     given to ContainerConfig.
//   - Hooks, probes, and events about pulls that succeed.
//   - Image credential providers, and credentials of the node.
//   - User IDs that are chosen: the kubelet chooses at random. Those of the worlds are
//     on disk already.
//   - How requests of memory beyond the node's are cut.
package requests
