// Package nodestatus compares the status of a node, the events about it and the decision to
// report it with the kubelet's.
//
// A world is a node over several steps: a machine that grows, shrinks or can't be measured,
// with huge pages, swap and devices; reservations and hard thresholds; addresses of the user, of
// the host name, of DNS and of the default route, with and without a cloud; images; a runtime
// whose conditions, handlers, features and version change, or that does not answer; pressure;
// failed health checks; others who write into the status; and restarts. Time passes between
// steps, from a second to more than the period of reports.
//
// The kubelet's side is a Kubelet with its own runtime state and setters, of which updateRuntimeUp
// and updateNode are called as in its loops. Its random delays are drawn by the world.
//
// Compared in each step are all fields of the status, with transition times and heartbeats, the
// events, whether the status has changed, and whether it is reported.
//
// Left out: lookups of addresses, checks of them and the annotation of a cloud provider; what
// happens at registration; leases.
package nodestatus
