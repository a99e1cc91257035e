//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestOOMKills_AgentRecordsOneEventAcrossRestarts checks the agent's status, its event and that the event
// is not repeated after a restart.
func TestOOMKills_AgentRecordsOneEventAcrossRestarts(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.start()
	n.write("hungry.yaml", `
apiVersion: v1
kind: Pod
metadata:
  name: hungry
spec:
  restartPolicy: Never
  containers:
  - {name: hog, image: kubeparts.test/testserver:1, args: [hog], resources: {limits: {memory: 32Mi}}}
`)
	pod := n.waitPod(startTimeout, "hungry", "to fail", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
	ended := containerStatus(t, pod, "hog").State.Terminated
	require.NotNil(t, ended)
	require.Equal(t, "OOMKilled", ended.Reason)
	require.EqualValues(t, 137, ended.ExitCode)
	told := "default/" + pod.Name + " OOMKilled: Container hog reached its memory limit, killed process: testserver, pid: "
	began := time.Now()
	waitFor(t, startTimeout, "the event of the OOM kill", func() (string, bool) { return n.output.String(), n.output.linesWith(told) == 1 })
	t.Logf("the event was recorded %v after the status", time.Since(began).Round(10*time.Millisecond))
	n.agent.stop(t)
	require.FileExists(t, n.root+"/oom-position.json")
	n.start()
	stays(t, 5*time.Second, "the agent reports the OOM kill once", func() (string, bool) {
		return n.output.String(), n.output.linesWith(told) == 1
	})
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	require.NoError(t, err)
	position, err := os.ReadFile(n.root + "/oom-position.json")
	require.NoError(t, err)
	require.Contains(t, string(position), strings.TrimSpace(string(boot)))
}
