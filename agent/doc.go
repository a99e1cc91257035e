// Package agent runs the pods of a node. It combines all managers of Kubeparts in one value, an
// [Agent], as the kubelet combines its managers.
//
// # What it does
//
// [New] checks a [Config] and starts nothing. [Agent.Run] runs the agent until the context of
// Run is done. The pods keep running after Run has returned. A pod passes through these stages:
//
//	source → operation → admission → allocation → worker → runtime → PLEG → cache → status → sink
//
// The agent calls the function Run of each source, and passes it a function named set. The source
// calls this function with all its pods. The agent compares these pods with the pods of the
// previous call, and turns the differences into operations. The admission queue calls the
// handlers for each new pod: first the built-in handlers, then [Config].Admission, then
// [Config].Allocators. A worker runs each admitted pod, and the PLEG watches the runtime. The
// agent writes each changed status of a pod to [Config].State and [Config].Statuses. When the
// source no longer defines the pod, the worker stops the pod, and the remover deletes the
// remaining data of the pod.
//
// The agent has one record for each pod. The record has the [State] of the pod. The golden file
// internal/podloop/testdata/next/table shows the transitions for each event. The usual order of
// the states is:
//
//	offered → refused | admitted → ending → ended → removed → gone
//
// The agent also manages the node: it evicts pods, removes images, exited containers and old
// logs, reports OOM kills, and computes the node's status.
//
// # What you supply
//
// You supply the name of the agent, the name of the node, a [Runtime], and the [Source]s of pods. A
// fakecri.Node is a runtime in memory. The Client of package agent/cri connects to a real runtime.
// All other fields of the Config are optional. If [Config].Root is set, pods have volumes and hosts
// files, and a restarted agent restores its state. If [Config].PodLogs is set, containers have
// logs.
//
// To change what the agent does, set fields of the Config: sources, cluster lookups, a status
// sink, admission handlers, allocators (devices, CPUs), volume plugins, credential providers,
// observers, a state store, another [host.Host]. The module in test/vendor uses each of these
// fields. You create the callbacks of a Config before the Agent exists. A callback that calls
// [Agent.Sync] must therefore use a variable to which you later assign the result of New.
//
// # What it guarantees
//
//  1. The agent manages only sandboxes and containers that are labelled with its Name. With
//     [Config].TakeOver, it manages all pods of the runtime.
//  2. When a source no longer defines a pod, the agent stops the pod at once. A pod of an earlier
//     agent that no source has defined yet keeps running until every source has called set; if no
//     source defines it then, the agent stops it. The exception is [Agent.StopPods] with a zero
//     ShutdownConfig, which also stops and removes such pods. The agent removes the data of pods
//     only after the first relist is complete.
//  3. The agent adopts a pod that runs when the agent starts: the containers of the pod keep
//     running, and its last reported status stays valid. A pod that has ended does not run
//     again. But a static pod goes through admission again if an earlier agent has refused it,
//     or if StopPods has ended it.
//  4. If a source no longer defines a pod and then defines it again, the agent first completes
//     the removal of the earlier run. The pod then goes through admission again.
//  5. An admission handler or an allocator that hangs delays only other admissions and the
//     release of allocations. [Agent.Health] names the handler or the allocator.
//  6. A refused edit of a pod does not stop the running version of the pod.
//  7. The agent releases an allocation exactly once: when the pod has ended, or when a later
//     allocator has refused the pod.
//  8. A process can run any number of agents, and they share nothing.
//
// # Goroutines and locking
//
// Run starts two parts. Each part starts and joins its own goroutines, for these tasks:
//
//	node   the host's measurements, the runtime's state and the node's status, eviction,
//	       image and container garbage collection, log rotation, OOM kills
//	pods   sources, the event queue, the admission queue, workers, PLEG, probes,
//	       the publisher of statuses, the remover, housekeeping
//
// The node part starts first and stops last. The pods part publishes the last statuses before it
// returns. If a part returns before Run has stopped it, Run stops the other part, and returns
// the error of the part that returned first.
//
// All methods are safe for concurrent use. Sync and SyncAll never block. Every callback of the
// Config except NodeStatus may call them, even while the callback holds locks. Callbacks run in
// goroutines of the agent. The agent calls the methods of [Config].Admission and
// [Config].Allocators one at a time, except the method Container of an allocator.
//
// # Differences from the kubelet
//
//   - The agent retries the admission of a refused static pod when the node has changed; the
//     kubelet refuses the pod for good.
//   - Here, the spec of a static pod can be edited in place if its UID stays the same. The agent
//     admits or refuses the edit while the old version runs. For the kubelet, an edited manifest
//     defines another pod.
//   - The agent refuses a pod with a volume that no plugin supports. In the kubelet, such a pod
//     waits forever.
//   - After 30 seconds, the agent cancels the context of an admission handler. When the handler
//     returns, the agent refuses the pod. The kubelet waits for the handler, and does nothing else
//     meanwhile.
//
// Each manager lists its own differences.
//
// # Testing your code with it
//
// Run the agent in a testing/synctest bubble, on a fakecri.Node and with the Host of package
// agent/host/fakehost. A simulated day then takes a second. The example of this package needs no
// bubble.
package agent
