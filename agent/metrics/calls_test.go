package metrics_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCallObserver_OperationNamesAreTheKubelets(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	observe := b.CallObserver()
	for method, name := range map[string]string{
		"/runtime.v1.RuntimeService/Version":                   "version",
		"/runtime.v1.RuntimeService/Status":                    "status",
		"/runtime.v1.RuntimeService/RunPodSandbox":             "run_podsandbox",
		"/runtime.v1.RuntimeService/StopPodSandbox":            "stop_podsandbox",
		"/runtime.v1.RuntimeService/RemovePodSandbox":          "remove_podsandbox",
		"/runtime.v1.RuntimeService/PodSandboxStatus":          "podsandbox_status",
		"/runtime.v1.RuntimeService/ListPodSandbox":            "list_podsandbox",
		"/runtime.v1.RuntimeService/CreateContainer":           "create_container",
		"/runtime.v1.RuntimeService/StartContainer":            "start_container",
		"/runtime.v1.RuntimeService/StopContainer":             "stop_container",
		"/runtime.v1.RuntimeService/RemoveContainer":           "remove_container",
		"/runtime.v1.RuntimeService/ListContainers":            "list_containers",
		"/runtime.v1.RuntimeService/ContainerStatus":           "container_status",
		"/runtime.v1.RuntimeService/UpdateContainerResources":  "update_container",
		"/runtime.v1.RuntimeService/UpdatePodSandboxResources": "update_podsandbox_resources",
		"/runtime.v1.RuntimeService/ReopenContainerLog":        "reopen_container_log",
		"/runtime.v1.RuntimeService/ExecSync":                  "exec_sync",
		"/runtime.v1.RuntimeService/ListContainerStats":        "list_container_stats",
		"/runtime.v1.RuntimeService/ListPodSandboxStats":       "list_podsandbox_stats",
		"/runtime.v1.ImageService/ListImages":                  "list_images",
		"/runtime.v1.ImageService/ImageStatus":                 "image_status",
		"/runtime.v1.ImageService/PullImage":                   "pull_image",
		"/runtime.v1.ImageService/RemoveImage":                 "remove_image",
		"/runtime.v1.ImageService/ImageFsInfo":                 "image_fs_info",
	} {
		for _, err := range []error{nil, errNo} {
			got := observe(t.Context(), method, nil, nil, nil, func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
				return err
			})
			require.Equal(t, err, got)
		}
		labels := `{operation_type="` + name + `"}`
		b.is("kubelet_runtime_operations_total"+labels, 2)
		b.is("kubelet_runtime_operations_errors_total"+labels, 1)
		b.is("kubelet_runtime_operations_duration_seconds_sum"+labels, 4)
	}
}

func TestCallObserver_SandboxesByRuntimeHandler(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	observe := b.CallObserver()
	for _, err := range []error{nil, errNo} {
		_ = observe(t.Context(), "/runtime.v1.RuntimeService/RunPodSandbox", &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "kata"}, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				b.clock.SetTime(b.clock.Now().Add(time.Second))
				return err
			})
	}
	b.is(`kubelet_run_podsandbox_duration_seconds_sum{runtime_handler="kata"}`, 2)
	b.is(`kubelet_run_podsandbox_errors_total{runtime_handler="kata"}`, 1)
}

func TestCallObserver_DoesNotAllocate(t *testing.T) {
	b := newBed(t)
	observe := b.CallObserver()
	call := func() {
		_ = observe(t.Context(), "/runtime.v1.RuntimeService/Status", nil, nil, nil, answered)
	}
	call()
	require.Zero(t, testing.AllocsPerRun(100, call))
}

func answered(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
	return nil
}
