package metrics_test

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/containergc"
	"github.com/kubeparts/kubeparts/containergc/logrotate"
	"github.com/kubeparts/kubeparts/eviction"
	"github.com/kubeparts/kubeparts/imagegc"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
	"github.com/kubeparts/kubeparts/oomwatch"
	"github.com/kubeparts/kubeparts/pleg"
	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

var errNo = errors.New("no")

func TestPLEG(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.PLEG(pleg.Observer{})
	require.Nil(t, o.RelistStart, "an event without a metric must have no observer")
	o.RelistEnd(pleg.Result{At: epoch, Took: 2 * time.Second}, nil)
	o.RelistEnd(pleg.Result{At: epoch.Add(3 * time.Second), Took: time.Second}, errNo)
	o.RelistEnd(pleg.Result{At: epoch.Add(10 * time.Second), Took: time.Second}, nil)
	b.is("kubelet_pleg_relist_duration_seconds_sum", 4)
	b.is("kubelet_pleg_relist_duration_seconds_count", 3)
	b.is("kubelet_pleg_relist_interval_seconds_sum", 10)
	b.is("kubelet_pleg_relist_interval_seconds_count", 1)
	b.is("kubelet_pleg_discard_events", 0)

	o.PodInspected("a", 3*time.Second, errNo)
	b.is("kubelet_pleg_pod_relist_duration_seconds_sum", 3)
	o.StreamOpened()
	o.StreamEnded(errNo)
	o.StreamEnded(errNo)
	o.HintReceived(5 * time.Second)
	b.is("kubelet_evented_pleg_connection_success_count", 1)
	b.is("kubelet_evented_pleg_connection_error_count", 2)
	b.is("kubelet_evented_pleg_connection_latency_seconds_sum", 5)
}

func TestWorkers_Syncs(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Workers(podworker.Observer{})
	pod := newPod("web", "a", "b", "c")
	turn := func(first bool, why podworker.UpdateType, phase podworker.Phase) {
		o.SyncEnded(podworker.SyncInfo{
			UID: pod.UID, Pod: pod, First: first, Type: why, Phase: phase, Waited: time.Second, Duration: 2 * time.Second,
		})
	}
	b.clock.SetTime(epoch.Add(10 * time.Second))
	turn(true, podworker.Sync, podworker.Syncing) // a Sync has replaced the pending Create
	b.is("kubelet_pod_worker_start_duration_seconds_sum", 7)
	b.is("kubelet_containers_per_pod_count_sum", 3)
	turn(false, podworker.Sync, podworker.Syncing)
	turn(false, podworker.Change, podworker.Syncing)
	turn(false, podworker.Sync, podworker.Terminating)
	turn(false, podworker.Kill, podworker.Terminating)
	turn(false, podworker.Sync, podworker.Terminated)
	turn(true, podworker.Kill, podworker.Terminating) // the pod was killed before its first sync
	b.is("kubelet_pod_worker_start_duration_seconds_count", 1)
	for label, n := range map[string]float64{"create": 1, "sync": 1, "update": 1, "kill": 3, "terminated": 1} {
		b.is(`kubelet_pod_worker_duration_seconds_count{operation_type="`+label+`"}`, n)
	}
	b.is(`kubelet_pod_worker_duration_seconds_sum{operation_type="create"}`, 3)

	pod = newPod("unseen")
	pod.Annotations[podspec.SeenAnnotation] = "yesterday"
	turn(true, podworker.Create, podworker.Syncing)
	b.is("kubelet_pod_worker_start_duration_seconds_count", 1)
	pod = nil
	o.SyncEnded(podworker.SyncInfo{First: true, Type: podworker.Kill, Phase: podworker.Terminating})
}

func TestWorkers_CountsOrphansAndRestarts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Workers(podworker.Observer{})
	o.PhaseChanged("a", newPod("a"), podworker.Terminating)
	b.is("kubelet_orphaned_runtime_pods_total", 0)
	o.PhaseChanged("b", nil, podworker.Terminating)
	o.PhaseChanged("b", nil, podworker.Terminated)
	b.is("kubelet_orphaned_runtime_pods_total", 1)
	o.Restarted(newPod("a"))
	ordinary := newPod("c")
	ordinary.Annotations = nil
	o.Restarted(ordinary)
	o.Restarted(nil)
	b.is(`kubelet_restarted_pods_total{static="true"}`, 1)
	b.is(`kubelet_restarted_pods_total{static=""}`, 2)
}

