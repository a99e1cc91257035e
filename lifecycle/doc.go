// Package lifecycle holds what decides about a pod's life on a node and needs no
// runtime for it. So far that is the restart back-off.
//
// # What it does
//
// A [Backoff] answers one question: something ended, may it start again now? The
// first restart is at once; the next waits 10 seconds from the end of the
// container, then 20, 40 and so on up to 5 minutes. A container that ran for
// more than 10 minutes has earned a fresh start. The same rule spaces out image
// pulls.
//
// Ask [Backoff.Until] before a start, call [Backoff.Next] for each start that is
// made. Both take the time at which the last run ended, which is what the wait
// counts from: a wait that began before its end was noticed is shorter by as
// much.
//
// # What you supply
//
// Nothing but keys. A key names what backs off on its own; the kubelet uses pod
// UID, container name and the hash of the container's spec, so that a container
// whose spec was corrected starts at once.
//
// # What it guarantees
//
//  1. The delay after the n-th start in a row is Initial doubled n-1 times, at
//     most Max.
//  2. Until changes no delay: asking often costs nothing.
//  3. A step of the system clock while a container runs or waits changes no
//     wait. A step between the end of a container and the first question about
//     it can shorten the wait to nothing or count its end as now, no more.
//  4. Memory is bounded by the keys used within two quiet periods. There is
//     nothing to call for that.
//
// # Goroutines and locking
//
// There is no goroutine. One mutex guards the keys and is held for map
// operations only.
//
// # Differences from the kubelet
//
//   - The kubelet compares the runtime's finish time with the wall clock on
//     every sync: a clock that steps back by an hour makes a container wait an
//     hour longer. Here the comparison is made once.
//   - The kubelet forgets a key 10 minutes after its last start, even while it
//     waits: a container that runs for 7 minutes at a time is collected in the
//     middle of its 5 minutes and restarts early. Here waiting is not quiet.
//   - State lives in memory in both: after a restart of the agent, the first
//     restart of a container is at once.
//
// # Testing your code with it
//
// Give [BackoffConfig] a fake clock from k8s.io/utils/clock/testing and step it,
// or run in a testing/synctest bubble with the default one.
package lifecycle
