package podloop

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

func withInit(p *corev1.Pod) {
	p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "job:1"}}
}

func withGrace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// awaitRestarted waits until the pod runs in a sandbox with this attempt, and returns the pod.
func (b *bed) awaitRestarted(name string, attempt uint32) Pod {
	b.t.Helper()
	return b.awaitPod(name, "running in a new sandbox", func(p Pod) bool {
		s := p.Runtime.ReadySandbox()
		return s != nil && s.GetMetadata().GetAttempt() == attempt && p.Spec.Status.Phase == corev1.PodRunning &&
			!slices.ContainsFunc(p.Spec.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
				active := p.Runtime.Active(c.Name)
				return c.State.Running == nil || active == nil || !strings.HasSuffix(c.ContainerID, active.GetId())
			})
	})
}

func restartCounts(p Pod) map[string]int32 {
	counts := map[string]int32{}
	for _, c := range append(slices.Clone(p.Spec.Status.InitContainerStatuses), p.Spec.Status.ContainerStatuses...) {
		counts[c.Name] = c.RestartCount
	}
	return counts
}

// A restart stops the containers within their grace period and starts them in a new sandbox.
// The pod keeps its UID, and its worker does not stop.
func TestRestart_NewSandbox(t *testing.T) {
	t.Parallel()
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever} {
		inBubble(t, func(b *bed) {
			b.set(newPod("web", "slow:1", restart(policy), withInit))
			before := b.awaitRestarted("web", 0)
			began := time.Now()
			require.NoError(b.t, b.Restart(b.t.Context(), "uid-web"))
			now := b.awaitRestarted("web", 1)
			require.GreaterOrEqual(b.t, time.Since(began), 20*time.Second, "the container must exit within its grace period")
			require.Less(b.t, time.Since(began), 40*time.Second)
			require.Equal(b.t, map[string]int32{"setup": 1, "main": 1}, restartCounts(now), policy)
			require.Equal(b.t, before.Spec.UID, now.Spec.UID)
			last := now.Spec.Status.ContainerStatuses[0].LastTerminationState.Terminated
			require.NotNil(b.t, last)
			require.Equal(b.t, before.Spec.Status.ContainerStatuses[0].ContainerID, last.ContainerID)
			require.Equal(b.t, "offered, admitted", b.recorder.takeMoves("web"), "the pod must not become terminated")
			require.True(b.t, b.recorder.hasEvent("SandboxChanged: "))
			require.True(b.t, b.recorder.hasEvent("Killing: a restart of the pod was requested"))

			time.Sleep(5 * time.Minute)
			require.Len(b.t, b.images("web"), 1, "the pod must restart only once")
			require.Equal(b.t, map[string]int32{"setup": 1, "main": 1}, restartCounts(b.awaitRestarted("web", 1)))
		})
	}
}

// A restart never takes longer than the grace period.
func TestRestart_GracePeriod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "stubborn:1", withGrace(7)))
		b.awaitRestarted("web", 0)
		began := time.Now()
		require.NoError(b.t, b.Restart(b.t.Context(), "uid-web"))
		b.awaitRestarted("web", 1)
		require.InDelta(b.t, 7, time.Since(began).Seconds(), 3)
	})
}

// A restart ends the back-off of a container in a crash loop.
func TestRestart_BackOff(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("flaky", "crash:1"))
		waits := func(p Pod) bool {
			w := p.Spec.Status.ContainerStatuses
			return len(w) == 1 && w[0].RestartCount == 4 && w[0].State.Waiting != nil && w[0].State.Waiting.Reason == "CrashLoopBackOff"
		}
		b.awaitPod("flaky", "in back-off", waits) // the back-off is 80 s
		began := time.Now()
		require.NoError(b.t, b.Restart(b.t.Context(), "uid-flaky"))
		p := b.awaitPod("flaky", "started again", func(p Pod) bool { return p.Spec.Status.ContainerStatuses[0].RestartCount == 5 })
		require.Less(b.t, time.Since(began), 5*time.Second)
		require.Equal(b.t, uint32(1), p.Runtime.Sandboxes[0].GetMetadata().GetAttempt())
	})
}

