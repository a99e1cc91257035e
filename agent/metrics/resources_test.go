package metrics_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/metrics"
	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/lifecycle/volumes"
)

func asks(cpu, memory string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if cpu != "" {
		list[corev1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "" {
		list[corev1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func TestResizes_RequestedAndCarriedOut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Observers(agent.Observers{})
	before, after := newPod("web", "app", "gone", "same"), newPod("web", "app", "new", "same")
	before.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: asks("1", "1Gi"), Limits: asks("", "2Gi")}
	after.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: asks("2", "512Mi"), Limits: asks("4", "")}
	o.Edited(before, after)
	require.Equal(t, []string{
		`kubelet_container_requested_resizes_total{operation="add",requirement="limits",resource="cpu"} 1`,
		`kubelet_container_requested_resizes_total{operation="decrease",requirement="requests",resource="memory"} 1`,
		`kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1`,
		`kubelet_container_requested_resizes_total{operation="remove",requirement="limits",resource="memory"} 1`,
	}, series(b.page(), "kubelet_container_requested_resizes_total{"))

	o.Runner.Resized(after, 1500*time.Millisecond, nil)
	o.Runner.Resized(after, time.Millisecond, errNo)
	b.is(`kubelet_pod_resize_duration_milliseconds_sum{success="true"}`, 1500)
	b.is(`kubelet_pod_resize_duration_milliseconds_count{success="false"}`, 1)
}

func TestPreemptions_ByResource(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	called := 0
	o := b.Preemption(lifecycle.NodeObserver{Preempted: func(lifecycle.Preemption) { called++ }})
	o.Preempted(lifecycle.Preemption{Resource: corev1.ResourceMemory})
	o.Preempted(lifecycle.Preemption{Resource: corev1.ResourceMemory, Err: errNo})
	b.is(`kubelet_preemptions{preemption_signal="memory"}`, 1)
	require.Equal(t, 2, called)
}

func TestUserNamespaces_AnyFailureOfTheFirstSyncCounts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	runner, workers := b.Runner(podrunner.Observer{}), b.Workers(podworker.Observer{})
	pod, other := newPod("web", "app"), newPod("host", "app")
	pod.Spec.HostUsers, other.Spec.HostUsers = new(false), new(true)
	sync := func(pod *corev1.Pod, creates bool, err error) {
		if creates {
			runner.SandboxStarted(pod, nil)
		}
		workers.SyncEnded(podworker.SyncInfo{UID: pod.UID, Pod: pod, Err: err})
	}
	sync(pod, true, nil)
	sync(pod, false, errNo)
	sync(other, true, errNo)
	b.is("kubelet_started_user_namespaced_pods_total", 1)
	b.is("kubelet_started_user_namespaced_pods_errors_total", 0)
	sync(pod, true, errNo)
	sync(pod, false, errNo)
	b.is("kubelet_started_user_namespaced_pods_total", 2)
	b.is("kubelet_started_user_namespaced_pods_errors_total", 1)
	b.is("kubelet_started_pods_total", 3)
}

func TestImageVolumes_AreCountedWhenTheContainerIsCreated(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Runner(podrunner.Observer{})
	pod := newPod("web", "app", "plain")
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "model"}}}, {Name: "tmp"},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "model", MountPath: "/a"}, {Name: "model", MountPath: "/b"}, {Name: "tmp", MountPath: "/c"}}
	start := func(container, id, code string, err error) {
		o.ContainerStarted(podrunner.ContainerStart{Pod: pod, Start: podrunner.Start{Name: container, ID: id}, Code: code, Err: err})
	}
	start("app", "", podrunner.CreateContainerError, errors.New("rpc error: code = Unknown desc = ImageVolumeMountFailed: no such path"))
	b.is("kubelet_image_volume_requested_total", 1)
	b.is("kubelet_image_volume_mounted_errors_total", 2)
	start("app", "", "", nil)
	start("app", "", podrunner.RunContainerError, errNo)
	b.is("kubelet_image_volume_requested_total", 3)
	b.is("kubelet_image_volume_mounted_succeed_total", 4)
	start("app", "created-before", "", nil)
	start("app", "", images.ErrImagePull, errNo)
	start("app", "", "", errNo) // cancelled
	start("plain", "", "", nil)
	start("missing", "", "", nil)
	b.is("kubelet_image_volume_requested_total", 3)
	b.is("kubelet_image_volume_mounted_errors_total", 2)
}

