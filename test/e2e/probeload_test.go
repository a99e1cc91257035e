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

// The load of the probes, which can be changed: on two cores 200 pods take some
// minutes to come and go.
const (
	loadPodsVar = "KUBEPARTS_E2E_PROBED_PODS" // default 60
	loadTimeVar = "KUBEPARTS_E2E_PROBED_TIME" // default 30s
)

// loadPod has three probes of three kinds of handlers, a second apart each.
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
func TestManyProbesCostLittleAndLeaveNoSockets(t *testing.T) {
	pods, err := strconv.Atoi(cmp.Or(os.Getenv(loadPodsVar), "60"))
	require.NoError(t, err)
	span, err := time.ParseDuration(cmp.Or(os.Getenv(loadTimeVar), "30s"))
	require.NoError(t, err)
	n := newNode(t)
	n.start()
	// A few at a time: the start of many takes the whole machine, and those that run
	// already would not answer their probes in time.
	const atOnce = 5
	for i := range pods {
		n.write(fmt.Sprintf("p%03d.yaml", i), strings.ReplaceAll(loadPod, "NAME", fmt.Sprintf("p%03d", i)))
		if i%atOnce == atOnce-1 || i == pods-1 {
			waitFor(t, 3*time.Minute, "all to be ready", func() (string, bool) {
				count := n.readyPods()
				return count, count == strconv.Itoa(i+1)
			})
		}
	}
	quiet := time.NewTimer(5 * time.Second) // the last that began are still being inspected
	<-quiet.C

	// On a slow machine a server may have been restarted before it listened: only later
	// restarts count.
	restarts := n.restarts()
	cpu, waiting := n.agent.cpu(t), timeWaits(t)
	began := time.Now()
	// Not by stays: it would ask so often that the answers were most of the cost.
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for time.Since(began) < span {
		<-look.C
		require.Equal(t, fmt.Sprint(pods), n.readyPods(), "all are ready")
	}
	took := time.Since(began)
	used := n.agent.cpu(t) - cpu
	left := timeWaits(t) - waiting
	t.Logf("%d pods × 3 probes at 1 s for %v: the agent used %.1f %% of a core, %d sockets more in TIME_WAIT",
		pods, took.Round(time.Second), 100*used.Seconds()/took.Seconds(), left)
	figure(t, "probe-load", 100*used.Seconds()/took.Seconds(), "%", 0)
	require.Less(t, left, 20)
	require.Equal(t, restarts, n.restarts(), "restarts of each pod's containers")
	// A machine that is busy otherwise may be too slow now and then, but not thrice.
	t.Logf("%d reports of a run that failed", n.output.linesWith("Unhealthy"))
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

// readyPods counts them.
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

// cpu returns what the process has used so far.
func (a *agent) cpu(t *testing.T) time.Duration {
	t.Helper()
	return cpuOf(t, a.cmd.Process.Pid)
}

// cpuOf returns the processor time that a process has used.
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

// timeWaits counts the sockets in TIME_WAIT whose other end is a pod of the bed.
func timeWaits(t *testing.T) (count int) {
	t.Helper()
	const timeWait, pods = "06", "580A:" // 10.88.0.0/16, the last byte first
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