// The agent stops while a restart stops the containers, or before the next container starts.
// The next agent completes the restart.
func TestRestart_AgentRestarts(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{
		"at once": 0, "while the container stops": 10 * time.Second, "while the init container runs": 23 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod("web", "slow:1", restart(corev1.RestartPolicyNever), withInit)
			inRestarts(t, func(b *bed) {
				b.set(pod)
				b.awaitRestarted("web", 0)
				require.NoError(b.t, b.Restart(b.t.Context(), "uid-web"))
				time.Sleep(after)
			}, func(b *bed) {
				time.Sleep(time.Minute) // the container exits during this time
				b.set(pod)
				now := b.awaitRestarted("web", 1)
				require.Equal(b.t, int32(1), restartCounts(now)["main"])
				require.NotContains(b.t, b.recorder.takeMoves("web"), "ended")
				time.Sleep(5 * time.Minute)
				require.Equal(b.t, restartCounts(now), restartCounts(b.awaitRestarted("web", 1)))
			})
		})
	}
}

// A pod that is deleted during its restart terminates, and does not start again.
func TestRestart_DeletedMeanwhile(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "slow:1"))
		b.awaitRestarted("web", 0)
		require.NoError(b.t, b.Restart(b.t.Context(), "uid-web"))
		time.Sleep(5 * time.Second)
		b.set()
		require.ErrorIs(b.t, b.Restart(b.t.Context(), "uid-web"), ErrNotRestartable)
		b.awaitGone("web")
		require.Zero(b.t, b.sandboxes())
		// The pod is defined again with the same UID. The restart must be forgotten.
		b.set(newPod("web", "slow:1", restart(corev1.RestartPolicyNever)))
		require.Equal(b.t, map[string]int32{"main": 0}, restartCounts(b.awaitRestarted("web", 0)))
	})
}

func TestRestart_Refused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		require.ErrorIs(b.t, b.Restart(b.t.Context(), "uid-web"), ErrUnknownPod)
		b.set(newPod("job", "job:1", restart(corev1.RestartPolicyNever)))
		b.await("job", Ended)
		err := b.Restart(b.t.Context(), "uid-job")
		require.ErrorIs(b.t, err, ErrNotRestartable)
		require.ErrorContains(b.t, err, "restart pod default/job: the pod can't be restarted: it is ended")

		// A pod whose volume is missing gets no sandbox.
		b.set(newPod("web", "web:1", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/does/not/exist", Type: new(corev1.HostPathDirectory)}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}
		}))
		b.await("web", Admitted)
		require.ErrorContains(b.t, b.Restart(b.t.Context(), "uid-web"), "it has not started yet")
	})
}

// If the creation of the new sandbox fails, the pod is not terminated: the agent retries.
func TestRestart_SandboxFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.set(newPod("web", "web:1", restart(corev1.RestartPolicyNever)))
		b.awaitRestarted("web", 0)
		require.NoError(b.t, b.node.Fail("RunPodSandbox", fakecri.Fault{Err: errors.New("the registry is down"), Times: 3}))
		require.NoError(b.t, b.Restart(b.t.Context(), "uid-web"))
		time.Sleep(5 * time.Second)
		p, _ := b.Pod("uid-web")
		require.Equal(b.t, Admitted, p.State)
		require.Equal(b.t, corev1.PodRunning, p.Spec.Status.Phase, "the exit of the container must not be final")
		e, err := b.Explain(b.t.Context(), "uid-web")
		require.NoError(b.t, err)
		require.Contains(b.t, e.Plan, "a restart of the pod was requested")
		require.Equal(b.t, map[string]int32{"main": 1}, restartCounts(b.awaitRestarted("web", 1)))
	})
}

func TestPull(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		image, err := b.Pull(b.t.Context(), "registry.example/app:2")
		require.NoError(b.t, err)
		require.Equal(b.t, []string{"registry.example/app:2"}, image.GetRepoTags())
		pulls := func() (n int) {
			for _, c := range b.node.Calls() {
				if c.Method == "PullImage" {
					n++
				}
			}
			return n
		}
		_, err = b.Pull(b.t.Context(), "registry.example/app:2")
		require.NoError(b.t, err)
		require.Equal(b.t, 2, pulls(), "a present image must be pulled again")

		require.NoError(b.t, b.node.Fail("PullImage", fakecri.Fault{Err: errors.New("the registry is down"), Times: 1}))
		_, err = b.Pull(b.t.Context(), "registry.example/app:3")
		require.ErrorContains(b.t, err, "the registry is down")
		_, err = b.Pull(b.t.Context(), "registry.example/app:3")
		require.NoError(b.t, err, "a failed pull must not start a back-off")
		_, err = b.Pull(b.t.Context(), "NOT AN IMAGE")
		require.ErrorIs(b.t, err, ErrInvalidImageName)
		require.ErrorContains(b.t, err, "couldn't parse image name")
		require.False(b.t, b.recorder.hasEvent("Pull"), "there must be no event, because the pull belongs to no pod")
		synctest.Wait()
		require.Empty(b.t, b.pulls.Snapshot())
	})
}
