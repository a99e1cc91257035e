// Package podworker compares how a node shuts down: lifecycle/podworker's
// HoldShutdown, PlanShutdown and Shutdown with the kubelet's node shutdown manager.
//
// Both sides see the same logind, in a synctest bubble: they hold a lock, hear that
// the machine shuts down or that it does not after all, and end the pods that the
// node has then. A world has the kubelet's options in either form, pods of any
// priority and grace period, how long each takes to end and whether that fails, how
// long volumes take, and how long logind is ready to wait. A step is a shutdown.
// What is compared is when which pod is told to end, with which grace and which
// status, how long it is waited for, what is asked of volumes, when the lock is held,
// and the node's events.
//
// Left out is what the caller of HoldShutdown does: the refusal of new pods, the
// node's status, and the configuration file of logind.
package podworker