func TestRunner_Starts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Runner(podrunner.Observer{})
	o.SandboxStarted(newPod("a"), errNo)
	o.SandboxStarted(newPod("a"), nil)
	b.is("kubelet_started_pods_total", 2)
	b.is("kubelet_started_pods_errors_total", 1)
	start := func(kind podrunner.ContainerKind, code string, err error) {
		o.ContainerStarted(podrunner.ContainerStart{Start: podrunner.Start{Kind: kind}, Code: code, Err: err})
	}
	start(podrunner.Regular, "", nil)
	start(podrunner.Regular, podrunner.CreateContainerError, errNo)
	start(podrunner.Regular, "", errNo) // the sync was cancelled
	start(podrunner.Init, "", nil)
	start(podrunner.Sidecar, "", nil)
	start(podrunner.Ephemeral, "bad \xff", errNo)
	b.is(`kubelet_started_containers_total{container_type="container"}`, 3)
	b.is(`kubelet_started_containers_total{container_type="init_container"}`, 2)
	b.is(`kubelet_started_containers_total{container_type="ephemeral_container"}`, 1)
	require.Equal(t, []string{
		`kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"} 1`,
		`kubelet_started_containers_errors_total{code="bad ` + "\uFFFD" + `",container_type="ephemeral_container"} 1`,
	}, series(b.page(), "kubelet_started_containers_errors_total"))
}

func TestImagePulls(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Images(images.Observer{})
	const mb, gb = 1 << 20, 1 << 30
	for size, class := range map[uint64]string{
		0: "N/A", 1: "0-10MB", 10 * mb: "0-10MB", 10*mb + 1: "10MB-100MB", 101 * mb: "100MB-500MB", 501 * mb: "500MB-1GB",
		gb + 1: "1GB-5GB", 6 * gb: "5GB-10GB", 11 * gb: "10GB-20GB", 21 * gb: "20GB-30GB", 31 * gb: "30GB-40GB",
		41 * gb: "40GB-60GB", 61 * gb: "60GB-100GB", 100*gb + 1: "GT100GB",
	} {
		before := len(series(b.page(), `kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="`+class+`"}`))
		o.Pulled(images.PullInfo{SizeBytes: size, Took: 3 * time.Second})
		if before == 0 {
			b.is(`kubelet_image_pull_duration_seconds_sum{image_size_in_bytes="`+class+`"}`, 3)
		}
	}
	b.is(`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"}`, 2)
	o.Pulled(images.PullInfo{SizeBytes: 1, Took: time.Second, Err: errNo})
	b.is(`kubelet_image_pull_duration_seconds_count{image_size_in_bytes="0-10MB"}`, 2)
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Statuses(status.Observer{})
	running := func(started time.Time) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)}},
		}}}
	}
	b.clock.SetTime(epoch.Add(4 * time.Second))
	now, pending := running(epoch.Add(time.Second)), corev1.PodStatus{Phase: corev1.PodPending}
	o.StatusChanged(status.Change{Pod: newPod("a"), New: pending})
	o.StatusChanged(status.Change{Pod: newPod("a"), Old: pending, New: now})
	b.is("kubelet_pod_start_duration_seconds_sum", 4)
	for _, c := range []status.Change{
		{Pod: newPod("a"), Old: now, New: now},
		{Pod: newPod("adopted"), New: running(epoch.Add(-time.Minute))},
		{Pod: &corev1.Pod{}, Old: pending, New: now},
		{New: now},
		{Pod: newPod("a"), Old: corev1.PodStatus{Phase: corev1.PodFailed}, New: now},
	} {
		o.StatusChanged(c)
	}
	b.is("kubelet_pod_start_duration_seconds_count", 1)

	o.ContainerTerminated(status.ContainerTermination{Type: status.ContainerTypeRegular, ExitCode: 137, Reason: "OOMKilled"})
	o.ContainerTerminated(status.ContainerTermination{Type: status.ContainerTypeRegular, ExitCode: 137, Reason: "OOMKilled"})
	o.ContainerTerminated(status.ContainerTermination{Type: status.ContainerTypeInit, Reason: "\xff"})
	b.is(`kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"}`, 2)
	b.is(`kubelet_terminated_containers_total{container_type="init_container",exit_code="0",reason="`+"\uFFFD"+`"}`, 1)

	p := b.Publisher(status.PublisherObserver{})
	p.Published(status.Publication{Latency: 2 * time.Second})
	p.Published(status.Publication{Latency: time.Hour, Repeated: true})
	p.Published(status.Publication{Latency: time.Hour, Gone: true})
	p.Failed(newPod("a"), errNo, time.Second)
	b.is("kubelet_pod_status_sync_duration_seconds_sum", 2)
	b.is("kubeparts_status_publish_errors_total", 1)
}

