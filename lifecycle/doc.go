// Package lifecycle implements the rules of a pod's life cycle that need no
// runtime. The rules decide whether a pod may start on a node, and which hooks
// run. They also decide in which order the pod's containers are stopped, by
// when these containers must have ended, and when a container may restart. The
// behaviour is that of kubelet 1.36.
//
// # What it does
//
// Admission: a [Chain] calls [AdmitHandler]s one after the other to decide
// whether a pod may start. The handler [NodeHandler] compares the pod with the
// node. It uses the pure functions [FitsAll], [FitsOS] and [FitsGroupsPolicy].
// [PlanPreemption] selects the pods that are preempted for a critical pod.
// [ActiveDeadline] reports whether a pod was active for longer than
// spec.activeDeadlineSeconds and must therefore be evicted.
//
// Hooks: a [HookRunner] runs postStart and preStop hooks, which are commands,
// HTTP requests or sleeps. It records the last part of each hook's output.
//
// Termination: a [Deadline] is the time by which all containers of a pod must
// have ended. A caller can move the Deadline to an earlier time.
// [PlanTermination] returns the order in which containers are stopped, with
// sidecars last. [Terminate] stops the containers in this order. [StopGrace]
// converts the remaining time to the whole seconds that runtimes expect.
//
// Restarts: a [Backoff] computes when a container that has ended may start
// again. The first restart has no delay. The second restart is 10 seconds after
// the end of the container, the third 20 seconds, the fourth 40 seconds, and so
// on up to 5 minutes. A container that ran for more than 10 minutes starts
// again without a delay. Image pulls use the same delays, but the first retry
// of a pull already waits 10 seconds. [Backoff.Snapshot] and [Backoff.Restore]
// preserve the state across a restart of the agent.
//
// # What you supply
//
// The API uses plain types; the package does not import CRI. For admission: the
// node, and the pods that use its resources. For hooks: an [ExecRunner];
// cri.RuntimeService implements it. For termination: a function that stops a
// container. For the back-off: a key for each container. The kubelet's key
// contains the pod UID, the container name and the hash of the container's
// spec, so that a container whose spec was corrected starts without a delay.
//
// # What it guarantees
//
//  1. The functions Fits…, Needs and Plan… are pure: their results depend only
//     on their arguments, and they do not modify the arguments. The kubelet
//     modifies the node object that it checks.
//  2. The selection of PlanPreemption does not depend on the order of its
//     input.
//  3. A hook is cancelled at its deadline, when its container ends, or when its
//     context is done, whichever comes first. If the deadline is moved to an
//     earlier time while the hook runs, the hook is cancelled at the new
//     deadline (kubernetes#127339, kubernetes#134338, kubernetes#103300).
//  4. One deadline applies to the hooks of a pod, to the time that a container
//     waits for other containers, and to the stops. The runtime kills all
//     containers of the pod at most 2 s after the end of the pod's grace
//     period.
//  5. A container that can't be stopped does not block the containers that wait
//     for it.
//  6. The output of a hook is never part of an event. The HookRunner redacts
//     the output and cuts it to a limit before it records or returns it. It
//     does not redact the error of an [ExecRunner].
//  7. The delay after the n-th restart in a row is Initial doubled n-1 times,
//     at most Max. [Backoff.Until] and [Backoff.Delay] do not change the delay.
//     If the system clock is stepped while a container runs or waits, the
//     length of the wait does not change. The caller passes the time at which a
//     container ended. In the first call with this time, the Backoff converts
//     the time to its own clock. If the system clock is stepped between the end
//     of the container and this call, the wait can become zero, or can begin at
//     the time of the call.
//  8. A Backoff stores at most as many keys as were used within two idle
//     periods. An idle period is twice Max.
//
// # Goroutines and locking
//
// The package has no background goroutines. [Deadline.Context],
// [HookRunner.Run] and [Terminate] start goroutines. HookRunner.Run and
// Terminate wait for their goroutines before they return; the cancel function
// of Deadline.Context waits too. If an ExecRunner or a Stop function ignores
// its context, this wait takes longer. Nothing else is delayed. No mutex is
// held during I/O or while the package calls your functions.
//
// # Differences from the kubelet
//
//   - Here handlers are pure where possible, and a caller can observe the
//     decision and duration of every handler. Here preemption uses the same
//     list of other pods as admission; the kubelet reads the list again.
//   - The kubelet may preempt more pods than necessary: it preempts a pod
//     although the other preempted pods free enough resources. Here that pod
//     keeps running.
//   - When the kubelet selects victims for a critical pod, it counts only the
//     requests of their containers. This package also counts overhead,
//     pod-level requests and the resources that a resized pod still holds,
//     because all of these become free.
//   - If a node has too little of several extended resources, huge pages or
//     attachable volumes, the kubelet reports any one of them; this package
//     reports the resource whose name sorts first.
//   - If the node's labels do not match a pod, the kubelet fetches the node
//     again. It then does not count extended resources that only the fetched
//     node has; this package counts them.
//   - Amounts that an int64 cannot hold count as the largest int64. In the
//     kubelet they overflow, so a pod that requests too much may count as
//     requesting nothing.
//   - The kubelet relies on the API server to set missing requests. Here a pod
//     without these defaults is admitted with its limits as requests.
//   - After a restart, the kubelet rejects a pod that no longer matches the
//     labels or taints of the node. This package does not reject the pod for
//     this reason if the pod has a start time and NodeConfig.Allocated reports
//     that the pod was admitted before.
//   - ActiveDeadline sends no event; the kubelet sends an event each time it
//     finds that a pod's deadline has passed.
//   - Here every hook must have a deadline. In the kubelet, postStart hooks
//     have no deadline and can block their pod (kubernetes#30042). The
//     HookRunner records an event if the deadline interrupts a preStop hook. It
//     records no event if the container ends while its preStop hook runs. It
//     does not start a hook whose deadline has passed or whose container has
//     ended.
//   - Here HTTP hooks do not reuse connections. In the kubelet, an HTTP hook
//     succeeds with any HTTP status (kubernetes#56963). Here this is the
//     default, and [HookConfig.FailOnStatus] changes it.
//   - The kubelet treats a path such as mailto:x as a URL without a host and
//     sends no request; this package treats it as a path.
//   - If the pod has no IP for an HTTP hook, the kubelet logs the whole pod
//     status; this package logs that the pod has no IP.
//   - If an HTTPS hook fails with HTTPS and with plain HTTP, the kubelet
//     reports the first error; this package reports both.
//   - After its own restart, the kubelet runs a preStop hook again. Here the
//     hook runs once, if the caller sets ContainerState.PreStopped.
//   - If a container ends while its preStop hook runs, for example a sleep, the
//     kubelet waits for the hook; here the hook is cancelled.
//   - When the kubelet stops a pod, a sidecar waits only for the next sidecar
//     in the spec. If the next sidecar does not run, the sidecar waits for no
//     other sidecar. Here a sidecar waits for all sidecars that come after it.
//   - The kubelet stops sidecars while an init container still runs and may
//     need them; here the sidecars are stopped after the init container.
//   - In the kubelet, sidecars wait until the end of the grace period for a
//     container that can't be stopped. Here they wait only until the stop has
//     failed. See kubernetes#125880.
//   - From a container's grace period, the kubelet subtracts the duration of
//     the preStop hook and of the wait for other containers. It rounds each
//     duration down to whole seconds, so a container may get up to two seconds
//     more than the grace period of its pod. Here the time left until the
//     deadline is rounded up.
//   - The kubelet compares a container's end with the wall clock on every sync:
//     if the clock steps back by an hour, the container waits an hour longer.
//     Here the times are compared once.
//   - The kubelet deletes the back-off of a container 10 minutes after the
//     container's last start, even while the container waits. For example, a
//     container that runs for 7 minutes each time loses its back-off during the
//     5-minute wait and restarts early. Here the back-off of a waiting
//     container is not deleted.
//   - The kubelet keeps back-offs only in memory and loses them when it
//     restarts. Here a caller can save them with [Backoff.Snapshot].
//   - Not implemented: the admission handlers for AppArmor, sysctls, declared
//     features, devices and topology.
//
// # Testing your code with it
//
// Set a fake clock from k8s.io/utils/clock/testing in the configs and step it,
// or use the default clock in a testing/synctest bubble; deadlines and
// terminations support both. Hooks over real sockets need real time.
package lifecycle
