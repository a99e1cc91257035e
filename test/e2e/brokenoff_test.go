//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
)

// TestStartInterrupted_DetectsCanceledStart interrupts the starts of containers at different
// moments, as a killed agent does, and checks the resulting container states in containerd.
func TestStartInterrupted_DetectsCanceledStart(t *testing.T) {
	t.Parallel()
	box := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "broken-off", Uid: "broken-off", Namespace: "by-hand"},
		Labels:   map[string]string{labelAgent: t.Name()}, Linux: &runtimeapi.LinuxPodSandboxConfig{},
	}
	t.Cleanup(func() { bed.clear(t, box.Labels) })
	made, err := bed.runtime.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: box})
	require.NoError(t, err)
	dead := 0
	for i := range 10 {
		created, err := bed.runtime.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
			PodSandboxId: made.GetPodSandboxId(), SandboxConfig: box,
			Config: &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("c%d", i)}, Image: &runtimeapi.ImageSpec{Image: imageServer},
				Args: []string{"sleep", "3600"}, Labels: box.Labels, Linux: &runtimeapi.LinuxContainerConfig{},
			},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(2+5*i)*time.Millisecond)
		_, broken := bed.runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: created.GetContainerId()})
		cancel()
		var s *runtimeapi.ContainerStatus
		seen, settled := poll(2*time.Second, func() (string, bool) {
			answer, err := bed.runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: created.GetContainerId()})
			s = answer.GetStatus()
			return fmt.Sprint(err, s), err == nil && s.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED
		})
		t.Logf("%v, then %v: %s", broken, s.GetState(), s.GetMessage())
		if settled && s.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			dead++
			require.Equal(t, !forgotten(s), podcache.StartInterrupted(s), seen)
			if forgotten(s) {
				_, err := bed.runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: s.GetId()})
				require.Regexp(t, runningTask, err, "containerd's error message has changed")
				require.NoError(t, bed.deleteTask(s.GetId()))
			}
		}
	}
	require.Positive(t, dead, "no start was interrupted")
}
