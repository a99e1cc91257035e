//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// endText returns a pod with a grace period and containers, in JSON.
func endText(name string, grace int, containers string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: %d, %s}\n", name, grace, containers)
}

// shell returns a busybox container that exits on SIGTERM and writes a line about it.
func shell(name, more string) string {
	return fmt.Sprintf(`{name: %s, image: kubeparts.test/busybox:1, %s command: [sh, -c, "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done"]}`, name, more)
}

// ended waits until the process has exited and returns the duration.
func ended(t *testing.T, pid int, timeout time.Duration) time.Duration {
	t.Helper()
	begin := time.Now()
	waitFor(t, timeout, "the process to exit", func() (string, bool) { return "the process runs", !alive(pid) })
	return time.Since(begin)
}

// pidOf returns the process ID of a pod's container.
func pidOf(t *testing.T, pod *corev1.Pod, name string) int {
	t.Helper()
	for _, i := range bed.instances(t, podLabels(pod)) {
		if i.Name == name && i.running() {
			return bed.pid(t, i.ID)
		}
	}
	t.Fatalf("container %s is not running", name)
	return 0
}

func TestHooks_RunByCommandAndHTTP(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	// The container's own server may not listen yet when the hook runs.
	asked := make(chan string, 10)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	t.Cleanup(elsewhere.Close)
	_, port, err := net.SplitHostPort(elsewhere.Listener.Addr().String())
	require.NoError(t, err)
	n.write("hooks.yaml", endText("hooks", 10, `containers: [
  {name: web, image: kubeparts.test/testserver:1, args: [serve, -term-delay, 1s]},
  {name: main, image: kubeparts.test/busybox:1, command: [sh, -c, "trap 'echo told; exit 0' TERM; while :; do sleep 0.1; done"],
   lifecycle: {postStart: {exec: {command: [sh, -c, "echo post > /tmp/post; echo postStart > /proc/1/fd/1"]}},
     preStop: {exec: {command: [sh, -c, "sleep 2; echo preStop > /proc/1/fd/1"]}}}}]`))
	n.write("http.yaml", endText("http", 10, `containers: [{name: web, image: kubeparts.test/testserver:1, args: [serve],
   lifecycle: {postStart: {httpGet: {host: 127.0.0.1, path: /started, port: `+port+`}}, preStop: {httpGet: {path: /healthz/ok, port: web}}}, ports: [{name: web, containerPort: 8080}]}]`))
	n.start()
	pod := n.waitRunning("hooks")
	log := n.openLog(pod, "main")
	require.NotZero(t, logTime(t, log, "postStart"))
	pid := pidOf(t, pod, "main")
	require.FileExists(t, fmt.Sprintf("/proc/%d/root/tmp/post", pid))
	n.waitReady("http")
	require.Equal(t, "/started", <-asked, "the postStart hook must send its request")
	require.Empty(t, asked, "once")

	begin, stalled := time.Now(), stalls(t)
	n.remove("hooks.yaml")
	ended(t, pid, 15*time.Second)
	require.NotZero(t, logTime(t, log, "preStop"))
	hook, told := logTime(t, log, "preStop"), logTime(t, log, "told")
	require.True(t, told.After(hook), "the preStop hook must run before SIGTERM")
	require.Less(t, time.Since(begin)-stalled(), 8*time.Second)
	n.waitGone(20*time.Second, "hooks")
	n.remove("http.yaml")
	n.waitGone(20*time.Second, "http")
	require.Zero(t, n.output.linesWith("FailedPreStopHook"))
	n.requireNothingLeft()
}

func TestPostStart_FailureKillsContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("bad.yaml", endText("bad", 2, `restartPolicy: Never, containers: [`+shell("main", `lifecycle: {postStart: {exec: {command: [sh, -c, "echo no luck; exit 7"]}}},`)+`]`))
	n.start()
	n.waitPod(startTimeout, "bad", "to have ended", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Terminated != nil
	})
	require.NotZero(t, n.output.linesWith("FailedPostStartHook"))
}

// TestPreStop_HangEndsWithGracePeriod checks that a hanging hook delays the termination
// by at most the grace period plus two seconds.
func TestPreStop_HangEndsWithGracePeriod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("hang.yaml", endText("hang", 10, `containers: [{name: main, image: kubeparts.test/busybox:1, command: [sh, -c, "trap '' TERM; while :; do sleep 0.1; done"],
   lifecycle: {preStop: {exec: {command: [sleep, "3600"]}}}}]`))
	n.start()
	pod := n.waitRunning("hang")
	pid := pidOf(t, pod, "main")
	begin, stalled := time.Now(), stalls(t)
	n.remove("hang.yaml")
	ended(t, pid, 30*time.Second)
	took := time.Since(begin)
	t.Logf("hook hangs and SIGTERM is ignored, grace 10 s: %v", took.Round(10*time.Millisecond))
	require.GreaterOrEqual(t, took, 10*time.Second)
	require.Less(t, took-stalled(), 14*time.Second, "the container must not get a second grace period or a second minimum of two seconds")
	n.waitGone(20*time.Second, "hang")
	n.requireNothingLeft()
}

