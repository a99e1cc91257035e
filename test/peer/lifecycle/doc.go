// Package lifecycle compares admission by package lifecycle with the kubelet's.
//
// A world of "lifecycle/admission" has a node with allocatable resources of every
// kind, labels, taints and features, a second version of it that is fetched when
// labels are missing, and up to fourteen pods that ask to be admitted in turn: with
// requests, limits, overhead, resources of the whole pod, extended resources that the
// node has or has not, resources from drivers, host ports, selectors, affinities,
// tolerations, operating systems, group policies, priorities, static and mirror pods,
// and statuses that say what a resized pod holds. The node's lookup, and the end of a
// victim of preemption, may fail. After each pod the verdict, the victims in their
// order, the events and the pods on the node are compared.
//
// Some worlds are none of a kubelet: with nil pods, amounts that are too large to count,
// pods that were admitted before, and a node that cannot be fetched anew.
//
// Worlds have no ties between victims, which the kubelet breaks by the order of a
// map: no two pods request the same memory, and at most one is BestEffort. What a
// victim's status becomes is left out, because our caller writes it.
//
// A world of "lifecycle/deadline" has a pod with or without an active deadline, which
// may change, the start times that the agent and the API server know, and a clock that
// may be set back. In each step both sides say whether the pod's time is over, and from
// when on.
package lifecycle
