//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// probed has every kind of probe with every handler, on regular containers and on a sidecar.
// The test sends HTTP requests to main to change the results of two readiness probes: the
// gRPC probe of main, and the command of cmd. Both have a long timeout, so that only the
// response determines the result.
const probed = `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  initContainers:
  - name: side
    image: kubeparts.test/testserver:1
    restartPolicy: Always
    args: [serve, -http, ":8081", -grpc, ":9091"]
    startupProbe: {grpc: {port: 9091}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {tcpSocket: {port: 8081}, periodSeconds: 1}
    livenessProbe: {httpGet: {port: 8081, path: /}, periodSeconds: 1}
  - {name: step, image: "kubeparts.test/testserver:1", args: [get, "http://127.0.0.1:8081/"]}
  containers:
  - name: main
    image: kubeparts.test/testserver:1
    args: [serve, -grpc, ":9090"]
    ports: [{name: web, containerPort: 8080}]
    startupProbe: {httpGet: {port: web, path: /healthz}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {grpc: {port: 9090}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1}
    livenessProbe: {tcpSocket: {port: web}, periodSeconds: 1}
  - name: cmd
    image: kubeparts.test/testserver:1
    args: [sleep, "3600"]
    env: [{name: PAGE, value: healthz}]
    startupProbe: {exec: {command: [/testserver, exit, "0"]}, periodSeconds: 1, failureThreshold: 30}
    readinessProbe: {exec: {command: [/testserver, get, "http://127.0.0.1:8080/$(PAGE)"]}, periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 30}
    livenessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}
`

func TestProbes_AllHandlersWorkWithSidecar(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.write("probed.yaml", probed)
	begin := time.Now()
	pod := n.waitReady("probed")
	t.Logf("from the manifest to Ready: %v", time.Since(begin).Round(10*time.Millisecond))
	require.True(t, *initStatus(t, pod, "side").Started)
	require.True(t, initStatus(t, pod, "side").Ready)

	n.tell(pod, "/healthz/fail")
	told := time.Now()
	unready := n.waitPod(startTimeout, "probed", "to have main and cmd not ready", func(pod *corev1.Pod) bool {
		return !containerStatus(t, pod, "main").Ready && !containerStatus(t, pod, "cmd").Ready
	})
	t.Logf("from the request to fail until both containers were not ready: %v", time.Since(told).Round(10*time.Millisecond))
	require.Equal(t, corev1.ConditionFalse, conditionStatus(unready, corev1.PodReady))
	require.True(t, initStatus(t, unready, "side").Ready)
	for _, said := range []string{
		`Unhealthy spec.containers{main}: Readiness probe failed: service unhealthy (responded with "NOT_SERVING")`,
		"Unhealthy spec.containers{cmd}: Readiness probe failed: 503 Service Unavailable",
	} {
		waitFor(t, startTimeout, said, func() (string, bool) { return n.output.String(), strings.Contains(n.output.String(), said) })
	}

	n.tell(pod, "/healthz/ok")
	pod = n.waitReady("probed")
	for _, st := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		require.Zero(t, st.RestartCount, st.Name)
	}
}

func TestLiveness_FailureRestartsOnlyThatContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.write("live.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: live}
spec:
  initContainers:
  - {name: side, image: "kubeparts.test/testserver:1", restartPolicy: Always, args: [serve, -http, ":8081"],
     startupProbe: {httpGet: {port: 8081, path: /healthz}, periodSeconds: 1, failureThreshold: 30},
     livenessProbe: {httpGet: {port: 8081, path: /healthz}, periodSeconds: 1, failureThreshold: 2}}
  containers:
  - {name: main, image: "kubeparts.test/testserver:1",
     startupProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1, failureThreshold: 30},
     livenessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1, failureThreshold: 2}}
  - {name: other, image: "kubeparts.test/testserver:1", args: [sleep, "3600"]}
`)
	pod := n.waitReady("live")
	for _, c := range []struct{ name, port string }{{"main", "8080"}, {"side", "8081"}} {
		before := n.instance(pod, c.name)
		told, stalled := time.Now(), stalls(t)
		n.tellPort(pod, c.port, "/healthz/fail")
		next := n.waitNextInstance(pod, c.name, before.ID)
		took := next.Started.Sub(told)
		t.Logf("%s: from the failure to the next running container: %v", c.name, took.Round(10*time.Millisecond))
		// threshold × period + timeout, plus the time to stop and start the container
		require.Less(t, took-stalled(), 6*time.Second)
		require.Equal(t, before.Sandbox, next.Sandbox)
	}
	// It is possible that no status shows the pod as not ready. Then a status differs from the
	// previous status only in the restart count.
	pod = n.waitPod(10*time.Second, "live", "to show both restarts", func(pod *corev1.Pod) bool {
		return ready(pod) && containerStatus(t, pod, "main").RestartCount > 0 && initStatus(t, pod, "side").RestartCount > 0
	})
	require.EqualValues(t, 1, containerStatus(t, pod, "main").RestartCount)
	require.EqualValues(t, 1, initStatus(t, pod, "side").RestartCount)
	require.Zero(t, containerStatus(t, pod, "other").RestartCount)
}

func TestStartupProbe_BlocksOtherProbesUntilSuccess(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.write("slow.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: slow}
spec:
  containers:
  - {name: main, image: "kubeparts.test/testserver:1", args: [serve, -unhealthy],
     startupProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1, failureThreshold: 60},
     livenessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1},
     readinessProbe: {httpGet: {port: 8080, path: /}, periodSeconds: 1}}
  - {name: hopeless, image: "kubeparts.test/testserver:1", args: [serve, -http, ":8081", -unhealthy],
     startupProbe: {httpGet: {port: 8081, path: /healthz}, periodSeconds: 1, failureThreshold: 3}}
`)
	pod := n.waitRunning("slow")
	before := n.instance(pod, "main")
	stays(t, 5*time.Second, "main runs and has not started", func() (string, bool) {
		pods, err := n.agent.pods()
		if err != nil || len(pods) != 1 {
			return fmt.Sprint(pods, err), err != nil // an error is no observation
		}
		st := containerStatus(t, &pods[0], "main")
		return describe(pods), st.State.Running != nil && !*st.Started && !st.Ready && st.RestartCount == 0
	})
	n.waitPod(20*time.Second, "slow", "to have failed the startup probe of one container", func(pod *corev1.Pod) bool {
		return containerStatus(t, pod, "hopeless").RestartCount > 0
	})
	n.tell(pod, "/healthz/ok")
	told := time.Now()
	pod = n.waitPod(10*time.Second, "slow", "to have main started and ready", func(pod *corev1.Pod) bool {
		st := containerStatus(t, pod, "main")
		return *st.Started && st.Ready
	})
	t.Logf("from the request to succeed until the startup probe made the container ready: %v", time.Since(told).Round(10*time.Millisecond))
	require.Equal(t, before.ID, n.instance(pod, "main").ID)
}