func TestSidecars_StopLastInReverseOrder(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("side.yaml", endText("side", 20, `initContainers: [`+
		shell("first", "restartPolicy: Always,")+`, {name: job, image: kubeparts.test/busybox:1, command: [sh, -c, "echo done"]}, `+shell("second", "restartPolicy: Always,")+`],
  containers: [{name: main, image: kubeparts.test/busybox:1, command: [sh, -c, "trap 'sleep 1; echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done"]}]`))
	n.start()
	pod := n.waitRunning("side")
	var order []string
	for _, i := range bed.instances(t, podLabels(pod)) {
		order = append(order, fmt.Sprintf("%d %s", i.Started.UnixNano(), i.Name))
	}
	logs := map[string]*os.File{}
	for _, name := range []string{"first", "second", "main"} {
		logs[name] = n.openLog(pod, name)
		require.NotZero(t, logTime(t, logs[name], "up"), name)
	}
	pid := pidOf(t, pod, "first")
	n.remove("side.yaml")
	ended(t, pid, 30*time.Second)
	main, second, first := logTime(t, logs["main"], "told"), logTime(t, logs["second"], "told"), logTime(t, logs["first"], "told")
	require.True(t, main.Before(second), "%v", order)
	require.True(t, second.Before(first), "%v", order)
	n.waitGone(20*time.Second, "side")
	n.requireNothingLeft()
}

func TestInitContainer_IsTerminatedWithPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("init.yaml", endText("init", 30, `initContainers: [`+shell("slow", "")+`], containers: [`+shell("main", "")+`]`))
	n.start()
	pod := n.waitPod(startTimeout, "init", "to run its init container", func(p *corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) == 1 && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	pid := pidOf(t, pod, "slow")
	log := n.openLog(pod, "slow")
	require.NotZero(t, logTime(t, log, "up"))
	stalled := stalls(t)
	n.remove("init.yaml")
	require.Less(t, ended(t, pid, 40*time.Second)-stalled(), 15*time.Second, "the container must not need its grace period")
	require.NotZero(t, logTime(t, log, "told"), "the container must receive SIGTERM, not SIGKILL")
	n.waitGone(20*time.Second, "init")
	n.requireNothingLeft()
}

// TestTermination_KeepsGracePeriodAcrossAgentKills checks that the next agent terminates the pod within the
// grace period that began with the first signal, for any number of agent kills.
func TestTermination_KeepsGracePeriodAcrossAgentKills(t *testing.T) {
	t.Parallel()
	for name, kills := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			agentsKilledDuringATermination(t, kills)
		})
	}
}

func agentsKilledDuringATermination(t *testing.T, kills int) {
	t.Helper()
	// If each agent started a new grace period, each kill would delay the end by apart. On a
	// busy machine, the end can be delayed by late.
	const grace, apart, late = 20 * time.Second, 6 * time.Second, 1500 * time.Millisecond
	n := newNode(t)
	n.write("stay.yaml", endText("stay", 20, `volumes: [{name: s, emptyDir: {medium: Memory}}], containers: [{name: main, image: kubeparts.test/busybox:1,
   command: [sh, -c, "trap 'echo told' TERM; while :; do sleep 0.1; done"], volumeMounts: [{name: s, mountPath: /s}],
   lifecycle: {preStop: {exec: {command: [sh, -c, "echo preStop > /proc/1/fd/1; sleep 3600"]}}}}]`))
	n.start()
	pod := n.waitRunning("stay")
	pid, log := pidOf(t, pod, "main"), n.openLog(pod, "main")
	removed, stalled := time.Now(), stalls(t)
	n.remove("stay.yaml")
	for killed := range kills {
		waitFor(t, grace, "the hook to run", func() (string, bool) {
			_, err := log.Seek(0, io.SeekStart)
			data, err2 := io.ReadAll(log)
			return fmt.Sprint(string(data), err, err2), strings.Count(string(data), "preStop") > killed
		})
		stays(t, apart, "the process runs", func() (string, bool) { return fmt.Sprint(pid), alive(pid) })
		n.agent.kill(t)
		n.start()
	}
	ended(t, pid, 2*grace)
	require.GreaterOrEqual(t, time.Since(removed), grace, "the container must get its whole grace period")
	took := time.Since(logTime(t, log, "preStop"))
	t.Logf("from the first signal to the exit of the process, grace period %v, agent killed %d times: %v", grace, kills, took.Round(10*time.Millisecond))
	require.Less(t, took-stalled(), grace+2*time.Second+late)
	n.requireNothingLeft()
}

func TestAdoption_RemovesFilesOfPodWithoutManifest(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("objects.yaml", objects)
	n.write("gone.yaml", podText("gone", "volumes: [{name: s, secret: {secretName: keys}}],", "volumeMounts: [{name: s, mountPath: /s}],", "cat /s/password; echo"))
	n.start()
	pod := n.waitRunning("gone")
	n.said(pod)
	was := bed.traces(t, pod)
	n.agent.kill(t)
	n.remove("gone.yaml")
	n.start()
	bed.requireGone(t, was)
	n.requireNothingLeft()
}
