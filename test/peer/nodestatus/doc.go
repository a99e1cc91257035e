// Package nodestatus compares the status of a node, its events and the decision to report the
// status with the kubelet's.
//
// A world is a node over several steps. It draws a machine that grows, shrinks or cannot be
// measured, with huge pages, swap and devices; reservations and hard thresholds; node
// addresses from the user, the host name, DNS and the default route, with and without a cloud
// provider; images; a runtime that fails, or whose conditions, handlers, features and version
// change; pressure; failed health checks; other writers of the status; and restarts. The time
// between steps is from one second to more than the report period.
//
// The kubelet's side is a Kubelet with its own runtime state and setters. The test calls
// updateRuntimeUp and updateNode as the kubelet's loops do. The world draws the delays that
// the kubelet chooses at random.
//
// The facts of each step are all fields of the status, with transition times and heartbeats,
// the events, whether the status has changed, and whether it is reported.
//
// Not compared: the lookup and validation of addresses, the annotation of a cloud provider,
// the registration of the node, and leases.
package nodestatus
