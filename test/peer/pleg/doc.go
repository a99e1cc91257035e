// Package pleg compares package pleg with the kubelet's generic PLEG and pod cache.
//
// Both sides look at the same scripted container runtime through the CRI: ours by
// itself, the kubelet through the listing and the inspection of its own runtime
// manager, so that the conversion of CRI messages is compared as well. Each step of
// a world changes sandboxes and containers, requests reinspections, lets readers
// wait in the cache, and then both sides do one relist, of all pods or of one.
//
// The worlds have several sandboxes a pod, containers of all states, changes
// between the two lists and between lists and inspections, lists and statuses that
// fail, answers without a status, slow statuses, statuses that change without a
// change of state, addresses of all kinds, creation times that step back, missing
// annotations, objects without labels, runtimes that ignore the filters of lists, and
// a full channel of events. Sometimes ours is cut short in the middle and has to
// deliver the rest in a second relist.
//
// Compared after each step: the events of each object, every cached status field by
// field and in its order, what waiters received, how fresh each pod is, also while an
// inspection is slow, health, and the counts of pods and containers.
//
// Rules compare with a [model] of what ours knows of each pod. It serves to compute
// the value that ours must have where the two sides inspect different objects at
// different times; a fact that is equal on both sides never meets it.
//
// Left out: when the loops relist, as ours follows events of the runtime and rests
// in between; malformed messages, which our CRI client drops; containers without labels
// whose sandbox is gone; label selectors; the kubelet's evented PLEG, which is off by default.
package pleg
