// Package lifecycle holds what decides about a pod's life on a node and needs no
// runtime for it: may it start, what runs at its start and before its end, in
// which order and by when does it end, and when may a container run again. The
// behaviour is that of kubelet 1.36.
//
// # What it does
//
// Admission: a [Chain] asks [AdmitHandler]s one after the other whether a pod may
// start. [NodeHandler] is the one that compares pod and node, by the pure functions
// [FitsAll], [FitsOS] and [FitsGroupsPolicy]; whom a critical pod displaces is
// [PlanPreemption]. [ActiveDeadline] says when a pod's time is over.
//
// Hooks: a [HookRunner] runs postStart and preStop hooks, by command, HTTP or
// sleep, and keeps the end of what they say.
//
// The end: a [Deadline] is the one time by which everything must be over, and can
// move earlier meanwhile. [PlanTermination] is the order in which containers are
// stopped, sidecars last, and [Terminate] does it. [StopGrace] is the only place
// that knows that runtimes count in whole seconds.
//
// Restarts: a [Backoff] answers whether what ended may start again. The first
// restart is at once; the next waits 10 seconds from the end of the container,
// then 20, 40 and so on up to 5 minutes. A container that ran for more than 10
// minutes has earned a fresh start. The same rule spaces out image pulls.
// [Backoff.Snapshot] and [Backoff.Restore] carry it over a restart of the agent.
//
// # What you supply
//
// Plain types throughout; nothing of CRI is linked. For admission: the node, and
// the pods that hold something of it. For hooks: an [ExecRunner], which
// cri.RuntimeService is. For the end: a function that stops a container. For the
// back-off: keys; the kubelet uses pod UID, container name and the hash of the
// container's spec, so that a container whose spec was corrected starts at once.
//
// # What it guarantees
//
//  1. Fits…, Needs and Plan… functions are pure: they depend on their arguments
//     only and modify none of them. The kubelet writes into the node that it checks.
//  2. Of equal pods PlanPreemption takes the same ones in whatever order it sees
//     them.
//  3. A hook ends at its deadline, with its container, or with its context,
//     whichever comes first, also when the deadline moves earlier while it runs
//     (kubernetes#127339, kubernetes#134338, kubernetes#103300).
//  4. Hook, waiting and stop share one deadline. Asked to end within a grace
//     period, a pod's containers are killed at most 2 s after it.
//  5. A container that can't be stopped releases those that wait for it.
//  6. What a hook says is in no event, is redacted before it is kept or returned,
//     and bounded.
//  7. The delay after the n-th start in a row is Initial doubled n-1 times, at
//     most Max; asking changes nothing. A step of the system clock while a container runs or
//     waits changes no wait; one between its end and the first question about
//     it can shorten the wait to nothing or count its end as now, no more.
//  8. A Backoff's memory is bounded by the keys used within two quiet periods.
//
// # Goroutines and locking
//
// Nothing runs on its own. [Deadline.Context], [HookRunner.Run] and [Terminate]
// start goroutines and join them: the first in its cancel function, the others
// before they return. An ExecRunner or Stop that ignores its context delays that
// join, and nothing else. Mutexes guard memory only and are not held while anything
// of yours is called.
//
// # Differences from the kubelet
//
//   - Handlers are pure where they can be, and every handler's verdict and time
//     can be observed. Preemption counts the other pods that admission saw.
//   - The kubelet may end a pod without which its other victims would be enough; here
//     that pod stays.
//   - When the kubelet chooses victims for a critical pod, it counts the requests of their
//     containers alone; ours also counts overhead, requests of the whole pod and what a
//     resized pod still holds, because that is what becomes free.
//   - If a node has too little of several extended resources, huge pages or attachable
//     volumes, the kubelet reports any one of them; ours reports the first by name.
//   - If labels did not match and the kubelet fetched the node, it does not count extended
//     resources that only the fetched node has; ours does.
//   - Amounts that an int64 cannot hold count as the largest that it can. In the
//     kubelet they wrap around: a pod that asks for too much asks for nothing.
//   - The kubelet relies on the API server to fill in missing requests; here a pod without
//     these defaults is admitted with its limits as requests.
//   - A pod that has a start time, and that Allocated says this node has admitted before,
//     is not sent away because labels or taints have changed; the kubelet sends it away
//     after a restart.
//   - ActiveDeadline sends no event; the kubelet sends one with each answer.
//   - Hooks must have a deadline; postStart has none in the kubelet and blocks its
//     pod (kubernetes#30042). A preStop hook that is cut off by the deadline has
//     failed and says so; one whose container ended while it ran has not, because
//     that is what it is for. A hook whose time is over, or whose container has
//     ended, does not begin.
//   - HTTP hooks keep no connections, and [HookConfig.FailOnStatus] makes the status
//     count (kubernetes#56963).
//   - The kubelet takes a path such as mailto:x for an address without a host, and asks
//     nobody; ours takes it for a path.
//   - When a pod has no address for a hook, the kubelet logs the status in which it
//     found none; ours says so.
//   - When an HTTPS hook works neither with HTTPS nor with plain HTTP, the kubelet tells
//     the first error; ours both.
//   - The kubelet runs a preStop hook again after it was restarted; here it runs once,
//     if the caller says that it ran.
//   - The kubelet waits for a preStop hook, such as a sleep, whose container has ended;
//     here that ends the hook.
//   - In the kubelet a sidecar waits for the one after it alone, and for none if that
//     does not run; here for all that come after it.
//   - The kubelet stops sidecars beside an init container that still runs and may need
//     them; here they wait for it.
//   - In the kubelet sidecars wait to the end of the grace period for a container that
//     can't be stopped; here until that is known. See kubernetes#125880.
//   - The kubelet cuts the time of a hook, and that of waiting, to whole seconds, so
//     that a container may have up to two seconds more than its pod; here what is left
//     to the deadline is rounded up.
//   - The kubelet compares a container's end with the wall clock on every sync: a
//     clock that steps back by an hour makes it wait an hour longer. Here the
//     comparison is made once.
//   - The kubelet forgets a key 10 minutes after its last start, even while it
//     waits: a container that runs for 7 minutes at a time is collected in the
//     middle of its 5 minutes and restarts early. Here waiting is not quiet.
//   - Back-off lives in memory in the kubelet, and begins anew with it.
//   - Not here: AppArmor, sysctl and declared-feature handlers, device and topology
//     resources.
//
// # Testing your code with it
//
// Give the configs a fake clock from k8s.io/utils/clock/testing and step it, or
// run in a testing/synctest bubble with the default one, which deadlines and
// terminations are made for. Hooks over real sockets need real time.
package lifecycle
