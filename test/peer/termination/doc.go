// Package termination compares how the containers of a pod are stopped: lifecycle's
// PlanTermination and Terminate with the kubelet's KillPod.
//
// Both sides stop the same containers in a synctest bubble. A world has a grace period and a
// pod with regular containers, init containers, sidecars and an ephemeral container. Some of
// these are running. Containers have preStop hooks of any duration. A hook ends
// together with its container, or continues. Containers end any time after the signal, hang
// until they are killed, exit by themselves before, or cannot be stopped. The facts are: when
// each hook starts, when each container is stopped and with which grace period, and when the
// termination is complete.
//
// Not compared: grace periods that are shortened during the termination, which the kubelet
// handles with a second call, and containers that are not in the spec, which the kubelet
// cannot stop.
package termination
