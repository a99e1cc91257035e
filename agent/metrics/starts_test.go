package metrics_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/status"
)

// statusOf returns the status of a pod whose containers run, or wait to start.
func statusOf(pod *corev1.Pod, runs bool) corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodPending}
	for _, c := range pod.Spec.Containers {
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}
		if runs {
			s.Phase, state = corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(epoch.Add(time.Second))}}
		}
		s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, State: state})
	}
	return s
}

// startPod reports the statuses of a pod whose containers start after the duration took.
func (b *bed) startPod(pod *corev1.Pod, took time.Duration, pulls ...images.PullWait) {
	b.t.Helper()
	o, i := b.Statuses(status.Observer{}), b.Images(images.Observer{})
	b.clock.SetTime(epoch)
	o.StatusChanged(status.Change{Pod: pod, New: statusOf(pod, false), Version: 1})
	for _, p := range pulls {
		p.PodUID = pod.UID
		i.Awaited(p)
	}
	b.clock.SetTime(epoch.Add(took))
	running := statusOf(pod, true)
	running.InitContainerStatuses = pod.Status.InitContainerStatuses
	for version := range 2 { // the pod must be counted once
		o.StatusChanged(status.Change{Pod: pod, Old: statusOf(pod, false), New: running, Version: uint64(version) + 2})
	}
}

func pull(from, to int) images.PullWait {
	return images.PullWait{Began: epoch.Add(time.Duration(from) * time.Second), Ended: epoch.Add(time.Duration(to) * time.Second)}
}

func TestStarts_WithoutPullsAndInitContainers(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	pod := newPod("web", "app", "sidecar")
	ran := func(id string, seconds int) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ContainerID: id, StartedAt: metav1.NewTime(epoch), FinishedAt: metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second)),
		}
	}
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		State: corev1.ContainerState{Terminated: ran("2", 3)}, LastTerminationState: corev1.ContainerState{Terminated: ran("1", 2)},
	}}
	// The pulls overlap: together they take 6 seconds.
	b.startPod(pod, 20*time.Second, pull(3, 6), pull(0, 4), pull(1, 2), pull(8, 8), pull(10, 9))
	b.is("kubelet_pod_start_total_duration_seconds_sum", 20)
	b.is("kubelet_pod_start_total_duration_seconds_count", 1)
	b.is("kubelet_pod_start_sli_duration_seconds_sum", 20-6-5)
	b.is("kubelet_first_network_pod_start_sli_duration_seconds", 9)
}

func TestStarts_StatefulPodsAndTheFirstNetworkPod(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stateful, host, second := newPod("db", "app"), newPod("proxy", "app"), newPod("web", "app")
	stateful.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	host.Spec.HostNetwork = true
	host.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	b.startPod(stateful, time.Second)
	b.is("kubelet_pod_start_total_duration_seconds_count", 1)
	b.is("kubelet_pod_start_sli_duration_seconds_count", 0)
	b.startPod(host, 2*time.Second)
	b.is("kubelet_pod_start_sli_duration_seconds_count", 1)
	b.is("kubelet_first_network_pod_start_sli_duration_seconds", 0)
	second.CreationTimestamp = metav1.NewTime(epoch.Add(-time.Minute)) // a pod of an API server
	b.startPod(second, 3*time.Second)
	b.is("kubelet_first_network_pod_start_sli_duration_seconds", 63)
	b.startPod(newPod("other", "app"), 9*time.Second)
	b.is("kubelet_first_network_pod_start_sli_duration_seconds", 63)
	b.is("kubelet_pod_start_sli_duration_seconds_count", 3)
}

func TestStarts_PodsThatDoNotCount(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Statuses(status.Observer{})
	running := func(pod *corev1.Pod, version uint64) {
		o.StatusChanged(status.Change{Pod: pod, New: statusOf(pod, true), Version: version})
	}
	adopted := newPod("adopted", "app")
	earlier := statusOf(adopted, false)
	earlier.StartTime = new(metav1.NewTime(epoch.Add(-time.Hour)))
	o.StatusChanged(status.Change{Pod: adopted, New: earlier, Version: 1})
	running(adopted, 2)
	earlier = statusOf(adopted, true)
	earlier.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(epoch.Add(-time.Hour))
	o.StatusChanged(status.Change{Pod: adopted, New: earlier, Version: 1})
	o.StatusChanged(status.Change{})

	failed := newPod("failed", "app")
	o.StatusChanged(status.Change{Pod: failed, New: statusOf(failed, false), Version: 1})
	o.StatusChanged(status.Change{Pod: failed, New: corev1.PodStatus{Phase: corev1.PodFailed}, Version: 2})
	running(failed, 3)
	removed := newPod("removed", "app")
	o.StatusChanged(status.Change{Pod: removed, New: statusOf(removed, false), Version: 1})
	o.StatusRemoved(removed.UID)
	b.Images(images.Observer{}).Awaited(images.PullWait{PodUID: removed.UID})
	running(removed, 2)
	b.is("kubelet_pod_start_total_duration_seconds_count", 0)

	quick := newPod("quick", "app")
	quick.Annotations = nil // without a source annotation the start counts from the first status
	running(quick, 1)
	b.is("kubelet_pod_start_total_duration_seconds_count", 1)
	require.NotEmpty(t, b.page())
}
