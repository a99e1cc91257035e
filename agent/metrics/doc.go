// Package metrics exports Prometheus metrics of an agent or of single managers. The metrics
// have the names, labels and buckets of the kubelet 1.36, so that dashboards and alerts for the
// kubelet work.
//
// # What it does
//
// A program that uses package agent needs two calls:
//
//	m, err := metrics.New(metrics.Config{Registerer: registry})
//	…
//	a, err := agent.New(agent.Config{Observers: m.Observers(agent.Observers{}), …})
//	…
//	remove := m.AddAgent(a)
//	defer remove()
//
// [Metrics.Observers] returns observers that count events: relists, pulls, starts, probes,
// evictions. After counting, they call the program's own observers, which are the argument of
// Observers. [Metrics.AddAgent] adds the metrics that are read during a scrape, such as the
// number of running pods.
//
// A program that creates the managers itself uses the methods for single packages, one for each
// package with an Observer, and [Metrics.Add] instead of AddAgent:
//
//	cfg.Observer = m.PLEG(pleg.Observer{RelistEnd: a.relisted})
//
// [Metrics.CallObserver] returns a gRPC interceptor that counts the calls to the runtime. Pass
// the interceptor to the CRI client, not to the agent.
//
// The kubelet has five pages:
//
//	/metrics           kubelet_*, go_*, process_*, container_oom_events_total
//	/metrics/slis      kubernetes_healthcheck, kubernetes_healthchecks_total
//	/metrics/probes    prober_probe_total, prober_probe_duration_seconds
//	/metrics/resource  resource usage of node, pods and containers, for metrics-server
//	/metrics/cadvisor  usage and limits of cgroups, and the machine, for dashboards
//
// The program serves /metrics, /metrics/slis and /metrics/probes from the registries of
// [Config]. [Metrics.Resource] and [Metrics.Cadvisor] return the handlers of the other two
// pages. The names of metrics that the kubelet does not have start with kubeparts_.
//
// # What you supply
//
// You supply a registry of client_golang and serve it with promhttp. For a separate page
// /metrics/probes, as in the kubelet, you supply a second registry. You also register the
// collectors of the process and of the Go runtime:
//
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(collectors.NewGoCollector())
//	m, err := metrics.New(metrics.Config{Registerer: registry})
//	…
//	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// One Metrics may serve many agents: call Observers and AddAgent for each agent. To distinguish
// the agents, use one Metrics per agent, with a registerer of prometheus.WrapRegistererWith
// that adds a label.
//
// # What it guarantees
//
//  1. Metrics are only registered with the registerers of [Config], never globally. A process
//     can have any number of Metrics.
//  2. Counting a call to the runtime or a run of a probe allocates no memory, except for a
//     new series.
//  3. The number of series depends on the number of pods. A series with a pod's name is deleted
//     when the pod or its agent is removed. In the other series, the only label value that pods
//     can choose is the exit code.
//  4. A runtime that hangs delays only /metrics/resource, at most until the client cancels the
//     request. /metrics/cadvisor costs nothing while no client requests it.
//  5. If several agents use one Metrics, each value is the sum of the values of the agents.
//     Exceptions: kubelet_pleg_last_seen_seconds has the time of the agent whose last relist is the
//     oldest. The metrics of a graceful shutdown have the times of the newest shutdown.
//     kubelet_cgroup_version, kubelet_imagemanager_ondisk_* and kubelet_orphan_pod_cleaned_volumes*
//     have the value of only one of the agents.
//
// # Goroutines and locking
//
// The package starts no goroutines and no timers. All methods and all observers may be called
// concurrently. No lock is held while the functions of a [Source] are called.
//
// # Differences from the kubelet
//
//   - Our kubelet_running_containers has a series for every state, including states with 0
//     containers. The kubelet does not update the series of a state when the last container leaves
//     the state (kubernetes#98644).
//   - Our kubelet_pleg_last_seen_seconds changes with each successful relist; in the kubelet it
//     changes with each health check (kubernetes#86251). Our kubelet_pleg_discard_events is always
//     0, because ours discards no event.
//   - Our kubelet_pod_status_sync_duration_seconds has one value for each publication of a status:
//     the time since the first change that was not published yet (kubernetes#107896).
//   - Our kubelet_pod_start_duration_seconds does not count pods that ran before the agent started.
//   - Our kubelet_admission_rejections_total counts each refusal, also if a static pod is refused
//     several times. Reasons that the kubelet does not have, such as the reasons of
//     [agent.Config].Admission, are counted as Other.
//   - Our kubelet_runtime_operations_errors_total does not count a command that ran and returned an
//     exit code other than 0, such as a failed exec probe.
//   - After the first run of a probe, our prober_probe_total has a series for each result, so that
//     a rate includes the first failure. In ours, a probe that could not run counts as "unknown";
//     in the kubelet it counts as failed. In ours, the duration series of a probe is kept when an
//     older pod of the same name is removed.
//   - Our container_oom_events_total, a metric of cAdvisor, has one series for each container and
//     not one for each instance. The series has no labels id, image and name, and continues to
//     count after a restart of the container. The value is 0 for a container without OOM kills.
//   - Our metrics kubelet_http_* count port-forwards with long_running true; the kubelet
//     compares the path with another spelling, and counts port-forwards with false.
//   - Our metrics on /metrics/cadvisor have the values at the time of the request and no
//     timestamps, so that Prometheus drops the series of a removed container at once. The kubelet
//     serves values that are up to 15 s old.
//   - On our /metrics/cadvisor, a figure that the kernel does not report is missing; in the kubelet
//     it is 0. The kubelet therefore has container_spec_cpu_period and container_spec_cpu_shares of
//     the root cgroup, and container_tasks_state and container_cpu_load_average_10s, which are
//     always 0.
//   - On our /metrics/cadvisor, the label image of a sandbox is "pause", because CRI does not
//     report the image of a sandbox. Our container_fs_usage_bytes also exists for containers. With
//     containerd, the kubelet only has this metric for the root cgroup.
//   - On cgroup version 2, our container_memory_failcnt and container_memory_kernel_usage have the
//     figures of the kernel. In the kubelet they are 0.
//   - Our container_oom_events_total is on /metrics and not on /metrics/cadvisor. If it were on
//     both pages, queries would count each kill twice.
//   - Ours does not have some metrics of cAdvisor. container_file_descriptors, container_sockets
//     and container_ulimits_soft would require reading every open file of every process.
//     container_fs_sector_*, container_fs_io_*, container_fs_*_merged_total and
//     container_fs_*_seconds_total are not counted for cgroups by current kernels.
//     container_blkio_device_usage_total has the same figures as container_fs_reads_bytes_total and
//     container_fs_writes_bytes_total. container_health_state needs Docker. cadvisor_version_info
//     describes a program that does not run here. machine_dimm_*, machine_nvm_*, machine_cpu_books
//     and machine_cpu_drawers describe rare hardware.
//   - In ours, cgroups that a container creates have no series of their own. Otherwise a container
//     could create any number of series. Cgroups of other programs have no series, either.
//   - Ours does not have the metrics of features that it lacks (device plugins, certificates, API
//     server).
//
// # Testing your code with it
//
// Pass a new registry to New. Read the registry with its method Gather, or with promhttp and an
// httptest.ResponseRecorder. For exact times, set Config.Clock to a fake clock.
package metrics
