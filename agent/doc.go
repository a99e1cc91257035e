// Package agent runs the pods of a node: all managers of Kubeparts wired into one value, as
// the kubelet wires its own.
//
// # What it does
//
// [New] checks a [Config] and starts nothing; [Agent.Run] serves until its context is done,
// and pods outlive it. A pod goes one way:
//
//	source → operation → admission → allocation → worker → runtime → PLEG → cache → status → sink
//
// A source calls set with all its pods. What has changed becomes operations. A new pod is
// asked about in the admission lane: by the handlers that a kubelet has, then by
// [Config].Admission and [Config].Allocators. A worker runs what was admitted, the PLEG
// watches the runtime, and each change of a pod's status goes to [Config].State and
// [Config].Statuses. When the source does not define the pod any more, its worker stops it,
// and the remover deletes what is left of it.
//
// What is known of a pod is one record with one [State], which the golden file
// internal/podloop/testdata/next shows for each event:
//
//	offered → refused | admitted → ending → ended → removed → gone
//
// Beside the pods the agent keeps the node usable: it evicts pods, removes images, exited
// containers and old logs, reports OOM kills, and computes the node's status.
//
// # What you supply
//
// A name, the node's name, a [Runtime] and the [Source] of pods. A fakecri.Node is a runtime
// in memory, and the client of package agent/cri connects to a real one. Everything else has
// a default. With [Config].Root and [Config].PodLogs pods get volumes, hosts files and logs,
// and a restarted agent knows what it knew before.
//
// To change what the agent does, add to the Config: sources, lookups in a cluster, a status
// sink, admission handlers, allocators (devices, CPUs), volume plugins, credential providers,
// observers, a state store, another [host.Host]. The module in test/vendor uses each of them.
// A hook that has to call [Agent.Sync] is made before the Agent: give it a function that calls
// the variable which New sets.
//
// # What it guarantees
//
//  1. Nothing of others is touched: the agent sees on the runtime what carries its Name,
//     unless [Config].TakeOver is set.
//  2. No pod is ended for being undefined before each source has answered once, and nothing
//     is removed before the runtime was listed once.
//  3. A pod that runs when the agent starts is adopted: its containers go on, and what was
//     reported of it before stands. A pod that has ended does not run again. A refusal by an
//     earlier agent does not count.
//  4. A pod that is undefined and defined again is asked about again, and starts when
//     nothing is left of its earlier life.
//  5. An admission handler or an allocator that hangs delays other admissions, and nothing
//     else. [Agent.Health] names it.
//  6. An edit that is refused does not end the version that runs.
//  7. An allocation is released once: when its pod has ended, or was refused after all.
//  8. Any number of agents fit in a process. They share nothing.
//
// # Goroutines and locking
//
// Run starts two parts, and each joins its own goroutines:
//
//	node   the host's measurements, the runtime's state and the node's status, eviction,
//	       image and container garbage collection, log rotation, OOM kills
//	pods   sources, the loop of the records, the admission lane, workers, PLEG, probes,
//	       the publisher of statuses, the remover, housekeeping
//
// They start in this order and stop in the reverse order: pods first. The pods part publishes
// the last statuses before it ends. If a part returns by itself, Run stops the other one and
// returns its error.
//
// All methods may be called by any goroutine. Sync and SyncAll never block and may be called
// from any hook, also with locks held. Hooks run in goroutines of the agent; those of
// [Config].Admission and [Config].Allocators one at a time, except for Container of an
// allocator.
//
// # Differences from the kubelet
//
//   - A refused static pod is asked about again when the node has changed; the kubelet
//     refuses it for good.
//   - The spec of a static pod can be edited in place if its UID stays: the edit is admitted
//     or refused beside the version that runs. In the kubelet an edited manifest is another
//     pod.
//   - A pod whose volumes no plugin supports is refused at admission; in the kubelet it waits
//     for ever.
//   - A pod of the API server can't make itself static by an annotation: the source's name
//     decides.
//   - A handler of admission that does not answer within 30 seconds refuses the pod; the
//     kubelet waits for it, and does nothing else meanwhile.
//
// Each manager lists its own differences.
//
// # Testing your code with it
//
// Run the agent on a fakecri.Node with the Host of package agent/host/fakehost in a
// testing/synctest bubble: a day takes a second. The example does so without a bubble.
package agent
