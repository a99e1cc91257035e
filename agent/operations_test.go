package agent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/fakecri"
)

// A restart replaces the sandbox of a pod. Pods in other states are not restarted.
func TestAgent_Restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, web, job := newNode(t), newPod("web", "demo/web:1"), newPod("job", "demo/job:1")
		job.Spec.RestartPolicy = corev1.RestartPolicyNever
		a := start(t, config(node, newSource(web, job).file()))
		after(30 * time.Second)
		before, _ := a.Pod(web.UID)
		require.NoError(t, a.Restart(t.Context(), web.UID))
		after(30 * time.Second)
		now, known := a.Pod(web.UID)
		require.True(t, known)
		require.Equal(t, corev1.PodRunning, now.Spec.Status.Phase)
		require.NotEqual(t, before.Runtime.ReadySandbox().GetId(), now.Runtime.ReadySandbox().GetId())
		require.Equal(t, int32(1), now.Spec.Status.ContainerStatuses[0].RestartCount)

		err := a.Restart(t.Context(), job.UID)
		require.ErrorIs(t, err, agent.ErrNotRestartable)
		require.EqualError(t, err, "agent: restart pod default/job: the pod can't be restarted: it is ended (its containers have ended, or the pod must be stopped)")
		require.ErrorIs(t, a.Restart(t.Context(), "nobody"), agent.ErrUnknownPod)
	})
}

// A pulled image is present. Garbage collection may delete it.
func TestAgent_Pull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, func(c *fakecri.Config) { c.PullAny = true })
		a := start(t, config(node, newSource().file()))
		after(5 * time.Second)
		image, err := a.Pull(t.Context(), "registry.example/app:2")
		require.NoError(t, err)
		require.NotEmpty(t, image.GetRepoDigests())
		after(2 * time.Second)
		plan, err := a.Plan(t.Context())
		require.NoError(t, err)
		found := false
		for _, d := range plan.Images.Decisions {
			if d.Image.ID == image.GetId() {
				found = true
				require.NotEqual(t, "keep", string(d.Image.Preference), "an image that the agent has pulled must not be kept")
			}
		}
		require.True(t, found)
		require.NoError(t, node.Fail("PullImage", fakecri.Fault{Err: errors.New("unauthorized")}))
		_, err = a.Pull(t.Context(), "registry.example/app:3")
		require.ErrorContains(t, err, "agent: pull image registry.example/app:3: ")
		require.ErrorContains(t, err, "unauthorized")
	})
}
