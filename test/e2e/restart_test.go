//go:build e2e

package e2e

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestCrashLoop_RestartsWithGrowingBackoff(t *testing.T) {
	t.Parallel()
	n, runs, stalled := newNode(t), runs{}, stalls(t)
	n.start()
	n.write("crash.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: crash
spec:
  containers:
  - {name: crash, image: kubeparts.test/testserver:1, args: [exit, "3", "0.3"]}
`)
	for _, wait := range []string{"10s", "20s"} {
		pod := n.waitPod(startTimeout, "crash", "to be in a back-off of "+wait, func(pod *corev1.Pod) bool {
			runs.gather(t, pod)
			return backoff(pod) == wait
		})
		require.Equal(t, corev1.PodRunning, pod.Status.Phase)
		require.Equal(t, corev1.ConditionFalse, conditionStatus(pod, corev1.PodReady))
		c := containerStatus(t, pod, "crash")
		require.False(t, c.Ready)
		require.NotNil(t, c.LastTerminationState.Terminated)
		require.Equal(t, int32(3), c.LastTerminationState.Terminated.ExitCode)
		require.Equal(t, "Error", c.LastTerminationState.Terminated.Reason)
	}
	n.waitPod(startTimeout, "crash", "to count three restarts", func(pod *corev1.Pod) bool {
		runs.gather(t, pod)
		return firstStatus(pod).RestartCount == 3
	})

	for i, want := range []time.Duration{0, 10 * time.Second, 20 * time.Second} {
		before, after := runs[strconv.Itoa(i)], runs[strconv.Itoa(i+1)]
		require.NotEmpty(t, before.ID, "run %d was removed before the test observed it", i)
		gap := after.Started.Sub(before.Finished)
		t.Logf("restart %d: %v after the previous exit", i+1, gap.Round(time.Millisecond))
		require.GreaterOrEqual(t, gap, want)
		require.Less(t, gap-stalled(), want+3*time.Second)
	}
}

// runs is the runs of one container, by restart count.
type runs map[string]instance

// gather records the current containers. Dead containers are removed, so the test gathers
// them repeatedly.
func (r runs) gather(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, i := range bed.instances(t, podLabels(pod)) {
		r[i.Restarts] = i
	}
}

// backoff returns the duration in the CrashLoopBackOff message of a pod's first container:
// "back-off 10s restarting failed container=...". It returns "" if there is no such message.
func backoff(pod *corev1.Pod) string {
	if len(pod.Status.ContainerStatuses) == 0 {
		return ""
	}
	waiting := firstStatus(pod).State.Waiting
	if waiting == nil || waiting.Reason != "CrashLoopBackOff" {
		return ""
	}
	wait, _, _ := strings.Cut(strings.TrimPrefix(waiting.Message, "back-off "), " restarting failed container=")
	return wait
}

// Not parallel: it measures.
func TestRestart_KilledContainerRunsWithinTwoSeconds(t *testing.T) {
	n := newNode(t)
	n.write("web.yaml", web)
	n.start()
	pod := n.waitRunning("web")
	old := bed.instances(t, podLabels(pod))[0]

	killed, stalled := time.Now(), stalls(t)
	require.NoError(t, syscall.Kill(bed.pid(t, old.ID), syscall.SIGKILL))
	next := n.waitNextInstance(pod, "web", old.ID)
	took := next.Started.Sub(killed)
	t.Logf("from SIGKILL to the next running container: %v", took.Round(time.Millisecond))
	require.LessOrEqual(t, took-stalled(), 2*time.Second)
	require.Equal(t, old.Sandbox, next.Sandbox)

	pod = n.waitPod(5*time.Second, "web", "to count the restart", func(pod *corev1.Pod) bool {
		return running(pod) && firstStatus(pod).RestartCount == 1
	})
	last := containerStatus(t, pod, "web").LastTerminationState.Terminated
	require.NotNil(t, last)
	require.Equal(t, int32(137), last.ExitCode)
	require.Equal(t, "containerd://"+old.ID, last.ContainerID)
}

// waitNextInstance waits for a running container with that name and another ID.
func (n *node) waitNextInstance(pod *corev1.Pod, name, oldID string) instance {
	n.t.Helper()
	var next instance
	labels := podLabels(pod)
	labels[labelContainerName] = name
	waitFor(n.t, startTimeout, "another container "+name, func() (string, bool) {
		found, err := bed.find(labels)
		if err != nil || len(found) == 0 {
			return "none", false
		}
		next = found[len(found)-1]
		return next.String(), next.ID != oldID && next.running()
	})
	return next
}
