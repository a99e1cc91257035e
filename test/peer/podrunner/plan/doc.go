// Package plan compares podrunner.Plan with the actions of the kubelet's runtime manager for
// the same pod and the same state of the runtime.
//
// The kubelet's side is a manager from NewKubeGenericRuntimeManager, over a CRI runtime that
// is backed by a [State]. The test calls its SyncPod, which computes the actions of the pod
// and executes them, so that back-off, restart counts, events and the order of calls are
// compared, too. Our side is Plan for the status that pleg would produce from the same State.
//
// # Worlds
//
// A [World] has a pod and its initial objects in the runtime: none, or sandboxes that are
// ready, not ready, removed, without an address, in another network or without namespaces,
// and instances of init containers, sidecars, regular and ephemeral containers in every
// state, with several attempts, in any of the sandboxes. Containers have their own restart
// policies and rules, probes with results, resources and resize policies. Pods have policies,
// pod-level resources and host networking. In each of up to seven steps containers exit, are
// OOM killed or never start, states become unknown, sandboxes and containers vanish, images,
// definitions and resources change, the agent restarts, and calls to the runtime fail. For
// some pods the agent has no record of back-off, of probe results or of restart counts. After
// the events, both sides plan, and one side executes its plan. The world draws which side, and
// both sides continue with the result, so that their states never differ.
//
// # Rules
//
// Each rule is a deviation: a change of the state after which the kubelet does what our plan
// does, or a change of the kubelet's actions. All deviations in sequence must turn the
// kubelet's facts into ours. The last deviation that changes a fact explains it. In this way
// a rule computes our value by running the kubelet again.
//
// # What is left out
//
// Image pulls, hooks, volumes, and the content of runtime requests are not part of a plan.
// The kubelet terminates a pod with a terminal phase without calling its runtime manager.
// This comparison has no phase, so SyncPod is called for such pods, too. The order of resizes
// is compared only by direction, because the kubelet's order among equals is arbitrary. A
// pod's waiting reasons during a restart of all containers are part of its status.
package plan
