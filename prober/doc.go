// Package prober runs the liveness, readiness and startup probes of a node's containers, by
// command, HTTP, TCP and gRPC, and evaluates their results.
//
// # What it does
//
// A [Manager] has one schedule of all probes, ordered by the time at which they are due.
// [Manager.Run] starts a goroutine for each due probe; at most MaxParallel probes and
// MaxExec commands run concurrently. [Manager.Probe] does a single run, for a caller with
// its own schedule. The outcomes of a probe, evaluated with its thresholds, are its
// [Result]: get it with [Manager.Result], receive changes with [Manager.Results], or set it
// in a pod status with [Manager.UpdatePodStatus]. [Manager.History] returns the last runs.
//
// # What you supply
//
// A Lookup that returns the state of a container, for example from a cache of the runtime's
// state; for exec probes a [Runner], whose types do not depend on CRI; for gRPC probes a
// [GRPC], such as that of package grpcprobe. Call [Manager.AddPod] on every sync of a pod,
// [Manager.Refresh] when its containers have changed, [Manager.StopLivenessAndStartup] when
// its termination begins and [Manager.RemovePod] when it has ended.
//
// Kill a container when Result returns [Failure] for its liveness or startup probe and its
// container ID.
//
// # What it guarantees
//
//  1. Outcomes are counted per container ID. A new container starts with new counts.
//  2. A container that stops responding is [Failure] after failureThreshold periods and one
//     timeout at the latest, if timeout ≤ period and a slot is free. With a longer timeout,
//     the next run follows a failed one at once.
//  3. The first run on a new container is exactly when its initial delay is over, if
//     Refresh was called after its start.
//  4. A probe has at most one run in progress. When a probe is removed, its run is
//     cancelled and not counted.
//  5. A container that is older than the Manager keeps its reported state until its probes
//     have a result (KEP-4781): see [Unknown].
//  6. Whether a run that ends in an error counts is defined by an [ErrorPolicy] per kind.
//     Such a run is always reported to the Observer, in History and as an event.
//  7. A probe that hangs does not delay others unless such probes use all slots,
//     MaxParallel or MaxExec, and then for one timeout at most. The wait for a slot does
//     not count towards the timeout.
//  8. Refresh makes a container that has exited not ready at once.
//
// # Goroutines and locking
//
// New starts nothing. Run has one goroutine for each run that is in progress or waits for a
// slot, and one for each command. A probe that is not due has none. All have ended when Run
// returns. Each reader of Results has one until its context is done. One lock guards the
// state and is never held during callbacks. Timeouts are real time even on a fake clock.
//
// # Connections
//
// As in the kubelet, an HTTP probe is a request of net/http over a new connection, which
// shows that a new client can connect. So texts, redirects, limits and HTTP/2 are those of
// net/http. HTTP and TCP connections are closed by a reset, so that no socket stays in
// TIME_WAIT. A dial ends with its run. Package grpcprobe keeps the connections of gRPC
// probes, unless [Options].FreshConnection is set.
//
// # How it works
//
// All probes without a run in progress are in one heap, ordered by the time at which they
// are due. Run (prober.go) starts a goroutine for each due probe, which waits for a slot
// and calls step (run.go). It looks up the container; updateContainer (pods.go) switches
// the probe to a new container; decide (decide.go) decides what to do; the probe runs; and
// finish counts its outcome (count.go) and computes when the probe is due again
// (schedule.go). testdata/stories/life.txt shows the life of a container step by step.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates.
//
//   - If a response breaks off in its body, the kubelet repeats the request twice and then
//     ignores the run, so a server that always does that never fails; here it is a failure.
//   - The kubelet repeats a run that ends in an error up to twice, without a wait; here the
//     next run follows after a period.
//   - The kubelet can always run commands; here an exec probe without a Runner is an error.
//   - The kubelet ignores a run that ends in an error; here such a run counts as a failure
//     if the ErrorPolicy of its kind counts it.
//   - The kubelet continues counting when a container is replaced, so the first failure of
//     a new container may reach the threshold; here each container has its own count.
//   - The outcome of a command is decided at its timeout, not when the runtime returns;
//     while the command continues, each period is a failure. Timeouts are exact, even if
//     the runtime supports whole seconds only.
//   - As in the kubelet, the first 10 KiB of a command's output are kept, but here the rest
//     is discarded as it arrives from the [Runner]. The beginning is kept and not the end,
//     because the kubelet's events and logs show it, and a check usually prints the cause
//     first. History keeps the beginning of that.
//   - Probes that start together are spread: the first interval is shorter by up to a tenth
//     of a period, at most a second. The first run of a probe on a container that is older
//     than the Manager is spread over a period, at most ten seconds; the kubelet spreads it
//     over a period.
//   - The first run is exactly when the initial delay is over, not at a later tick. Without
//     a delay that is just after the start, so a container that does not listen at once
//     fails it: a failureThreshold of 1 needs an initial delay or a startup probe.
//   - When a startup probe succeeds, the other probes of the container run at once.
//   - A failure of a triggered run is not counted, and the generation of a status triggers
//     no run.
//   - AddPod of the kubelet stops at the first probe that exists already, so a later probe
//     that was removed is never added again when its container is restarted; here AddPod
//     adds all missing probes.
//   - The kubelet continues the startup and liveness probes of sidecars while their pod
//     terminates; here they stop with those of the other containers. Because of that, a
//     sidecar that has not started when the termination of its pod begins counts as started
//     here, like other containers.
//   - The kubelet treats a container as started if its predecessor of the same name was, so
//     after a restart whose exit it did not observe, readiness and liveness are probed
//     before the startup probe; here Started is that of the same container.
//   - After its own restart the kubelet treats a container with a readiness probe as ready
//     if the whole pod was ready; here the container keeps its own readiness.
//   - Readiness is probed as long as a container runs, because probing does not depend on
//     syncs of the pod worker. With [Config].UnreadyOnStop no container is ready after
//     termination has begun.
//   - The kubelet records Failure for each probe of a container that is not running, and
//     kills the container if that is still the result when it is running again; here the
//     result of a liveness or startup probe changes only after runs.
//   - The kubelet records an event for each failed run; with EventsOnChange there is one
//     for the failure that reaches the threshold, one for the first failure below it, with
//     its number, and then one per EventPeriod. The texts are the kubelet's. See
//     [EventPolicy].
//   - [Options] can define which HTTP statuses succeed, and whether redirects are followed.
//   - With [Options], periods, timeouts and delays may be shorter than a second.
//
// # Testing your code with it
//
// Call [Manager.Probe], with a Lookup that returns literal values, a [Runner] that returns
// exit codes and the fake clock. Test loops with Run and the real clock inside a
// testing/synctest bubble: a simulated day of probes takes milliseconds. There, Config.Dial
// must return pipes for network probes.
package prober
