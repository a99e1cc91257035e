// Package termination compares how the containers of a pod are stopped: lifecycle's
// PlanTermination and Terminate with the kubelet's KillPod.
//
// Both sides stop the same containers in a synctest bubble. A world has a pod with
// regular containers, init containers, sidecars and an ephemeral container, of which
// some run, and a grace period. Containers have preStop hooks of any length, which
// die with their container or do not; they take any time to end after the signal,
// hang until they are killed, end by themselves before, or can't be stopped. What is
// compared is when each hook begins, when each container is asked to stop and with
// which grace period, and when all of it is over.
//
// Left out are grace periods that are shortened meanwhile, which the kubelet handles
// by a second call, and containers that the spec does not name, which it can't stop.
package termination
