// Package pleg compares package pleg with the kubelet's generic PLEG and pod cache.
//
// Both sides relist the same scripted container runtime through the CRI. The kubelet does so
// through its own runtime manager, so that the conversion of CRI messages is compared as
// well. Each step of a world changes sandboxes and containers, requests reinspections, and
// starts readers that wait in the cache. Then both sides do one relist, of all pods or of one
// pod.
//
// Worlds have several sandboxes per pod, containers in all states, changes between the two
// list calls and between lists and inspections, failing lists and status calls, responses
// without a status, slow status calls, statuses that change without a change of state,
// addresses of all kinds, creation times that decrease, missing annotations, objects without
// labels, runtimes that ignore list filters, and a full event channel. Sometimes the relist
// of our side is cancelled in the middle, and a second relist must deliver the remaining
// events.
//
// After each step, the test compares the events of each object, all fields of every cached
// status in order, the statuses that waiters received, how fresh the status of each pod is,
// also during a slow inspection, the health, and the counts of pods and containers.
//
// Rules use a [model] of our knowledge about each pod. It computes our value where the two
// sides inspect different objects at different times. The model is not used for a fact that
// is equal on both sides.
//
// Not compared: the period of relists, because our Generator follows runtime events and is
// idle otherwise; malformed messages, which our CRI client drops; containers without labels
// whose sandbox was removed; label selectors; and the kubelet's evented PLEG, which is off by
// default.
package pleg
