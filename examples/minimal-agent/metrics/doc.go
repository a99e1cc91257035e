// Package metrics shows what the managers do as Prometheus metrics, with the names,
// labels and buckets of the kubelet 1.36, so that its dashboards and alerts work.
//
// # What it does
//
// [Metrics] has one method for each package that has an Observer. It returns an
// observer that counts and then calls the one that it was given, so that who has an
// observer already goes on having it:
//
//	cfg.Observer = m.PLEG(pleg.Observer{RelistEnd: a.relisted})
//
// [Metrics.CallObserver] is a gRPC interceptor that counts the calls to the runtime.
// What somebody else knows better (how many pods there are, what they use) is not
// counted but asked for when a scrape comes: [Sources].
//
// [Metrics.Handlers] are the kubelet's three pages:
//
//	/metrics           kubelet_*, go_*, process_*, container_oom_events_total
//	/metrics/probes    prober_probe_total, prober_probe_duration_seconds
//	/metrics/resource  what node, pods and containers use, for metrics-server
//
// What the kubelet has no metric for is there as kubeparts_*.
//
// # What it guarantees
//
//  1. Nothing is registered anywhere but in the [Metrics]: any number of them live in
//     one process.
//  2. It has no goroutine and no timer. Between two scrapes it costs a few atomic
//     additions for each thing that happens, and no memory.
//  3. Its size follows the pods that there are: series that name a pod go with it. All
//     that a pod chooses of the labels of others is an exit code.
//  4. A hung runtime holds up /metrics/resource, for as long as whoever asks waits, and
//     neither of the other two.
//
// # Differences from the kubelet
//
// kubelet_running_containers has each state, 0 too: the kubelet's stays where it was
// when the last container leaves a state (kubernetes#98644).
//
// kubelet_pleg_last_seen_seconds moves with each relist that succeeds, not when
// somebody asks for the health (kubernetes#86251). kubelet_pleg_discard_events stays 0:
// there is nothing that drops events.
//
// kubelet_pod_status_sync_duration_seconds is the time from a change to its
// publication, each time (kubernetes#107896).
//
// kubelet_pod_start_duration_seconds does not count the pods that an agent finds
// running when it starts.
//
// kubelet_runtime_operations_errors_total does not count a command that was run and
// said no: that is an answer, and what probes are for.
//
// prober_probe_total has all results of a probe from its first run on, so that a rate
// sees the first failure, and "unknown" for a probe that could not be run, which the
// kubelet counts as failed. The duration of a probe outlives an older pod of its name.
//
// container_oom_events_total, which is cAdvisor's, is by container, not by instance of
// one: it has no id, image and name, and goes on over restarts. It is 0 for a container
// that was never hit.
//
// Metrics of what is not here (volume plugins, devices, certificates, API server) are
// missing.
package metrics
