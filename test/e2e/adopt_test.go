//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// quiet is how long nothing may happen after a restart of the agent or the runtime. A
// container that is restarted by mistake is restarted in the first relist.
const quiet = 3 * time.Second

// adoptable is a pod that a new agent could adopt incorrectly: it has a completed init
// container and two containers.
const adoptable = `
apiVersion: v1
kind: Pod
metadata:
  name: adoptable
spec:
  initContainers:
  - {name: init, image: kubeparts.test/testserver:1, args: [echo, done]}
  containers:
  - {name: web, image: kubeparts.test/testserver:1}
  - {name: idle, image: kubeparts.test/testserver:1, args: [sleep, "3600"]}
`

// startAdoptable runs the adoptable pod until one of its containers has restarted once.
func startAdoptable(n *node) *corev1.Pod {
	n.t.Helper()
	n.write("adoptable.yaml", adoptable)
	pod := n.waitRunning("adoptable")
	for _, i := range bed.instances(n.t, podLabels(pod)) {
		if i.Name == "web" {
			require.NoError(n.t, syscall.Kill(bed.pid(n.t, i.ID), syscall.SIGKILL))
		}
	}
	return n.waitAdopted()
}

// waitAdopted waits until the agent reports the adoptable pod with one restart.
func (n *node) waitAdopted() *corev1.Pod {
	n.t.Helper()
	return n.waitPod(startTimeout, "adoptable", "to run with one restart of web and none of idle", func(pod *corev1.Pod) bool {
		st := pod.Status.ContainerStatuses
		return running(pod) && restarts(st, "web") == 1 && restarts(st, "idle") == 0
	})
}

func restarts(statuses []corev1.ContainerStatus, name string) int32 {
	for _, c := range statuses {
		if c.Name == name {
			return c.RestartCount
		}
	}
	return -1
}

// live returns, as one text, a pod's sandbox IDs, its running containers, and all properties
// that an adoption must not change.
func live(pod *corev1.Pod) (string, error) {
	sandboxes, err := bed.sandboxes(podLabels(pod))
	if err != nil {
		return "", err
	}
	found, err := bed.find(podLabels(pod))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintln(&b, sandboxes)
	for _, i := range found {
		if i.running() {
			fmt.Fprintln(&b, i)
		}
	}
	return b.String(), nil
}

func TestAdoption_KeepsPodsOfKilledAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	pod := startAdoptable(n)
	before, err := live(pod)
	require.NoError(t, err)
	t.Log(before)

	n.agent.kill(t)
	begin := time.Now()
	n.start()
	now := n.waitAdopted()
	t.Logf("%v from the start of the next agent until the pod is Running", time.Since(begin).Round(10*time.Millisecond))
	requireUnchanged(t, pod, now, before)
}

func TestAdoption_KeepsPodsOfStoppedAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	pod := startAdoptable(n)
	before, err := live(pod)
	require.NoError(t, err)

	n.agent.stop(t)
	after, err := live(pod)
	require.NoError(t, err)
	require.Equal(t, before, after)
	n.start()
	requireUnchanged(t, pod, n.waitAdopted(), before)
}

func TestAdoption_TerminatesPodWhoseManifestWasRemoved(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	n.start()
	was := bed.traces(t, n.waitRunning("web"))
	n.agent.kill(t)
	n.remove("web.yaml")
	n.start()
	n.waitGone(startTimeout, "web")
	bed.requireGone(t, was)
}

func TestStopPodsFlag_RemovesPodsAtExit(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("web.yaml", web)
	n.start("--stop-pods")
	was := bed.traces(t, n.waitRunning("web"))
	n.agent.stop(t)
	bed.requireGone(t, was)
}

// Not parallel: it stops the runtime of all tests.
func TestKilledContainerd_FailsHealthAndRestartsNoContainer(t *testing.T) {
	n := newNode(t)
	a := n.start()
	pod := startAdoptable(n)
	before, err := live(pod)
	require.NoError(t, err)
	waitFor(t, startTimeout, "the agent to be healthy", a.health(func(code int, _ string) bool { return code == http.StatusOK }))

	pid, err := bed.containerd()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	t.Cleanup(func() { require.NoError(t, bedUp(bed.dir)) })
	begin := time.Now()
	waitFor(t, 10*time.Second, "the agent to be unhealthy and give the reason", a.health(func(code int, body string) bool {
		return code == http.StatusInternalServerError && strings.Contains(body, "[-]runtime failed: ")
	}))
	_, reason, err := a.get("/readyz")
	require.NoError(t, err)
	t.Logf("unhealthy after %v: %s", time.Since(begin).Round(10*time.Millisecond), reason)

	require.NoError(t, bedUp(bed.dir))
	bed.conn.ResetConnectBackoff()
	begin = time.Now()
	waitFor(t, startTimeout, "the agent to be healthy again", a.health(func(code int, _ string) bool { return code == http.StatusOK }))
	t.Logf("healthy %v after containerd was ready again", time.Since(begin).Round(10*time.Millisecond))
	requireUnchanged(t, pod, n.waitAdopted(), before)
	require.False(t, a.over(), "the agent exited")
}

// requireUnchanged fails the test if the pod changes within a while, either in the agent's
// report or in the runtime.
func requireUnchanged(t *testing.T, was, now *corev1.Pod, before string) {
	t.Helper()
	require.Equal(t, was.UID, now.UID)
	require.Equal(t, was.Status.PodIP, now.Status.PodIP)
	require.Equal(t, was.Status.ContainerStatuses, now.Status.ContainerStatuses)
	require.Equal(t, was.Status.InitContainerStatuses, now.Status.InitContainerStatuses)
	stays(t, quiet, "the same containers run, with the same start times", func() (string, bool) {
		after, err := live(was)
		return fmt.Sprint(after, err), err == nil && after == before
	})
}
