//go:build e2e

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// The load of the probes is configurable: on two cores 200 pods need some minutes to start
// and stop.
const (
	loadPodsVar = "KUBEPARTS_E2E_PROBED_PODS" // default 60
	loadTimeVar = "KUBEPARTS_E2E_PROBED_TIME" // default 30s
)

// loadPod has three probes with three kinds of handlers, each with a period of a second.
const loadPod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: kubeparts.test/testserver:1
    args: [serve, -grpc, ":9090"]
    readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}
    livenessProbe: {grpc: {port: 9090}, periodSeconds: 1}
  - name: other
    image: kubeparts.test/testserver:1
    args: [sleep, "3600"]
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
`

// Not parallel: it measures.
func TestManyProbes_KeepPodsReadyAndLeaveFewSockets(t *testing.T) {
	pods, err := strconv.Atoi(cmp.Or(os.Getenv(loadPodsVar), "60"))
	require.NoError(t, err)
	span, err := time.ParseDuration(cmp.Or(os.Getenv(loadTimeVar), "30s"))
	require.NoError(t, err)
	n := newNode(t)
	n.start()
	// Start a few at a time: the start of many needs the whole machine, and the running pods
	// would not respond to their probes in time.
	const atOnce = 5
	for i := range pods {
		n.write(fmt.Sprintf("p%03d.yaml", i), strings.ReplaceAll(loadPod, "NAME", fmt.Sprintf("p%03d", i)))
		if i%atOnce == atOnce-1 || i == pods-1 {
			waitFor(t, 3*time.Minute, "all pods to be ready", func() (string, bool) {
				count := n.readyPods()
				return count, count == strconv.Itoa(i+1)
			})
		}
	}
	quiet := time.NewTimer(5 * time.Second) // the last started pods are still being inspected
	<-quiet.C

	// On a slow machine a probe may have restarted a server before it listened: only later
	// restarts count.
	restarts := n.restarts()
	cpu, waiting := n.agent.cpu(t), timeWaits(t)
	began := time.Now()
	// Do not use stays: its polling would cause most of the cost.
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for time.Since(began) < span {
		<-look.C
		require.Equal(t, fmt.Sprint(pods), n.readyPods(), "all pods must be ready")
	}
	took := time.Since(began)
	used := n.agent.cpu(t) - cpu
	left := timeWaits(t) - waiting
	t.Logf("%d pods with 3 probes each, period 1 s, for %v: the agent used %.1f %% of a core, %d more sockets in TIME_WAIT",
		pods, took.Round(time.Second), 100*used.Seconds()/took.Seconds(), left)
	figure(t, "probe-load", 100*used.Seconds()/took.Seconds(), "%", 0)
	require.Less(t, left, 20)
	require.Equal(t, restarts, n.restarts(), "restarts of containers by pod")
	// A busy machine may be too slow occasionally, but not three times in a row.
	t.Logf("%d events about failed probes", n.output.linesWith("Unhealthy"))
}

// restarts returns how often containers of each pod have restarted.
func (n *node) restarts() map[string]int32 {
	n.t.Helper()
	shown, err := n.agent.pods()
	require.NoError(n.t, err)
	counts := map[string]int32{}
	for i := range shown {
		for _, st := range shown[i].Status.ContainerStatuses {
			counts[shown[i].Name] += st.RestartCount
		}
	}
	return counts
}

// readyPods returns the number of ready pods as text.
func (n *node) readyPods() string {
	shown, err := n.agent.pods()
	if err != nil {
		return err.Error()
	}
	count := 0
	for i := range shown {
		if conditionStatus(&shown[i], corev1.PodReady) == corev1.ConditionTrue {
			count++
		}
	}
	return strconv.Itoa(count)
}

// cpu returns the CPU time of the process so far.
func (a *agent) cpu(t *testing.T) time.Duration {
	t.Helper()
	return cpuOf(t, a.cmd.Process.Pid)
}

// cpuOf returns the CPU time of a process.
func cpuOf(t *testing.T, pid int) time.Duration {
	t.Helper()
	return time.Duration(statOf(t, pid).CPUTime() * float64(time.Second))
}

func statOf(t *testing.T, pid int) procfs.ProcStat {
	t.Helper()
	process, err := procfs.NewProc(pid)
	require.NoError(t, err)
	stat, err := process.Stat()
	require.NoError(t, err)
	return stat
}

// timeWaits counts the sockets in TIME_WAIT whose remote address is a pod of the bed.
func timeWaits(t *testing.T) (count int) {
	t.Helper()
	const timeWait, pods = "06", "580A:" // 10.88.0.0/16 in reverse byte order
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		for line := range strings.Lines(string(data)) {
			if fields := strings.Fields(line); len(fields) > 3 && fields[3] == timeWait && strings.Contains(fields[2], pods) {
				count++
			}
		}
	}
	return count
}
