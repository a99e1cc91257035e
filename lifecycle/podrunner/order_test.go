package podrunner_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

//go:generate go run go.uber.org/mock/mockgen@v0.6.0 -typed -package podrunner_test -destination mock_test.go github.com/kubeparts/kubeparts/lifecycle/podrunner Sandboxes,Containers

// TestStopPod_ContainersBeforeTheirSandbox checks the order, because stopping the sandbox
// first would remove the containers' network during their shutdown.
func TestStopPod_ContainersBeforeTheirSandbox(t *testing.T) {
	t.Parallel()
	ctrl := gomock.NewController(t)
	sandboxes, containers := NewMockSandboxes(ctrl), NewMockContainers(ctrl)
	node, err := fakecri.New(fakecri.Config{})
	require.NoError(t, err)
	stopped := &podcache.Status{UID: "uid"}
	runner, err := podrunner.New(podrunner.Config{
		Sandboxes: sandboxes, Containers: containers, Images: newImages(t, images.Config{Images: node}), Agent: "agent", LogRoot: t.TempDir(),
		Refresh: func(context.Context, types.UID) (*podcache.Status, error) { return stopped, nil },
	})
	require.NoError(t, err)
	status := &podcache.Status{
		UID:        "uid",
		Sandboxes:  []*runtimeapi.PodSandboxStatus{{Id: "box"}},
		Containers: []*runtimeapi.ContainerStatus{{Id: "a", State: runtimeapi.ContainerState_CONTAINER_RUNNING}, {Id: "b", State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	}

	a := containers.EXPECT().StopContainer(gomock.Any(), "a", int64(7)).Return(nil)
	b := containers.EXPECT().StopContainer(gomock.Any(), "b", int64(7)).Return(nil)
	sandboxes.EXPECT().StopPodSandbox(gomock.Any(), "box").Return(nil).After(a.Call).After(b.Call)
	require.NoError(t, runner.SyncTerminatingPod(t.Context(), podworker.SyncRequest{Pod: testPod(), Status: status, Grace: 7 * time.Second}))

	for _, c := range status.Containers {
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	status.Sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	gomock.InOrder(
		containers.EXPECT().RemoveContainer(gomock.Any(), "a").Return(nil).Call,
		containers.EXPECT().RemoveContainer(gomock.Any(), "b").Return(nil).Call,
		sandboxes.EXPECT().RemovePodSandbox(gomock.Any(), "box").Return(nil).Call,
	)
	require.NoError(t, runner.RemovePod(t.Context(), status))
}
