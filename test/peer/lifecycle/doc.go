// Package lifecycle compares admission by package lifecycle with the kubelet's.
//
// A world of "lifecycle/admission" has a node with allocatable resources of every kind,
// labels, taints and features; a second version of the node, which is fetched when labels are
// missing; and up to fourteen pods that ask for admission one after the other. Pods have
// requests, limits, overhead, pod-level resources, extended resources that the node has or
// lacks, resources from drivers, host ports, selectors, affinities, tolerations, operating
// systems, group policies and priorities. Some are static or mirror pods, and some have the
// status of a resized pod with allocated resources. The lookup of the node and the kill of a
// preemption victim may fail. The facts of each pod are the admission result, the victims in
// order, the events, and the pods on the node.
//
// Some worlds cannot occur in a kubelet: they have nil pods, amounts that overflow, pods that
// were admitted before, or a node that cannot be fetched again.
//
// The kubelet orders equal victims by the iteration of a map. Worlds therefore avoid equal
// victims: no two pods request the same memory, and at most one pod is BestEffort. The status
// of a victim is not compared, because our caller writes it.
//
// A world of "lifecycle/deadline" has a pod with or without an active deadline, which may
// change, the start times in the agent's status and in the API server's, and a clock that may
// be set back. In each step both sides report whether the deadline is exceeded, and since
// when.
package lifecycle
