// Package podworker compares the graceful node shutdown: lifecycle/podworker's HoldShutdown,
// PlanShutdown and Shutdown with the kubelet's node shutdown manager.
//
// Both sides use the same logind, in a synctest bubble: they hold an inhibitor lock, receive
// the signal that the machine shuts down or that the shutdown is cancelled, and terminate the
// node's current pods. A world has the kubelet's options in either form, pods of any priority
// and grace period, the duration of each termination and whether it fails, the duration of
// unmounts, and the maximum time that logind waits. A step is a shutdown. The facts are: when
// each pod is killed, with which grace period and status, how long each side waits for it,
// the calls about volumes, when the lock is held, and the node's events.
//
// Not compared is what the caller of HoldShutdown does: it rejects new pods, sets the node's
// status and writes the configuration file of logind.
package podworker
