// Package agent runs the pods of a node. It wires all managers of Kubeparts into one value, as
// the kubelet wires its own.
//
// # What it does
//
// [New] checks a [Config] and starts nothing. [Agent.Run] serves until its context is done;
// pods keep running after it returns. A pod passes these stages:
//
//	source → operation → admission → allocation → worker → runtime → PLEG → cache → status → sink
//
// A source calls set with all its pods, and the agent turns the differences into operations.
// The admission queue decides about each new pod: first the kubelet's own handlers, then
// [Config].Admission and [Config].Allocators. A worker runs the admitted pod and the PLEG
// watches the runtime. Each change of a pod's status goes to [Config].State and
// [Config].Statuses. When the source no longer defines the pod, its worker stops it, and the
// remover deletes its remaining data.
//
// The agent has one record per pod with one [State]. The golden file
// internal/podloop/testdata/next shows the transition for each event:
//
//	offered → refused | admitted → ending → ended → removed → gone
//
// The agent also keeps the node usable: it evicts pods, removes images, exited containers and
// old logs, reports OOM kills, and computes the node's status.
//
// # What you supply
//
// Required are an agent name, the node's name, a [Runtime] and the pod [Source]s. A
// fakecri.Node is an in-memory runtime; the client of package agent/cri connects to a real one.
// Everything else has a default. With [Config].Root and [Config].PodLogs set, pods get volumes,
// hosts files and logs, and a restarted agent restores its state.
//
// To change what the agent does, extend the Config: sources, cluster lookups, a status sink,
// admission handlers, allocators (devices, CPUs), volume plugins, credential providers,
// observers, a state store, another [host.Host]. The module in test/vendor uses each of them. A
// hook that calls [Agent.Sync] must exist before the Agent does: let it use a variable that is
// set to the result of New.
//
// # What it guarantees
//
//  1. The agent sees and changes only sandboxes and containers labelled with its Name, unless
//     [Config].TakeOver is set.
//  2. No pod is stopped as undefined before every source has called set once, and nothing is
//     removed before the runtime was listed once.
//  3. A pod that runs when the agent starts is adopted: its containers keep running and its
//     last reported status stays valid. A pod that has ended does not run again. A refusal by
//     an earlier agent is not taken over.
//  4. A pod that is undefined and defined again goes through admission again. It starts when
//     its earlier run is completely removed.
//  5. An admission handler or an allocator that hangs delays other admissions and nothing
//     else. [Agent.Health] names it.
//  6. A refused edit does not stop the version that runs.
//  7. An allocation is released once: when its pod has ended, or when the pod was refused
//     after the allocation.
//  8. A process can run any number of agents. They share nothing.
//
// # Goroutines and locking
//
// Run starts two parts. Each joins its own goroutines:
//
//	node   the host's measurements, the runtime's state and the node's status, eviction,
//	       image and container garbage collection, log rotation, OOM kills
//	pods   sources, the loop of the records, the admission queue, workers, PLEG, probes,
//	       the publisher of statuses, the remover, housekeeping
//
// The node part starts first and stops last. The pods part publishes the last statuses before
// it returns. If a part returns by itself, Run stops the other one and returns the error of the
// first.
//
// All methods may be called by any goroutine. Sync and SyncAll never block and may be called
// from any callback of the Config except NodeStatus, even with locks held. Callbacks run in
// goroutines of the agent. Those of [Config].Admission and [Config].Allocators are called one at a
// time, except for Container of an allocator.
//
// # Differences from the kubelet
//
//   - A refused static pod goes through admission again when the node has changed; the kubelet
//     refuses it for good.
//   - The spec of a static pod can be edited in place if its UID stays the same. The edit is
//     admitted or refused while the old version runs. In the kubelet an edited manifest is
//     another pod.
//   - A pod with a volume that no plugin supports is refused at admission; in the kubelet it
//     waits forever.
//   - A pod of the API server can't make itself static by an annotation: the source's name
//     decides.
//   - An admission handler that does not answer within 30 seconds refuses the pod; the kubelet
//     waits for it and does nothing else meanwhile.
//
// Each manager lists its own differences.
//
// # Testing your code with it
//
// Run the agent on a fakecri.Node with the Host of package agent/host/fakehost in a
// testing/synctest bubble: a simulated day takes a second. The example works without a bubble.
package agent