func TestImageRecords(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Images(images.Observer{})
	for _, v := range []images.Verdict{images.RecordFound, images.RecordFound, images.MustAuthenticate} {
		o.Verified(v)
	}
	o.RecordsChanged(2, 5)
	b.is(`kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"}`, 2)
	b.is(`kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"}`, 1)
	b.is("kubelet_imagemanager_ondisk_pullintents", 2)
	b.is("kubelet_imagemanager_ondisk_pulledrecords", 5)
}

func TestVolumes_OperationsAndTotals(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Volumes(volumes.Observer{})
	op := func(pod, name string, err error) volumes.Operation {
		return volumes.Operation{PodUID: types.UID(pod), Volume: name, Plugin: "kubernetes.io/secret", Took: time.Second, Total: 2 * time.Second, Err: err}
	}
	total := func(desired, actual float64) {
		t.Helper()
		b.is(`volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="desired_state_of_world"}`, desired)
		b.is(`volume_manager_total_volumes{plugin_name="kubernetes.io/secret",state="actual_state_of_world"}`, actual)
	}
	o.Mounted(op("a", "one", nil))
	o.Mounted(op("a", "one", errNo)) // the volume stays mounted
	o.Mounted(op("a", "two", errNo))
	o.Mounted(op("b", "one", nil))
	total(3, 2)
	o.Mounted(op("a", "two", nil))
	total(3, 3)
	o.TornDown(op("a", "one", nil))
	o.Unmounted("a")
	o.Unmounted("a")
	total(1, 1)
	const operation = `storage_operation_duration_seconds_count{migrated="false",operation_name="%s",status="%s",volume_plugin="kubernetes.io/secret"}`
	b.is(fmt.Sprintf(operation, "volume_mount", "success"), 3)
	b.is(fmt.Sprintf(operation, "volume_mount", "fail-unknown"), 2)
	b.is(fmt.Sprintf(operation, "volume_unmount", "success"), 1)
	b.is(`volume_operation_total_seconds_sum{operation_name="overall_volume_mount",plugin_name="kubernetes.io/secret"}`, 6)
}

func TestObservers_RecordCgroupsOrphansAndShutdown(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	o := b.Observers(agent.Observers{})
	o.Cgroups("create", 2*time.Second)
	o.Searched(3, 1)
	o.ShutdownStarted()
	o.ShutdownEnded()
	b.is(`kubelet_cgroup_manager_duration_seconds_sum{operation_type="create"}`, 2)
	b.is("kubelet_orphan_pod_cleaned_volumes", 3)
	b.is("kubelet_orphan_pod_cleaned_volumes_errors", 1)
	b.is("kubelet_graceful_shutdown_end_time_seconds", float64(epoch.Unix()))
}

func TestSource_CgroupVersionAndLogs(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add(metrics.Source{CgroupVersion: func() int { return 0 }})
	b.none("kubelet_cgroup_version")
	pod := newPod("web")
	b.Add(metrics.Source{
		CgroupVersion: func() int { return 2 },
		LogBytes:      func() []agent.LogUsage { return []agent.LogUsage{{Pod: pod, Container: "app", Bytes: 4096}} },
	})
	b.is("kubelet_cgroup_version", 2)
	require.True(t, slices.Contains(series(b.page(), "kubelet_container_log"),
		`kubelet_container_log_filesystem_used_bytes{container="app",namespace="ns",pod="web",uid="uid-web"} 4096`))
}
