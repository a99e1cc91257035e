package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/status"
)

type podMetrics struct {
	syncs                                      *prometheus.HistogramVec
	workerStart, containersPerPod, start       prometheus.Histogram
	orphans                                    prometheus.Counter
	restarted                                  *prometheus.CounterVec
	startedPods, startedPodErrors              prometheus.Counter
	startedContainers, startedContainersErrors *prometheus.CounterVec
	pulls                                      *prometheus.HistogramVec
	ends                                       *prometheus.CounterVec
	published                                  prometheus.Histogram
	publishErrors                              prometheus.Counter
	httpFallbacks, sleepsCut                   prometheus.Counter
	rejections                                 *prometheus.CounterVec
	shutdownStart, shutdownEnd                 prometheus.Gauge
	userPods, userPodErrors                    prometheus.Counter
	volumesWanted, volumesMounted, volumesBad  prometheus.Counter
	verdicts                                   *prometheus.CounterVec
	pullIntents, pullRecords                   prometheus.Gauge
}

func newPods(f *maker) podMetrics {
	own := f.own()
	p := podMetrics{
		syncs:            f.histograms("pod_worker_duration_seconds", "Duration of a sync of a pod, by operation type: create, update, sync, kill or terminated.", prometheus.DefBuckets, "operation_type"),
		workerStart:      f.histogram("pod_worker_start_duration_seconds", "Time from when a pod was first seen to when its worker started.", prometheus.DefBuckets),
		containersPerPod: f.histogram("containers_per_pod_count", "Number of regular containers of each started pod.", prometheus.ExponentialBuckets(1, 2, 5)),
		start: f.histogram("pod_start_duration_seconds", "Time from when a pod was first seen to when it was Running.",
			[]float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}),
		orphans:                 f.counter("orphaned_runtime_pods_total", "Pods that were found running in the runtime without being defined."),
		restarted:               f.counters("restarted_pods_total", "Pods that were deleted and defined again with the same UID before they had ended.", "static"),
		startedPods:             f.counter("started_pods_total", "Attempts to start a sandbox."),
		startedPodErrors:        f.counter("started_pods_errors_total", "Sandboxes that could not be started."),
		startedContainers:       f.counters("started_containers_total", "Attempts to start a container, by container type.", "container_type"),
		startedContainersErrors: f.counters("started_containers_errors_total", "Containers that could not be started, by container type and by the reason in the pod's status.", "container_type", "code"),
		pulls: f.histograms("image_pull_duration_seconds", "Duration of successful image pulls, by image size.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}, "image_size_in_bytes"),
		ends: f.counters("terminated_containers_total", "Terminated containers, by container type, exit code and reason.", "container_type", "exit_code", "reason"),
		published: f.histogram("pod_status_sync_duration_seconds", "Time from a change of a pod's status to its publication.",
			[]float64{0.010, 0.050, 0.100, 0.500, 1, 5, 10, 20, 30, 45, 60}),
		publishErrors: own.counter("status_publish_errors_total", "Failed publications of a pod's status, which are retried."),
		httpFallbacks: f.counter("lifecycle_handler_http_fallbacks_total", "HTTPS lifecycle hooks that only worked with plain HTTP."),
		sleepsCut:     f.counter("sleep_action_terminated_early_total", "Sleep hooks that were terminated early."),
		rejections:    f.counters("admission_rejections_total", "Pods that were refused, by reason.", "reason"),
		shutdownStart: f.gauge("graceful_shutdown_start_time_seconds", "Unix time at which the last graceful shutdown of the pods started, 0 without a shutdown."),
		shutdownEnd:   f.gauge("graceful_shutdown_end_time_seconds", "Unix time at which the last graceful shutdown of the pods ended, 0 without a shutdown."),
	}
	p.userPods = f.counter("started_user_namespaced_pods_total", "Attempts to start a sandbox of a pod with its own user namespace.")
	p.userPodErrors = f.counter("started_user_namespaced_pods_errors_total", "Failed syncs that had started a sandbox of a pod with its own user namespace.")
	p.volumesWanted = f.betaCounter("image_volume_requested_total", "Image volumes of created containers.")
	p.volumesMounted = f.betaCounter("image_volume_mounted_succeed_total", "Image volumes that the runtime has mounted.")
	p.volumesBad = f.betaCounter("image_volume_mounted_errors_total", "Image volumes that the runtime could not mount.")
	p.verdicts = f.counters("imagemanager_image_mustpull_checks_total",
		"Decisions whether a pod may use a present image, by result: credentialPolicyAllowed, credentialRecordFound, mustAuthenticate or error.", "result")
	p.pullIntents = f.gauge("imagemanager_ondisk_pullintents", "Stored records of image pulls that are running or whose result is unknown.")
	p.pullRecords = f.gauge("imagemanager_ondisk_pulledrecords", "Stored records of pulled images.")
	f.also(own)
	return p
}

