package podrunner_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestObserver_EveryAttemptToStart(t *testing.T) {
	t.Parallel()
	var told []string
	watch := func(c *podrunner.Config) {
		c.Observer.SandboxStarted = func(pod *corev1.Pod, err error) {
			told = append(told, fmt.Sprint("sandbox of ", pod.Name, " failed=", err != nil))
		}
		c.Observer.ContainerStarted = func(s podrunner.ContainerStart) {
			told = append(told, fmt.Sprint(s.Kind, " ", s.Pod.Name, "/", s.Name, " attempt ", s.Attempt, " code=", s.Code, " failed=", s.Err != nil))
		}
	}
	b, pod := newBed(t, watch), podOf([]string{"job"}, "app", "nowhere")
	pod.Spec.Containers[1].Name = "lost"

	require.NoError(t, b.node.Fail("RunPodSandbox", fakecri.Fault{Err: errors.New("no room"), Times: 1}))
	require.Error(t, b.sync(pod))
	require.Equal(t, []string{"sandbox of pod failed=true"}, told)

	told = nil
	require.NoError(t, b.sync(pod))
	require.Equal(t, []string{"sandbox of pod failed=false", "init container pod/init-job attempt 0 code= failed=false"}, told)

	told = nil
	b.clock.Step(time.Second)
	require.Error(t, b.sync(pod))
	require.Equal(t, []string{
		"container pod/app attempt 0 code= failed=false",
		"container pod/lost attempt 0 code=ErrImagePull failed=true",
	}, told)

	told = nil
	require.NoError(t, b.node.Fail("CreateContainer", fakecri.Fault{Err: errors.New("no"), Times: 1}))
	other := podOf(nil, "app")
	other.UID, other.Name = "other", "other"
	require.Error(t, b.sync(other))
	require.Equal(t, []string{
		"sandbox of other failed=false", "container other/app attempt 0 code=CreateContainerError failed=true",
	}, told)
}