func TestHooks(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Hooks(lifecycle.HookObserver{})
	o.HTTPFallback(lifecycle.HookInfo{})
	o.SleepTerminated(lifecycle.HookInfo{})
	o.SleepTerminated(lifecycle.HookInfo{})
	b.is("kubelet_lifecycle_handler_http_fallbacks_total", 1)
	b.is("kubelet_sleep_action_terminated_early_total", 2)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	for reason, label := range map[string]string{
		"Evicted": "Evicted", "OutOfcpu": "OutOfcpu", "OutOfexample.com/gpu": "OutOfExtendedResources", "UnsupportedFields": "Other", "": "Other",
	} {
		before := 0.0
		if name := `kubelet_admission_rejections_total{reason="` + label + `"}`; len(series(b.page(), name)) > 0 {
			before = value(t, b.page(), name)
		}
		b.Rejected(reason)
		b.is(`kubelet_admission_rejections_total{reason="`+label+`"}`, before+1)
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.is("kubelet_graceful_shutdown_start_time_seconds", 0)
	b.ShutdownStarted()
	b.clock.SetTime(epoch.Add(time.Minute))
	b.ShutdownEnded()
	b.is("kubelet_graceful_shutdown_start_time_seconds", float64(epoch.Unix()))
	b.is("kubelet_graceful_shutdown_end_time_seconds", float64(epoch.Unix()+60))
}

func TestEviction(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Eviction(eviction.Observer{})
	report := &eviction.Report{Observation: eviction.Observation{Time: epoch}}
	o.Evaluated(eviction.Decision{At: epoch.Add(3 * time.Second), Signal: "memory.available", Threshold: report}, errNo)
	b.none("kubelet_eviction_stats_age_seconds")
	b.is("kubeparts_eviction_stats_errors_total", 1)
	o.Evaluated(eviction.Decision{
		At: epoch.Add(3 * time.Second), Signal: "memory.available", Threshold: report, Victims: make([]eviction.Victim, 1),
	}, nil)
	o.Evaluated(eviction.Decision{
		At: epoch, Signal: "memory.available", Threshold: &eviction.Report{}, Victims: make([]eviction.Victim, 1),
	}, nil)
	b.is(`kubelet_eviction_stats_age_seconds_sum{eviction_signal="memory.available"}`, 3)
	b.is(`kubelet_eviction_stats_age_seconds_count{eviction_signal="memory.available"}`, 2)

	o.Evicted(newPod("a"), eviction.Eviction{Signal: "memory.available"}, time.Second, errNo)
	o.Evicted(newPod("a"), eviction.Eviction{Signal: "memory.available"}, time.Second, nil)
	o.Evicted(newPod("b"), eviction.Eviction{Signal: "emptydirfs.limit"}, time.Second, nil)
	b.is(`kubelet_evictions{eviction_signal="memory.available"}`, 1)
	b.is(`kubelet_evictions{eviction_signal="emptydirfs.limit"}`, 1)
	b.is(`kubeparts_eviction_kill_errors_total{eviction_signal="memory.available"}`, 1)
}

func TestManagers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.ImageGC(imagegc.Observer{})
	b.is(`kubeparts_image_gc_runs_total{result="failed"}`, 0)
	o.Removed(imagegc.Image{}, imagegc.ReasonAge, time.Second, nil)
	o.Removed(imagegc.Image{}, imagegc.ReasonSpace, time.Second, nil)
	o.Removed(imagegc.Image{}, imagegc.ReasonSpace, time.Second, errNo)
	o.Collected(imagegc.Result{}, errNo)
	o.Collected(imagegc.Result{}, nil)
	b.is(`kubelet_image_garbage_collected_total{reason="age"}`, 1)
	b.is(`kubelet_image_garbage_collected_total{reason="space"}`, 1)
	b.is(`kubeparts_image_gc_runs_total{result="failed"}`, 1)
	b.is(`kubeparts_image_gc_runs_total{result="ok"}`, 1)

	c := b.ContainerGC(containergc.Observer{})
	c.Removed(containergc.Object{Kind: containergc.KindContainer}, time.Second, nil)
	c.Removed(containergc.Object{Kind: containergc.KindSandbox}, time.Second, errNo)
	b.is(`kubeparts_container_gc_removals_total{kind="container",result="ok"}`, 1)
	b.is(`kubeparts_container_gc_removals_total{kind="sandbox",result="failed"}`, 1)

	l := b.Logs(logrotate.Observer{})
	l.Rotated(logrotate.Rotation{})
	l.Rotated(logrotate.Rotation{Err: errNo})
	b.is(`kubeparts_log_rotations_total{result="ok"}`, 1)
	b.is(`kubeparts_log_rotations_total{result="failed"}`, 1)
}