// Workers returns an observer for [podworker.Workers] that counts events and then calls the given
// observer.
func (m *Metrics) Workers(next podworker.Observer) podworker.Observer {
	o := next
	o.SyncEnded = chain1(m.syncEnded, next.SyncEnded)
	o.PhaseChanged = chain3(func(_ types.UID, pod *corev1.Pod, phase podworker.Phase) {
		if pod == nil && phase == podworker.Terminating {
			m.pods.orphans.Inc()
		}
	}, next.PhaseChanged)
	o.Restarted = chain1(func(pod *corev1.Pod) { m.pods.restarted.WithLabelValues(static(pod)).Inc() }, next.Restarted)
	return o
}

func (m *Metrics) syncEnded(t podworker.SyncInfo) {
	if m.startedUserPod(t.UID) && t.Err != nil {
		m.pods.userPodErrors.Inc()
	}
	took := t.Waited + t.Duration
	m.pods.syncs.WithLabelValues(syncType(t)).Observe(took.Seconds())
	if !t.First || t.Phase != podworker.Syncing || t.Pod == nil {
		return
	}
	m.pods.containersPerPod.Observe(float64(len(t.Pod.Spec.Containers)))
	if seen, ok := firstSeen(t.Pod); ok {
		m.pods.workerStart.Observe(max(0, m.cfg.Clock.Since(seen)-took).Seconds())
	}
}

// startedUserPod reports whether the sandbox of a pod with its own user namespace was started since
// the last call for the pod.
func (m *Metrics) startedUserPod(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	started := m.userPods[uid]
	delete(m.userPods, uid)
	return started
}

// startingUserPod counts the start of the sandbox of a pod with its own user namespace.
func (m *Metrics) startingUserPod(pod *corev1.Pod) {
	if pod == nil || pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return
	}
	m.pods.userPods.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.userPods[pod.UID] = true
}

// createdVolumes counts the image volumes of a container, if the agent has asked the runtime to
// create the container.
func (m *Metrics) createdVolumes(s podrunner.ContainerStart) {
	if s.ID != "" || s.Pod == nil || !slices.Contains([]string{"", podrunner.CreateContainerError, podrunner.RunContainerError, lifecycle.PostStartHookError}, s.Code) {
		return
	}
	c := podspec.Container(&s.Pod.Spec, s.Name)
	if c == nil || s.Err != nil && s.Code == "" { // the sync was cancelled
		return
	}
	failed := s.Code == podrunner.CreateContainerError && s.Err != nil && strings.Contains(s.Err.Error(), crierrors.ErrImageVolumeMountFailed.Error())
	mounted := map[string]bool{}
	for _, mount := range c.VolumeMounts {
		if !slices.ContainsFunc(s.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name && v.Image != nil }) {
			continue
		}
		if !mounted[mount.Name] {
			mounted[mount.Name] = true
			m.pods.volumesWanted.Inc()
		}
		if failed {
			m.pods.volumesBad.Inc()
		} else {
			m.pods.volumesMounted.Inc()
		}
	}
}

// syncType returns the kubelet's operation type for a sync.
func syncType(t podworker.SyncInfo) string {
	switch {
	case t.Phase == podworker.Terminating:
		return podworker.Kill.String()
	case t.Phase > podworker.Terminating:
		return "terminated"
	case t.First:
		return podworker.Create.String()
	default:
		return t.Type.String()
	}
}

// firstSeen returns when the agent first received the pod from its source.
func firstSeen(pod *corev1.Pod) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339Nano, pod.Annotations[podspec.SeenAnnotation])
	return at, err == nil
}

// static returns the value of the label "static".
func static(pod *corev1.Pod) string {
	if pod != nil && podspec.IsStatic(pod) {
		return "true"
	}
	return ""
}

// Runner returns an observer for a [podrunner.Runner] that counts events and then calls the given
// observer.
func (m *Metrics) Runner(next podrunner.Observer) podrunner.Observer {
	c, o := &m.pods, next
	o.Resized = chain3(func(_ *corev1.Pod, took time.Duration, err error) { m.resized(took, err) }, next.Resized)
	o.SandboxStarted = chain2(func(pod *corev1.Pod, err error) {
		c.startedPods.Inc()
		m.startingUserPod(pod)
		if err != nil {
			c.startedPodErrors.Inc()
		}
	}, next.SandboxStarted)
	o.ContainerStarted = chain1(func(s podrunner.ContainerStart) {
		m.createdVolumes(s)
		kind := containerType(s.Kind)
		c.startedContainers.WithLabelValues(kind).Inc()
		if s.Code != "" {
			c.startedContainersErrors.WithLabelValues(kind, safe(s.Code)).Inc()
		}
	}, next.ContainerStarted)
	return o
}

func containerType(k podrunner.ContainerKind) string {
	switch k {
	case podrunner.Init, podrunner.Sidecar:
		return status.ContainerTypeInit
	case podrunner.Ephemeral:
		return status.ContainerTypeEphemeral
	case podrunner.Regular:
		return status.ContainerTypeRegular
	default:
		return status.ContainerTypeRegular
	}
}

