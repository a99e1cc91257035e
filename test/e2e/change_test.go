//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestManifestChange_WithoutUIDReplacesPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const text = `
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: kubeparts.test/testserver:1
    args: [serve, -term-delay, 1s]
    env: [{name: VERSION, value: one}]
`
	n.write("web.yaml", text)
	n.start()
	pod := n.waitRunning("web")
	requireEnv(t, pod, "VERSION=one")
	old := bed.traces(t, pod)
	oldPid := bed.pid(t, bed.instances(t, podLabels(pod))[0].ID)

	n.write("web.yaml", strings.ReplaceAll(text, "value: one", "value: two"))
	var lastAlive time.Time
	next := n.waitPod(startTimeout, "web", "to run with another UID", func(now *corev1.Pod) bool {
		if look := time.Now(); alive(oldPid) {
			lastAlive = look
		}
		return now.UID != pod.UID && running(now)
	})
	requireEnv(t, next, "VERSION=two")
	found := bed.instances(t, podLabels(next))
	require.Len(t, found, 1)
	require.True(t, found[0].Started.After(lastAlive), "the new pod started while the old pod was still running")
	require.Equal(t, "0", found[0].Restarts)
	bed.requireGone(t, old)
}

func TestManifestChange_WithUIDRecreatesOnlyChangedContainer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const text = `
apiVersion: v1
kind: Pod
metadata:
  name: pair
  uid: 6f1de7a3-0d0f-4c0c-9a2b-5b1f0a7c2d11
spec:
  containers:
  - name: changed
    image: kubeparts.test/testserver:1
    env: [{name: VERSION, value: one}]
  - name: same
    image: kubeparts.test/testserver:1
    args: [sleep, "3600"]
`
	n.write("pair.yaml", text)
	n.start()
	pod := n.waitRunning("pair")
	require.Equal(t, "6f1de7a3-0d0f-4c0c-9a2b-5b1f0a7c2d11", string(pod.UID))
	old := map[string]instance{}
	for _, i := range bed.instances(t, podLabels(pod)) {
		old[i.Name] = i
	}

	n.write("pair.yaml", strings.ReplaceAll(text, "value: one", "value: two"))
	next := n.waitNextInstance(pod, "changed", old["changed"].ID)
	require.Equal(t, old["changed"].Sandbox, next.Sandbox)
	require.Equal(t, "1", next.Restarts)
	now := n.waitPod(startTimeout, "pair", "to show the new container", func(pod *corev1.Pod) bool {
		return running(pod) && firstStatus(pod).RestartCount == 1
	})
	requireEnv(t, now, "VERSION=two")
	require.Equal(t, pod.UID, now.UID)
	require.Equal(t, "containerd://"+old["same"].ID, containerStatus(t, now, "same").ContainerID)
	require.Zero(t, containerStatus(t, now, "same").RestartCount)
}

func TestManifestRemoval_TerminatesPodAndLeavesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("drain.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: drain
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - {name: drain, image: kubeparts.test/testserver:1, args: [serve, -term-delay, 1500ms]}
`)
	n.start()
	pod := n.waitRunning("drain")
	was := bed.traces(t, pod)
	log := n.openLog(pod, "drain")
	pid := bed.pid(t, bed.instances(t, podLabels(pod))[0].ID)
	n.tell(pod, "/") // a signal before the handler is installed kills the process at once

	begin := time.Now()
	n.remove("drain.yaml")
	waitFor(t, 20*time.Second, "the process to exit", func() (string, bool) { return "the process runs", !alive(pid) })
	ended := time.Since(begin)
	n.waitGone(20*time.Second, "drain")
	bed.requireGone(t, was)
	t.Logf("from the removal of the manifest: process exited after %v, pod removed after %v",
		ended.Round(10*time.Millisecond), time.Since(begin).Round(10*time.Millisecond))

	// The process received SIGTERM, waited, and exited by itself.
	require.NotZero(t, logTime(t, log, "signal terminated"))
	require.NotZero(t, logTime(t, log, "exit 0"))
	require.GreaterOrEqual(t, ended, 1500*time.Millisecond)
}

func TestGracePeriod_PodIgnoringSIGTERMIsKilled(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("stubborn.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: stubborn
spec:
  terminationGracePeriodSeconds: 3
  containers:
  - {name: stubborn, image: kubeparts.test/testserver:1, args: [stubborn, "3600"]}
`)
	n.start()
	pod := n.waitRunning("stubborn")
	was := bed.traces(t, pod)
	log := n.openLog(pod, "stubborn")
	pid := bed.pid(t, bed.instances(t, podLabels(pod))[0].ID)

	removed, stalled := time.Now(), stalls(t)
	n.remove("stubborn.yaml")
	ended(t, pid, 20*time.Second)
	require.GreaterOrEqual(t, time.Since(removed), 3*time.Second)
	grace := time.Since(logTime(t, log, "signal terminated"))
	t.Logf("from SIGTERM to the exit: %v", grace.Round(10*time.Millisecond))
	require.Less(t, grace-stalled(), 4500*time.Millisecond)
	n.waitGone(20*time.Second, "stubborn")
	bed.requireGone(t, was)
}

// requireEnv requests the environment from the pod over HTTP.
func requireEnv(t *testing.T, pod *corev1.Pod, variable string) {
	t.Helper()
	waitFor(t, 5*time.Second, variable, func() (string, bool) {
		code, body, err := httpGet("http://" + pod.Status.PodIP + ":8080/env")
		return fmt.Sprint(body, err), code == http.StatusOK && strings.Contains(body, variable+"\n")
	})
}

// logFile returns the path of a container's log in the kubelet's directory layout.
func (n *node) logFile(pod *corev1.Pod, container string, restarts int) string {
	dir := fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID)
	return filepath.Join(n.root, "logs/pods", dir, container, fmt.Sprintf("%d.log", restarts))
}

// openLog opens the log of a container's first run. The open file can still be read after the
// pod and its log have been removed.
func (n *node) openLog(pod *corev1.Pod, container string) *os.File {
	n.t.Helper()
	f, err := os.Open(n.logFile(pod, container, 0))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, f.Close()) })
	return f
}

// logTime returns the time of the log line with the words, and fails the test if no line has
// the words. It waits, because the runtime may still write the output of an exited process.
func logTime(t *testing.T, log *os.File, words string) (at time.Time) {
	t.Helper()
	waitFor(t, 5*time.Second, "the log to contain "+words, func() (string, bool) {
		_, err := log.Seek(0, io.SeekStart)
		require.NoError(t, err)
		data, err := io.ReadAll(log)
		require.NoError(t, err)
		at, err = timeOf(string(data), words)
		return fmt.Sprintf("%v\n%s", err, data), err == nil
	})
	return at
}

// timeOf returns the time of the first line with the words. A line is
// "2006-01-02T15:04:05.999999999Z stdout F the words".
func timeOf(log, words string) (time.Time, error) {
	for line := range strings.Lines(log) {
		if stamp, rest, _ := strings.Cut(line, " "); strings.Contains(rest, words) {
			return time.Parse(time.RFC3339Nano, stamp)
		}
	}
	return time.Time{}, errors.New("no such line")
}
