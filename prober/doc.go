// Package prober runs the liveness, readiness and startup probes of a node's containers, by
// command, HTTP, TCP and gRPC, and evaluates their results.
//
// # What it does
//
// A [Manager] has one schedule of all probes, ordered by the time at which they are due.
// [Manager.Run] starts a goroutine for each due probe. At most MaxExec exec probes and
// MaxParallel other probes run concurrently; other runs wait for a free slot.
// [Manager.Probe] does a single run, for a caller with its own schedule. The outcomes of a
// probe and its thresholds determine its [Result]. [Manager.Result] returns the result, and
// [Manager.Results] returns a channel of changed results. [Manager.UpdatePodStatus] sets
// Started and Ready in a pod status. [Manager.History] returns the last runs.
//
// # What you supply
//
// You supply a Lookup that returns the state of a container, for example from a cache of
// the runtime's state. Exec probes need a [Runner], whose types do not depend on CRI. gRPC
// probes need a [GRPC], such as the Checker of package grpcprobe. Call [Manager.AddPod] on
// every sync of a pod, [Manager.Refresh] when containers of the pod have changed,
// [Manager.StopLivenessAndStartup] when the termination of the pod begins and
// [Manager.RemovePod] when the pod has ended.
//
// Kill a container if [Manager.Result], called with the container's current ID, returns
// [Failure] for its liveness or startup probe.
//
// # What it guarantees
//
//  1. Outcomes are counted per container ID. A new container starts with new counts.
//  2. If a container stops responding, the result becomes [Failure] within failureThreshold
//     periods plus one timeout. This holds if the timeout is at most as long as the period
//     and a slot is free. If the timeout is longer than the period, the next run starts as
//     soon as the failed run has ended.
//  3. The first run on a new container is due exactly when the initial delay is over, if
//     the caller has called Refresh after the start of the container.
//  4. A probe has at most one run in progress. When a probe is removed, its run is
//     cancelled and not counted.
//  5. A container that was started before the Manager was created keeps its reported state
//     until its probes have a result (KEP-4781): see [Unknown].
//  6. The [ErrorPolicy] of each kind of probe defines whether a run that ends in an error
//     counts as a failure. The Observer always receives such a run, and History contains
//     the run. The [EventPolicy] defines whether the run causes an event.
//  7. A probe that hangs does not delay other probes as long as a slot is free. If probes
//     that hang use all slots (MaxParallel or MaxExec), other probes wait until one of the
//     hanging probes reaches its timeout. The wait for a slot does not count towards the
//     timeout.
//  8. If a container with a readiness probe has exited, Refresh makes it not ready at once.
//
// # Goroutines and locking
//
// New starts nothing. Run starts one goroutine for each run that is in progress or waits
// for a slot, and one for each call of the Runner or the Killer. A probe that is not due has
// no goroutine, unless its command is still running. All goroutines that Run started have
// ended when Run returns. Each reader of Results has one goroutine until the reader's context
// is done. One lock guards the state and is never held during callbacks. Timeouts are
// measured in real time, even if the clock is fake.
//
// # Connections
//
// As in the kubelet, an HTTP probe uses net/http with a new connection, which shows that a
// new client can connect. Error texts, redirects, limits and HTTP/2 support are therefore
// the same as in net/http. The Manager closes HTTP and TCP connections by a reset, so that
// no socket stays in TIME_WAIT. When a run ends, its dial is cancelled. Package grpcprobe
// reuses the connections of gRPC probes, unless [Options].FreshConnection is set.
//
// # How it works
//
// All probes without a run in progress are in one heap, ordered by the time at which they
// are due. Run (prober.go) starts a goroutine for each due probe. The goroutine waits for a
// slot and calls the method step (run.go), which looks up the container. The method
// updateContainer (pods.go) switches the probe to a new container, the function plan
// (decide.go) decides what to do, and the method attempt (attempt.go) runs the probe. The
// method finish counts the outcome (count.go) and computes when the probe is due again
// (schedule.go). testdata/stories/life.txt shows all steps from the start to the removal of a
// container.
//
// # Differences from the kubelet
//
// Baseline: kubelet 1.36 with its default feature gates.
//
//   - If a response breaks off in its body, the kubelet repeats the request twice and then
//     ignores the run, so the probe of a server that always does this never fails; here
//     such a run is a failure.
//   - The kubelet repeats a run that ends in an error up to twice, without a wait; here the
//     next run follows after a period.
//   - The kubelet can always run commands; here an exec probe without a Runner is an error.
//   - The kubelet ignores a run that ends in an error; here such a run counts as a failure
//     if the ErrorPolicy of its kind counts it.
//   - The kubelet continues counting when a container is replaced, so the first failure of
//     a new container may reach the threshold; here each container has its own count.
//   - The kubelet decides the outcome of a command when the runtime returns; here it is
//     decided at the timeout of the command at the latest. While the command continues to
//     run after its timeout, each period counts as a failure here. Timeouts are exact here,
//     even if the runtime supports whole seconds only.
//   - As in the kubelet, the first 10 KiB of a command's output are used, but here the rest
//     is discarded as it arrives from the [Runner]. The beginning is used and not the end,
//     because the kubelet's events and logs show the beginning, and a check usually prints
//     the cause first. History contains at most [Config].HistoryBytes of these 10 KiB.
//   - Here probes that start together are spread: the first interval is shorter by up to a
//     tenth of a period, at most a second; the kubelet spreads probes only after its own
//     start. Here the first runs of probes on containers that are older than the Manager
//     are spread over a period, at most ten seconds; the kubelet spreads them over a
//     period.
//   - The kubelet does the first run at the first tick of its ticker after the initial
//     delay; here the first run is exactly when the initial delay is over. If the initial
//     delay is 0, the first run here is immediately after the start of the container, and
//     fails if the container does not listen yet. So a failureThreshold of 1 needs an
//     initial delay or a startup probe.
//   - When a startup probe succeeds, the other probes of the container run at once here, if
//     their initial delays are over; in the kubelet they run later, after a sync or at their
//     next tick.
//   - In the kubelet, generating the status of a pod can trigger a run, whose failure
//     counts; here only [Manager.Trigger] triggers a run, and its failure does not count.
//   - AddPod of the kubelet stops at the first probe that exists already, so a later probe
//     that was removed is never added again when its container is restarted; here AddPod
//     adds all missing probes.
//   - The kubelet removes the probes of a container that has exited and will not run again.
//     Each sync of the pod adds them again, and their results cause another sync. Here the
//     probes stay until the pod is removed.
//   - The kubelet continues the startup and liveness probes of sidecars while their pod
//     terminates; here they stop with the probes of the other containers. Because of that,
//     a sidecar that has not started when the termination of its pod begins counts as
//     started here, like other containers.
//   - The kubelet treats a new container as started if the previous container of the same
//     name had started. So if the kubelet did not observe the exit, it probes readiness and
//     liveness before the startup probe; here only the status of the same container counts.
//   - After its own restart the kubelet treats a container with a readiness probe as ready
//     if the whole pod was ready; here the container keeps its own readiness.
//   - The probes of the kubelet depend on the status that the syncs of the pod worker
//     compute; here they do not, so readiness is probed as long as a container runs. With
//     [Config].UnreadyOnStop no container is ready after the termination of its pod has
//     begun.
//   - The kubelet records Failure for each probe of a container that is not running, and
//     kills the container if the result is still Failure when the container runs again;
//     here the result of a liveness or startup probe changes only after runs.
//   - The kubelet records an event for each failed run; with EventsOnChange, an event is
//     recorded for the failure that changes the result, for the first failure below the
//     threshold (with the number of the failure), and then once per EventPeriod. The texts
//     are the kubelet's. See [EventPolicy].
//   - Here [Options] can define which HTTP statuses succeed, and whether redirects are
//     followed; the kubelet has no such options.
//   - Here, with [Options], periods, timeouts and delays may be shorter than a second; the
//     kubelet supports whole seconds only.
//
// # Testing your code with it
//
// Call [Manager.Probe], with a Lookup that returns literal values, a [Runner] that returns
// exit codes and a fake clock. To test a loop, call Run with the real clock inside a
// testing/synctest bubble: a simulated day of probes takes milliseconds. In a bubble,
// Config.Dial must return pipes for network probes.
package prober