// Images returns an observer for an [images.Manager] that counts events and then calls the given
// observer.
func (m *Metrics) Images(next images.Observer) images.Observer {
	o := next
	o.Pulled = chain1(func(p images.PullInfo) {
		if p.Err == nil {
			m.pods.pulls.WithLabelValues(sizeClass(p.SizeBytes)).Observe(p.Took.Seconds())
		}
	}, next.Pulled)
	o.Awaited = chain1(m.awaited, next.Awaited)
	o.Verified = chain1(func(v images.Verdict) { m.pods.verdicts.WithLabelValues(string(v)).Inc() }, next.Verified)
	o.RecordsChanged = chain2(func(intents, pulled int) {
		m.pods.pullIntents.Set(float64(intents))
		m.pods.pullRecords.Set(float64(pulled))
	}, next.RecordsChanged)
	return o
}

// sizeClass returns the label for an image size.
func sizeClass(bytes uint64) string {
	const mb, gb = 1 << 20, 1 << 30
	if bytes == 0 {
		return "N/A"
	}
	for _, class := range []struct {
		upTo uint64
		name string
	}{
		{10 * mb, "0-10MB"},
		{100 * mb, "10MB-100MB"},
		{500 * mb, "100MB-500MB"},
		{1 * gb, "500MB-1GB"},
		{5 * gb, "1GB-5GB"},
		{10 * gb, "5GB-10GB"},
		{20 * gb, "10GB-20GB"},
		{30 * gb, "20GB-30GB"},
		{40 * gb, "30GB-40GB"},
		{60 * gb, "40GB-60GB"},
		{100 * gb, "60GB-100GB"},
	} {
		if bytes <= class.upTo {
			return class.name
		}
	}
	return "GT100GB"
}

// Statuses returns an observer for a [status.Manager] that counts events and then calls the given
// observer.
func (m *Metrics) Statuses(next status.Observer) status.Observer {
	o := next
	o.StatusChanged = chain1(func(c status.Change) {
		if took, ok := startedIn(c, m.cfg.Clock.Now()); ok {
			m.pods.start.Observe(took.Seconds())
		}
		m.statusChanged(c)
	}, next.StatusChanged)
	o.StatusRemoved = chain1(m.statusRemoved, next.StatusRemoved)
	o.ContainerTerminated = chain1(func(e status.ContainerTermination) {
		m.pods.ends.WithLabelValues(e.Type, strconv.Itoa(int(e.ExitCode)), safe(e.Reason)).Inc()
	}, next.ContainerTerminated)
	return o
}

// startedIn returns the time from when the agent first received a pod until the pod was
// Running. It returns false if c is not the change to Running. It also returns false if an
// earlier agent process had started a container of the pod before the agent received the pod.
func startedIn(c status.Change, now time.Time) (time.Duration, bool) {
	if c.New.Phase != corev1.PodRunning || c.Old.Phase != "" && c.Old.Phase != corev1.PodPending || c.Pod == nil {
		return 0, false
	}
	seen, ok := firstSeen(c.Pod)
	if !ok {
		return 0, false
	}
	for i := range c.New.ContainerStatuses {
		if r := c.New.ContainerStatuses[i].State.Running; r != nil && r.StartedAt.Time.Before(seen.Truncate(time.Second)) {
			return 0, false
		}
	}
	return max(0, now.Sub(seen)), true
}

// Publisher returns an observer for a [status.Publisher] that counts events and then calls the
// given observer.
func (m *Metrics) Publisher(next status.PublisherObserver) status.PublisherObserver {
	o := next
	o.Published = chain1(func(p status.Publication) {
		if !p.Repeated && !p.Gone {
			m.pods.published.Observe(p.Latency.Seconds())
		}
	}, next.Published)
	o.Failed = chain3(func(*corev1.Pod, error, time.Duration) { m.pods.publishErrors.Inc() }, next.Failed)
	return o
}

// Hooks returns an observer for a [lifecycle.HookRunner] that counts events and then calls the
// given observer.
func (m *Metrics) Hooks(next lifecycle.HookObserver) lifecycle.HookObserver {
	o := next
	o.HTTPFallback = chain1(func(lifecycle.HookInfo) { m.pods.httpFallbacks.Inc() }, next.HTTPFallback)
	o.SleepTerminated = chain1(func(lifecycle.HookInfo) { m.pods.sleepsCut.Inc() }, next.SleepTerminated)
	return o
}

// Rejected counts a refused pod by the reason in the pod's status.
func (m *Metrics) Rejected(reason string) {
	m.pods.rejections.WithLabelValues(rejection(reason)).Inc()
}

// ShutdownStarted records that an agent starts to stop its pods.
func (m *Metrics) ShutdownStarted() { m.pods.shutdownStart.Set(unix(m.cfg.Clock.Now())) }

// ShutdownEnded records that an agent has stopped its pods, or that the shutdown was cancelled.
func (m *Metrics) ShutdownEnded() { m.pods.shutdownEnd.Set(unix(m.cfg.Clock.Now())) }