func TestOOMKills(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	web, db := newPod("web", "app", "side"), newPod("db", "app")
	present := []*podcache.Status{observed(web), observed(db)}
	b.Add(metrics.Source{Observed: func() []*podcache.Status { return present }})
	asked := 0
	find := func(uid types.UID, id string) (*corev1.Pod, string, bool) {
		asked++
		return web, "app", uid == web.UID
	}
	require.Equal(t, []string{
		`container_oom_events_total{container="",namespace="",pod=""} 0`,
		`container_oom_events_total{container="app",namespace="ns",pod="db"} 0`,
		`container_oom_events_total{container="app",namespace="ns",pod="web"} 0`,
		`container_oom_events_total{container="side",namespace="ns",pod="web"} 0`,
	}, series(b.page(), "container_oom_events_total"), "pods without OOM kills must have a series with 0, so that a rate includes the first kill")

	b.Killed(oomwatch.Kill{PodUID: web.UID, ContainerID: "id-app"}, find)
	b.OOMWatch(oomwatch.Observer{}, find).DroppedKill(oomwatch.Kill{PodUID: web.UID, ContainerID: "id-app"})
	b.Killed(oomwatch.Kill{PodUID: "stranger"}, find)
	require.Equal(t, 3, asked)
	b.Killed(oomwatch.Kill{}, find)
	require.Equal(t, 3, asked, "an OOM kill outside of pods must not cause a lookup")
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="web"}`, 2)
	b.is(`container_oom_events_total{container="",namespace="",pod=""}`, 2)

	// A new pod with the same name starts while the old pod terminates.
	again := observed(web)
	again.UID = "uid-again"
	present = append(present, again)
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="web"}`, 2)

	present = present[1:2]
	require.Len(t, series(b.page(), "container_oom_events_total"), 2, "the series of a removed pod must be deleted")
	present = append(present, observed(web))
	b.is(`container_oom_events_total{container="app",namespace="ns",pod="web"}`, 0)

	b.OOMWatch(oomwatch.Observer{}, find).LostRecords(7)
	b.is("kubeparts_oom_lost_records_total", 7)
}

func TestObservers_CallTheNextObserver(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var told []string
	emit := func(what string) { told = append(told, what) }
	p := b.PLEG(pleg.Observer{
		RelistStart:  func() { emit("start") },
		RelistEnd:    func(_ pleg.Result, err error) { emit("end " + err.Error()) },
		PodInspected: func(uid types.UID, _ time.Duration, _ error) { emit("inspected " + string(uid)) },
		StreamOpened: func() { emit("opened") },
		StreamEnded:  func(err error) { emit("ended " + err.Error()) },
	})
	p.RelistStart()
	p.RelistEnd(pleg.Result{}, errNo)
	p.PodInspected("a", 0, nil)
	p.StreamOpened()
	p.StreamEnded(errNo)
	e := b.Eviction(eviction.Observer{
		ConditionsChanged: func([]corev1.NodeConditionType) { emit("conditions") },
		Evicted:           func(pod *corev1.Pod, _ eviction.Eviction, _ time.Duration, _ error) { emit("evicted " + pod.Name) },
	})
	e.ConditionsChanged(nil)
	e.Evicted(newPod("web"), eviction.Eviction{}, 0, nil)
	require.Equal(t, []string{
		"start", "end no", "inspected a", "opened", "ended no", "conditions", "evicted web",
	}, told)
	b.is("kubelet_pleg_relist_duration_seconds_count", 1)
}

