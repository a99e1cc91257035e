// Package prober runs the liveness, readiness and startup probes of a node's
// containers, by command, HTTP, TCP and gRPC, and says what they amount to.
//
// # What it does
//
// A [Manager] keeps the probes in one heap, by when they are due. [Manager.Run] starts a
// goroutine for each probe that is due, and at most MaxParallel of them, and MaxExec
// commands, run at a time. [Manager.Probe] is a single step, for a caller with its own
// schedule. What the runs of a probe amount to, by its thresholds, is its [Result]: ask
// with [Manager.Result], follow with [Manager.Results], or have it written into a status
// with [Manager.UpdatePodStatus]. [Manager.History] returns the last runs.
//
// # What you supply
//
// A Lookup that says what is known of a container, such as what a cache of the
// runtime's view has; for exec probes a [Runner], in plain types and not CRI's; for
// gRPC probes a [GRPC], such as that of the package grpcprobe. Call [Manager.AddPod]
// on every sync of a pod, [Manager.Refresh] when its containers have changed,
// [Manager.StopLivenessAndStartup] when it begins to end and [Manager.RemovePod] when
// it has ended.
//
// A container is to be killed when Result says [Failure] for its Liveness or Startup
// probe and the ID of the container that runs.
//
// # What it guarantees
//
//  1. What is counted is counted for one container, by its ID. A new one begins anew.
//  2. A container that stops answering is [Failure] after failureThreshold periods and
//     one timeout, never later, as long as timeout ≤ period and there is a place to
//     run in. With a longer timeout, a run that fails is followed by the next at once.
//  3. The first run on a new container is exactly when its initial delay is over, if
//     Refresh told of its start.
//  4. A probe has one run in flight at a time. A removed one has none: what is in
//     flight is cut short and counts for nothing.
//  5. A container that was there before the Manager stays what it was said to be until
//     its probes decide (KEP-4781): see [Unknown].
//  6. A run that cannot be made counts by an [ErrorPolicy] per kind, and is always
//     seen: in the Observer, in History and as an event.
//  7. One that hangs delays no other, unless all places are taken by such: MaxParallel
//     and MaxExec, for a timeout at most. Waiting for a place is not counted against
//     the timeout.
//  8. A container that has ended is not ready any more, at once on Refresh.
//
// # Goroutines and locking
//
// New starts nothing. Run has one goroutine for each run that is under way or waits for
// a place, and one for each command. A probe that is not due has none. All have ended when
// Run returns; each reader of Results has one until its context ends. One lock guards
// the state and is never held during callbacks. Timeouts are real time even on a fake
// clock.
//
// # Connections
//
// As in the kubelet, an HTTP probe is a request of net/http over a new connection, which
// shows that a new client can connect. So texts, redirects, limits and HTTP/2 are those
// of net/http. HTTP and TCP connections are closed by a reset, which leaves nothing in
// TIME_WAIT. A dial ends with its run. gRPC probes have their connections kept by the
// package grpcprobe, unless [Options].FreshConnection is set.
//
// # How it works
//
// All probes without a run are in one heap by the time at which they are due. Run
// (prober.go) starts a goroutine for each due probe, which waits for a place and takes one
// step (run.go): it looks the container up, see (pods.go) adopts a new container, decide
// (decide.go) chooses what to do, the probe runs, and end counts its outcome (count.go)
// and computes when the probe is due again (schedule.go). testdata/stories/life.txt shows a
// life step by step.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates.
//
//   - The kubelet repeats a request whose answer breaks off in its body twice and then
//     forgets the run, so a server that always does that never fails; here it is a
//     failure.
//   - The kubelet repeats a run that ends in an error twice at once; here the next run
//     comes a period later.
//   - The kubelet can always run commands; here an exec probe without a Runner is an
//     error.
//   - The kubelet forgets a run that ends in an error; here such a run counts as a
//     failure if the ErrorPolicy of its kind says so.
//   - The kubelet goes on counting when a container is replaced, so the first failure of
//     a new container may reach the threshold; here each container has its own count.
//   - What a command amounts to is known at its timeout, not when the runtime returns;
//     while it goes on, each period is a failure. Timeouts are to the nanosecond,
//     whatever the runtime can do.
//   - Of a command's output the first 10 KiB are kept, as there, but no more is ever
//     held: it goes from the [Runner] into a buffer that forgets the rest. The first,
//     not the last, because they are what the kubelet's events and logs show, and a
//     check says first what is wrong. History keeps the beginning of that.
//   - Probes that start together are spread: up to a tenth of a period, at most a second,
//     is taken off the first interval. The first run of a probe on a container that is
//     older than the Manager is spread over a period, at most ten seconds; the kubelet
//     spreads it over a period.
//   - The first run is when the initial delay is over, not at some tick after it. With
//     no delay that is when the container has just been started, so one that takes a
//     moment to listen fails it: a failureThreshold of 1 needs an initial delay or a
//     startup probe.
//   - A startup probe's success sets off the others at once.
//   - A failure of a triggered run is not counted, and generating a status triggers no
//     run.
//   - AddPod of the kubelet stops at the first probe that is there already, so a probe
//     behind it that has ended is never added again when its container starts once
//     more; here AddPod adds whatever is missing.
//   - The kubelet goes on with the startup and liveness probes of sidecars while their
//     pod ends; here they stop with those of the other containers. Because of that, a
//     sidecar that has not started when its pod begins to end counts as started here,
//     as other containers do.
//   - The kubelet takes a container for started if a container of the same name was, so
//     after a restart whose exit it did not see, readiness and liveness are probed
//     before the startup probe; here Started is that of the same container.
//   - After a restart the kubelet takes a container with a readiness probe for ready if
//     its whole pod was; here the container stays what it was itself.
//   - Readiness is probed for as long as a container runs, because nothing here is
//     bound to a turn of the pod's worker. With [Config].UnreadyOnStop nothing is
//     ready any more from the beginning of the end.
//   - The kubelet records Failure for each probe of a container that does not run, and
//     kills the container if the result still stands when it runs (again); here only
//     runs lead to a result of a liveness or startup probe.
//   - The kubelet makes an event of each failed run; with EventsOnChange ours makes one
//     of the failure that reaches the threshold, of the first below it, with its number,
//     and of one in EventPeriod. The texts are the kubelet's. See [EventPolicy].
//   - Which statuses are well, and whether redirects are followed, is for [Options].
//   - Periods, timeouts and delays may be shorter than a second, by [Options] too.
//
// # Testing your code with it
//
// Call [Manager.Probe], with a Lookup that returns literal values, a [Runner] that
// returns exit codes and the fake clock. Loops are best tested with Run and the real
// clock inside a testing/synctest bubble: a simulated day of probes takes
// milliseconds. Network probes need Config.Dial to return pipes there.
package prober
