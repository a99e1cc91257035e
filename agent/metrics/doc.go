// Package metrics exports what an agent or single managers do as Prometheus metrics, with the
// names, labels and buckets of the kubelet 1.36, so that its dashboards and alerts work.
//
// # What it does
//
// A program on package agent needs two calls:
//
//	m, err := metrics.New(metrics.Config{Registerer: registry})
//	…
//	a, err := agent.New(agent.Config{Observers: m.Observers(agent.Observers{}), …})
//	…
//	remove := m.AddAgent(a)
//	defer remove()
//
// [Metrics.Observers] counts what happens: relists, pulls, starts, probes, evictions. It then
// calls the observers that it was given, so that those of the program are still called.
// [Metrics.AddAgent] adds what is not counted but read when a scrape comes, such as how many
// pods run.
//
// A program that wires the managers by hand uses the methods below these: one for each
// package that has an Observer, and [Metrics.Add] in place of AddAgent:
//
//	cfg.Observer = m.PLEG(pleg.Observer{RelistEnd: a.relisted})
//
// [Metrics.CallObserver] is a gRPC interceptor that counts the calls to the runtime. It
// belongs to the CRI client, not to the agent.
//
// The kubelet has three pages:
//
//	/metrics           kubelet_*, go_*, process_*, container_oom_events_total
//	/metrics/probes    prober_probe_total, prober_probe_duration_seconds
//	/metrics/resource  what node, pods and containers use, for metrics-server
//
// The program serves the first two from the registries of [Config]. [Metrics.Resource]
// returns the handler of the third. Metrics that the kubelet does not have begin with
// kubeparts_.
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
//	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// One Metrics may serve many agents: give each its Observers, and add each with AddAgent.
// To tell agents apart, give each a Metrics of its own, whose registerer adds a label:
// prometheus.WrapRegistererWith.
//
// # What it guarantees
//
//  1. Nothing is registered except with the registerers of [Config]. Any number of Metrics
//     fit in a process.
//  2. Between two scrapes an event costs a few atomic additions and no memory.
//  3. The size follows the number of pods. A series that names a pod is deleted with the pod,
//     or with its agent. Of the labels of other series, a pod chooses only the exit code.
//  4. A runtime that hangs delays /metrics/resource, for as long as the client waits, and no
//     other page.
//  5. Counters and histograms of several agents add up, and so do gauges, with two
//     exceptions: kubelet_pleg_last_seen_seconds is that of the agent with the oldest
//     relist, and the times of a graceful shutdown are the newest.
//
// # Goroutines and locking
//
// The package starts no goroutines and no timers. All methods and all observers may be called
// concurrently. No lock is held while the functions of a [Source] are called.
//
// # Differences from the kubelet
//
//   - kubelet_running_containers has every state, also those with 0 containers. The kubelet's
//     does not change when the last container leaves a state (kubernetes#98644).
//   - kubelet_pleg_last_seen_seconds changes with each relist that succeeds, not with each
//     health check (kubernetes#86251). kubelet_pleg_discard_events is always 0, because no
//     event is discarded.
//   - kubelet_pod_status_sync_duration_seconds is the time from a change to its publication,
//     for each publication (kubernetes#107896).
//   - kubelet_pod_start_duration_seconds does not count pods that ran before the agent
//     started.
//   - kubelet_admission_rejections_total counts each refusal. A static pod that is asked about
//     again and refused again counts again. Reasons that the kubelet does not have, such as
//     those of [agent.Config].Admission, are counted as Other.
//   - kubelet_runtime_operations_errors_total does not count a command that ran and returned
//     an exit code other than 0, such as a failed exec probe.
//   - prober_probe_total has all results of a probe from the first run, so that a rate
//     includes the first failure, and "unknown" for a probe that could not run, which the
//     kubelet counts as failed. The duration of a probe survives an older pod of the same
//     name.
//   - container_oom_events_total, which is cAdvisor's, counts by container and not by
//     instance. It has no id, image and name, and continues over restarts of the container.
//     It is 0 for a container that was never killed.
//   - Metrics of features that do not exist here (device plugins, certificates, API server)
//     are missing.
//
// # Testing your code with it
//
// Give New a registry of the test's own, and read it with its Gather or with promhttp and
// an httptest.ResponseRecorder. Config.Clock makes times exact.
package metrics
