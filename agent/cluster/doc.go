// Package cluster makes an agent a node of a Kubernetes cluster. It connects an [agent.Agent] with
// the API server, as a kubelet is connected.
//
// The package is in a module of its own, because it imports client-go. The main module of Kubeparts
// does not need client-go.
//
// # What it does
//
// [New] checks a [Config] and sends no request. [Cluster.Join] completes the config of an agent:
//
//	pods       the pods that are bound to the node, from a watch; the agent runs them together
//	           with the pods of its other sources
//	statuses   the agent sends each changed status as one patch to the API server; it removes a
//	           deleted pod from the API server when no data of the pod is left on the node
//	objects    ConfigMaps and Secrets to which pods refer, with one watch for each object in use
//	tokens     tokens of service accounts, requested for a pod and refreshed when 80 % of their
//	           life is over
//	services   for the environment variables of containers
//	classes    the runtime handlers of RuntimeClasses
//	events     client-go's event recorder
//
// [Cluster.Run] runs the agent. At the same time, it registers the node, and renews the node's
// lease every ten seconds. It reports the node's status when the status has changed, and every five
// minutes. It also creates and deletes the mirror pods of static pods.
//
// Package certificates requests and rotates the certificates of the node. Package access delegates
// authentication and authorization for the kubelet API to the API server. The program
// cmd/cluster-agent uses all three packages. The program cmd/hollow-nodes runs many nodes in one
// process, on runtimes in memory. The API server adds the overhead and the scheduling constraints
// of a RuntimeClass to pods, so this package does not add them.
//
// # What you supply
//
// You supply a client of the API server with the permissions of a node, the name of the node, and
// an [agent.Config]:
//
//	c, err := cluster.New(cluster.Config{Client: clientset, NodeName: "node1"})
//	err = c.Join(&config)
//	a, err := agent.New(config)
//	err = c.Run(ctx, a)
//
// Your function NodeStatus in the agent's config sets the fields of the node's status that the agent
// does not know, such as the port of the kubelet's API.
//
// # What it guarantees
//
//  1. The agent stops no pod because of an error of the API server, an incomplete list, or a watch
//     that ends. But if a complete list of the API server has no pods, the agent stops
//     all pods that came from the API server.
//  2. The newest version of each pod reaches the agent. Intermediate versions may be skipped.
//  3. The agent writes a status only to the pod for which it was computed, never to a new pod of
//     the same name. The same is true for the status of the node.
//  4. The agent keeps conditions, labels, annotations, taints and extended resources that other
//     clients write to the Node object.
//  5. The agent requests a ConfigMap or Secret only if a pod of the node uses the object. The agent
//     keeps the object in memory until the last such pod has been removed from the node.
//  6. While the API server can't be reached, pods run on with the objects and tokens that are
//     known. An agent that starts meanwhile manages the pods that it has stored in [Config].State.
//     When a container of such a pod exits, the agent restarts the container. The exception is a
//     container whose environment has values from a ConfigMap or Secret: the agent does not store
//     these objects.
//  7. The agent deletes no mirror pod without a static pod until every source has defined its pods
//     for the first time.
//  8. Each request about the node, its lease or a pod's status has a timeout. A request that hangs
//     delays no other pod.
//
// # Goroutines and locking
//
// Run starts one goroutine each for the node, the lease, the mirror pods, and each watch. It stops
// them after the agent has stopped, joins them, and returns the agent's error. The goroutines of
// client-go's event recorder end soon afterwards; events that were not sent by then are lost.
//
// All methods are safe for concurrent use. The goroutines of the agent call the functions and
// interfaces that Join puts into the config of the agent.
//
// # Differences from the kubelet
//
//   - Here, the watch of a mutable ConfigMap or Secret lasts as long as a pod uses the object. The
//     kubelet stops watching an object that was not read for some minutes.
//   - Here, a change of a ConfigMap or a Secret reaches the volumes of pods at once; in the
//     kubelet, this takes up to a minute.
//   - When a pod needs a ConfigMap or a Secret for the first time, the agent waits up to three
//     seconds for the object. If the object does not arrive, the error has the cause. The kubelet
//     waits for one second and reports a timeout.
//   - The API server forbids the request for the first token of a pod until it knows that the pod
//     is bound to the node. The agent repeats the request for up to three seconds. In the kubelet,
//     the volume fails with an event, and the kubelet sets up the volume again half a second later.
//   - The agent reports at once that the condition Ready or a pressure condition of the node has
//     changed. The kubelet reports the change at the next check, up to ten seconds later, except
//     when the node starts or shuts down.
//   - The agent waits up to five seconds until the node is ready before it sends the first report;
//     a restarted kubelet may report for a moment that the node is not ready. If a new node becomes
//     ready within this time, the agent records no event NodeReady.
//   - The agent's events about the node have the node's name as the UID of their object, so that
//     kubectl describe shows them. The events of kubelet 1.36 have no UID, and kubectl describe
//     does not show them.
//   - The agent's patch of the node's status has the UID of the node as a precondition. The
//     kubelet's patch has no precondition.
//   - When a kubelet registers a node that already exists, and the machine has no checkpoint of
//     device plugins, the kubelet sets the node's extended resources to 0. This package leaves the
//     resources unchanged. If devices are gone, your function NodeStatus must report them with a
//     capacity of 0.
//   - The kubelet does not store the pods of the API server on disk. If the kubelet starts while
//     the API server can't be reached, the pods run on without probes and restarts. The agent
//     stores the pods in [Config].State, and manages the stored pods after such a start.
//   - The kubelet sets the annotation volumes.kubernetes.io/controller-managed-attach-detach on the
//     node. The agent does not set it, because its volumes need no attach/detach controller.
//   - The agent compares mirror pods with static pods after each change; the kubelet compares them
//     when it syncs the static pod. So if a client deletes the mirror pod of a static pod that has
//     ended, this package creates it again, and the kubelet does not.
//
// # Testing your code with it
//
// The fake clientset of client-go is enough to run pods, as the example shows. The fake clientset
// does not check preconditions, and ignores field selectors. If a test needs them, use a test
// server of net/http/httptest or an API server. An agent on a fakecri.Node needs no container
// runtime.
package cluster
