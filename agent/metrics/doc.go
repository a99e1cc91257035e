// Package metrics shows what the managers do as Prometheus metrics, with the names,
// labels and buckets of the kubelet 1.36, so that its dashboards and alerts work.
//
// # What it does
//
// [Metrics] has one method for each package that has an Observer. It returns an
// observer that counts and then calls the one that it was given, so that an agent's own
// observer is still called:
//
//	cfg.Observer = m.PLEG(pleg.Observer{RelistEnd: a.relisted})
//
// [Metrics.CallObserver] is a gRPC interceptor that counts the calls to the runtime.
// What an agent knows at any time, such as how many pods there are, is not counted but
// read when a scrape comes: [Metrics.Add].
//
// The kubelet has three pages:
//
//	/metrics           kubelet_*, go_*, process_*, container_oom_events_total
//	/metrics/probes    prober_probe_total, prober_probe_duration_seconds
//	/metrics/resource  what node, pods and containers use, for metrics-server
//
// The first two are whatever serves the registerers of [Config]. [Metrics.Resource]
// returns the handler of the third. What the kubelet has no metric for is there as
// kubeparts_*.
//
// # What you supply
//
// A registry of client_golang, and promhttp to serve it; a second registry for a page
// /metrics/probes as the kubelet has it. The collectors of the process and of the Go
// runtime are the program's to register:
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(collectors.NewGoCollector())
//	m, err := metrics.New(metrics.Config{Registerer: registry})
//	…
//	remove := m.Add(metrics.Source{Desired: pods.GetPods, Known: workers.KnownPods, Observed: cache.Statuses})
//	defer remove()
//	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// One Metrics may serve many agents: give each its observers, and add each as a source.
// To tell agents apart, give each a Metrics of its own, whose registerer adds a label:
// prometheus.WrapRegistererWith.
//
// # What it guarantees
//
//  1. Nothing is registered anywhere but with the registerers of [Config]: any number of
//     Metrics live in one process.
//  2. Between two scrapes it costs a few atomic additions for each thing that happens, and
//     no memory.
//  3. Its size follows the pods that there are: series that name a pod go with it, or with
//     its agent. All that a pod chooses of the labels of others is an exit code.
//  4. A hung runtime delays /metrics/resource, for as long as the client waits, and
//     neither of the other two.
//  5. Counters and histograms of several agents add up, and so do gauges, but for two
//     kinds: kubelet_pleg_last_seen_seconds is that of the agent whose relist is the
//     oldest, and the times of a graceful shutdown are the newest.
//
// # Goroutines and locking
//
// There are no goroutines and no timers. All methods and all observers may be called
// concurrently. No lock is held while the functions of a [Source] are called.
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
//
// # Testing your code with it
//
// Give New a registry of the test's own, and read it with its Gather or with promhttp and
// an httptest.ResponseRecorder. Config.Clock makes times exact.
package metrics