// One command hangs, the second does not exist, and the third must not be affected by the
// first two. The kubelet never restarts the container whose command does not exist
// (kubernetes#106682).
func TestExecProbe_HungOrMissingCommandRestartsContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.write("hangs.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: hangs}
spec:
  containers:
  - {name: hangs, image: "kubeparts.test/testserver:1",  args: [sleep, "3600"],
     livenessProbe: {exec: {command: [/testserver, sleep, "987.6"]}, periodSeconds: 1, timeoutSeconds: 1, failureThreshold: 4}}
  - {name: broken, image: "kubeparts.test/testserver:1",  args: [sleep, "3600"],
     livenessProbe: {exec: {command: [/nosuch]}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 4}}
  - {name: well, image: "kubeparts.test/testserver:1",  args: [sleep, "3600"],
     readinessProbe: {exec: {command: [/testserver, exit, "0"]}, periodSeconds: 1, timeoutSeconds: 5}}
`)
	pod := n.waitPod(startTimeout, "hangs", "to have one container ready", func(pod *corev1.Pod) bool {
		return len(pod.Status.ContainerStatuses) == 3 && containerStatus(t, pod, "well").Ready
	})
	most := 0
	waitFor(t, 30*time.Second, "two restarts", func() (string, bool) {
		most = max(most, processes(t, "/testserver\x00sleep\x00987.6\x00"))
		pods, err := n.agent.pods()
		if err != nil || len(pods) != 1 {
			return fmt.Sprint(pods, err), false
		}
		require.True(t, containerStatus(t, &pods[0], "well").Ready)
		return describe(pods), containerStatus(t, &pods[0], "hangs").RestartCount > 0 && containerStatus(t, &pods[0], "broken").RestartCount > 0
	})
	require.Equal(t, 1, most, "concurrent commands of one probe")
	text := n.output.String()
	require.Contains(t, text, `Liveness probe failed: command timed out: "/testserver sleep 987.6" timed out after 1s`)
	require.Contains(t, text, "Liveness probe errored and resulted in unknown state: command not found")
	was := bed.traces(t, pod)
	n.remove("hangs.yaml")
	bed.requireGone(t, was)
	waitFor(t, 10*time.Second, "no probe command to run", func() (string, bool) {
		left := processes(t, "/testserver\x00sleep\x00987.6\x00")
		return fmt.Sprint(left), left == 0
	})
}

// processes counts the processes with this command line.
func processes(t *testing.T, command string) (count int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && string(line) == command { // an error means that it has just exited
			count++
		}
	}
	return count
}

// ready reports whether a pod is ready.
func ready(pod *corev1.Pod) bool {
	return conditionStatus(pod, corev1.PodReady) == corev1.ConditionTrue
}

func (n *node) waitReady(name string) *corev1.Pod {
	n.t.Helper()
	return n.waitPod(startTimeout, name, "to be ready", ready)
}

// tell requests a page from the pod.
func (n *node) tell(pod *corev1.Pod, page string) {
	n.t.Helper()
	n.tellPort(pod, "8080", page)
}

func (n *node) tellPort(pod *corev1.Pod, port, page string) {
	n.t.Helper()
	waitFor(n.t, 5*time.Second, "an answer for "+page, func() (string, bool) {
		code, body, err := httpGet("http://" + pod.Status.PodIP + ":" + port + page)
		return fmt.Sprint(code, body, err), err == nil && code == http.StatusOK
	})
}

// instance returns the newest container with that name.
func (n *node) instance(pod *corev1.Pod, name string) instance {
	n.t.Helper()
	labels := podLabels(pod)
	labels[labelContainerName] = name
	found := bed.instances(n.t, labels)
	require.NotEmpty(n.t, found)
	return found[len(found)-1]
}

// initStatus returns the status of one init container.
func initStatus(t *testing.T, pod *corev1.Pod, name string) corev1.ContainerStatus {
	t.Helper()
	for _, c := range pod.Status.InitContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("pod %s has no status of init container %s", pod.Name, name)
	return corev1.ContainerStatus{}
}
