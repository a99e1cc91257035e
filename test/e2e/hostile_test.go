//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestShutdown_SecondSignalExitsBeforePodsStop(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("stubborn.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: stubborn
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - {name: stubborn, image: kubeparts.test/testserver:1, args: [stubborn, "3600"]}
`)
	a := n.start("--stop-pods")
	pod := n.waitRunning("stubborn")
	before, err := live(pod)
	require.NoError(t, err)

	require.NoError(t, a.cmd.Process.Signal(syscall.SIGINT))
	waitFor(t, 5*time.Second, "the agent to begin to stop all pods", func() (string, bool) {
		return a.output.String(), a.output.linesWith("stopping all pods") > 0
	})
	require.False(t, a.over())
	begin := time.Now()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGINT))
	code, err := a.wait(5 * time.Second)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	t.Logf("from the second signal to the exit: %v", time.Since(begin).Round(time.Millisecond))
	after, err := live(pod)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestTwoAgents_RunSeparatePodsOfOneManifest(t *testing.T) {
	t.Parallel()
	one, two := newNode(t), newNode(t)
	two.name, two.hostname, two.manifests = "another-agent", one.hostname, one.manifests
	one.write("web.yaml", web)
	one.start()
	two.start()
	first, second := one.waitRunning("web"), two.waitRunning("web")
	require.Equal(t, first.Name, second.Name)
	require.NotEqual(t, first.UID, second.UID)
	require.NotEqual(t, first.Status.PodIP, second.Status.PodIP)

	was := bed.traces(t, first)
	before, err := live(second)
	require.NoError(t, err)
	one.agent.stop(t)
	one.start("--stop-pods")
	one.waitRunning("web")
	one.agent.stop(t)
	bed.requireGone(t, was)
	after, err := live(second)
	require.NoError(t, err)
	require.Equal(t, before, after)
}

func TestPodStart_RepeatedAgentKillsCreateNoDuplicates(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const pods = 4
	for i := range pods {
		n.write(fmt.Sprintf("p%d.yaml", i), strings.ReplaceAll(web, "name: web", fmt.Sprintf("name: p%d", i)))
	}
	addr := freeAddr(t)
	for i := range 10 {
		a, err := startAgent(addr, n.output, n.flags(addr)...)
		require.NoError(t, err)
		// Kill each agent a little later: during the creation of the sandbox, of the
		// containers, or after their start.
		_, err = a.wait(time.Duration(20+40*i) * time.Millisecond)
		require.Error(t, err, "the agent exited by itself")
		a.kill(t)
	}
	n.start()
	for i := range pods {
		// containerd cancels a start when the agent's connection closes. This may leave a
		// dead container and a dead sandbox. The next attempt may fail because the name is in
		// use, and back off twice.
		pod := n.waitPod(2*startTimeout, fmt.Sprintf("p%d", i), "to run", running)
		ready, err := bed.runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: podLabels(pod),
			State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		}})
		require.NoError(t, err)
		require.Len(t, ready.GetItems(), 1)
		up := slices.DeleteFunc(bed.instances(t, podLabels(pod)), func(i instance) bool { return !i.running() })
		require.Len(t, up, 1)
		require.Equal(t, ready.GetItems()[0].GetId(), up[0].Sandbox)
	}
}

// Not parallel: it measures.
func TestManyPods_StartAndTerminateConcurrently(t *testing.T) {
	n := newNode(t)
	n.start()
	const pods = 30
	begin := time.Now()
	for i := range pods {
		n.write(fmt.Sprintf("p%d.yaml", i), strings.ReplaceAll(web, "name: web", fmt.Sprintf("name: p%d", i)))
	}
	waitFor(t, time.Minute, "all pods to run", func() (string, bool) {
		shown, err := n.agent.pods()
		up := 0
		for i := range shown {
			if running(&shown[i]) {
				up++
			}
		}
		return fmt.Sprint(up, err), up == pods
	})
	t.Logf("%d pods were running after %v", pods, time.Since(begin).Round(10*time.Millisecond))

	begin = time.Now()
	for i := range pods {
		n.remove(fmt.Sprintf("p%d.yaml", i))
	}
	slowest, stalled := time.Duration(0), stalls(t) // slowest does not include the stalls of the machine
	waitFor(t, time.Minute, "all pods to be removed", func() (string, bool) {
		asked, before := time.Now(), stalled()
		code, body, err := n.agent.get("/healthz")
		slowest = max(slowest, time.Since(asked)-(stalled()-before))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, code, body)
		left, err := bed.sandboxes(map[string]string{labelAgent: n.name})
		return fmt.Sprint(len(left), err), err == nil && len(left) == 0
	})
	t.Logf("all pods were removed after %v; slowest /healthz response: %v", time.Since(begin).Round(10*time.Millisecond), slowest.Round(time.Millisecond))
	require.Less(t, slowest, time.Second)
}

// Not parallel: it stops the runtime of all tests.
func TestHungContainerd_FailsHealthAndRestartsNoContainer(t *testing.T) {
	n := newNode(t)
	a := n.start()
	pod := startAdoptable(n)
	before, err := live(pod)
	require.NoError(t, err)
	waitFor(t, startTimeout, "the agent to be healthy", a.health(func(code int, _ string) bool { return code == http.StatusOK }))

	pid, err := bed.containerd()
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	goOn := func() { require.NoError(t, syscall.Kill(pid, syscall.SIGCONT)) }
	t.Cleanup(goOn)
	begin, stalled := time.Now(), stalls(t)
	waitFor(t, startTimeout, "the agent to be unhealthy and give the reason", a.health(func(code int, body string) bool {
		return code == http.StatusInternalServerError && strings.Contains(body, "no answer")
	}))
	t.Logf("unhealthy after %v", time.Since(begin).Round(10*time.Millisecond))
	require.Less(t, time.Since(begin)-stalled(), 12*time.Second)
	goOn()
	begin = time.Now()
	waitFor(t, 10*time.Second, "the agent to be healthy again", a.health(func(code int, _ string) bool { return code == http.StatusOK }))
	t.Logf("healthy %v after containerd was resumed", time.Since(begin).Round(10*time.Millisecond))
	requireUnchanged(t, pod, n.waitAdopted(), before)
}