func TestNew_RefusesInvalidPrefix(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	_, err := metrics.New(metrics.Config{Registerer: registry, Prefix: "my kubelet"})
	require.EqualError(t, err, `metrics: invalid config: field Prefix: "my kubelet" is not a valid prefix of a metric name`)
	m, err := metrics.New(metrics.Config{Registerer: registry, Prefix: "agent_"})
	require.NoError(t, err)
	m.Add(metrics.Source{Mirrors: func() int { return 0 }})
	page := scrape(t, registry)
	require.Empty(t, series(page, "kubelet_"))
	require.InDelta(t, 0, value(t, page, "agent_pleg_discard_events"), 0)
	require.InDelta(t, 0, value(t, page, "agent_mirror_pods"), 0)
	require.Empty(t, series(page, "agent_node_name"), "an agent without a node name must have no such series")
}

// Each observer of an agent also calls the observer of the program.
func TestObservers_OfTheAgentCallTheNextObserver(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var told []string
	emit := func(what string) { told = append(told, what) }
	o := b.Observers(agent.Observers{
		Edited:          func(before, after *corev1.Pod) { emit("edited " + before.Name + " " + after.Name) },
		Searched:        func(found, remaining int) { emit("searched " + strconv.Itoa(found-remaining)) },
		Cgroups:         func(operation string, _ time.Duration) { emit("cgroups " + operation) },
		ShutdownStarted: func() { emit("shutdown") },
		ShutdownEnded:   func() { emit("shut down") },
		Volumes: volumes.Observer{
			Mounted:   func(o volumes.Operation) { emit("mounted " + o.Volume) },
			TornDown:  func(o volumes.Operation) { emit("torn down " + o.Volume) },
			Unmounted: func(pod types.UID) { emit("unmounted " + string(pod)) },
		},
		Images: images.Observer{
			Awaited:        func(w images.PullWait) { emit("awaited " + string(w.PodUID)) },
			Verified:       func(v images.Verdict) { emit("verified " + string(v)) },
			RecordsChanged: func(intents, pulled int) { emit("records " + strconv.Itoa(intents+pulled)) },
		},
		Runner:   podrunner.Observer{Resized: func(pod *corev1.Pod, _ time.Duration, _ error) { emit("resized " + pod.Name) }},
		Statuses: status.Observer{StatusRemoved: func(pod types.UID) { emit("removed " + string(pod)) }},
	})
	o.Edited(newPod("a"), newPod("b"))
	o.Searched(3, 1)
	o.Cgroups("create", 0)
	o.ShutdownStarted()
	o.ShutdownEnded()
	o.Volumes.Mounted(volumes.Operation{Volume: "v"})
	o.Volumes.TornDown(volumes.Operation{Volume: "v"})
	o.Volumes.Unmounted("a")
	o.Images.Awaited(images.PullWait{PodUID: "a"})
	o.Images.Verified(images.RecordFound)
	o.Images.RecordsChanged(1, 2)
	o.Runner.Resized(newPod("a"), 0, nil)
	o.Statuses.StatusRemoved("a")
	require.Equal(t, []string{
		"edited a b", "searched 2", "cgroups create", "shutdown", "shut down", "mounted v", "torn down v", "unmounted a",
		"awaited a", "verified credentialRecordFound", "records 3", "resized a", "removed a",
	}, told)
}

func TestWebSocketStream_CountsBySubresource(t *testing.T) {
	b := newBed(t)
	b.WebSocketStream("exec")
	b.WebSocketStream("exec")
	b.WebSocketStream("portforward")
	b.is(`kubelet_websocket_streaming_requests_total{subresource="exec"}`, 2)
	b.is(`kubelet_websocket_streaming_requests_total{subresource="portforward"}`, 1)
}
