// Package plan compares podrunner.Plan with what the kubelet's runtime manager does
// upon the same pod and the same state of the runtime.
//
// The kubelet's side is a manager that NewKubeGenericRuntimeManager made, over a CRI
// runtime that consists of a [State]. Its SyncPod is played, which computes the
// actions of the pod and carries them out, so that back-off, restart counts, events
// and the order of calls are compared, too. Our side is Plan upon the status that
// pleg would show of the same State.
//
// # Worlds
//
// A [World] has a pod and what the runtime has of it at first: none, or sandboxes that
// are ready, dead, gone, without address, in another network or without namespaces,
// and instances of init containers, sidecars, regular and ephemeral containers in
// every state, of several attempts, in any of the sandboxes. Containers have policies
// and restart rules of their own, probes with results, resources and resize policies;
// pods have policies, resources as a whole and host networks. In each of up to seven
// steps containers exit, are OOM killed or never start, states become unknown,
// sandboxes and containers vanish, images, definitions and resources change, the
// agent restarts, and calls to the runtime fail. For some pods back-off, probe results
// or restart counts are not kept at all. Then both sides plan, and one of them acts:
// which one is drawn, and both sides of the comparison play that, so that they never
// part.
//
// # Rules
//
// Each rule is a deviation: a change of the state after which the kubelet does what
// ours does, or a change of what the kubelet does. All of them one after the other
// must turn the kubelet's facts into ours, and the last that changes a fact explains
// it. A rule thereby computes our value by asking the kubelet again.
//
// # What is left out
//
// Image pulls, hooks, volumes, and requests to the runtime are not part of a plan.
// The kubelet ends a pod whose phase is terminal without asking its runtime manager;
// there is no phase here, so that SyncPod is played for such pods, too. Of the order
// of resizes only the direction is compared, because the kubelet's order among equals
// is arbitrary. A pod's reasons to wait while all containers are restarted are part
// of its status.
package plan
