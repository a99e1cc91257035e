//go:build chaos

package clusterbed_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// inChaos prepares a test that causes faults: it creates the namespace of the test, and makes the bed
// whole when the test ends.
func inChaos(t *testing.T) {
	t.Helper()
	bed.faults = true
	inNamespace(t)
	t.Cleanup(func() {
		require.NoError(t, upAgain())
		killAgent()
		require.NoError(t, startAgent(credentials()...))
		require.NoError(t, awaitNode())
	})
}

// upAgain starts the daemons of the bed that do not run.
func upAgain() error { return script("sh", "-c", "./up.sh >/dev/null 2>&1") }

// killAgent kills the agent if it runs, and waits until it has ended.
func killAgent() {
	_ = bed.agent.Process.Kill() // it may have ended already
	err := <-bed.ended
	bed.ended <- errors.Join(errors.New("the agent was killed"), err) // for the next call
}

// awaitEnd waits until the agent has ended by itself.
func awaitEnd(t *testing.T) {
	t.Helper()
	select {
	case err := <-bed.ended:
		bed.ended <- err
		require.Error(t, err)
	case <-time.After(30 * time.Second):
		require.Fail(t, "the agent has not ended")
	}
}

// deployment returns a Deployment whose containers never end by themselves.
func deployment(name string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  progressDeadlineSeconds: 3600
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "kubeparts.test/busybox:1", command: [sleep, "100000"]}]
`, name, replicas)
}

// rollOut changes the pod template of a Deployment, so that its pods are replaced.
func rollOut(t *testing.T, name string, round int) {
	t.Helper()
	run(t, "set", "env", "deployment/"+name, fmt.Sprintf("ROUND=%d", round))
}

// awaitRollOut waits until the pods of a Deployment are replaced and ready.
func awaitRollOut(t *testing.T, name string) {
	t.Helper()
	run(t, "rollout", "status", "deployment/"+name, "--timeout=240s")
}

// once returns a pod that ends with an exit code when its file exists in the shared folder.
func once(name, shared string, exitCode int) string {
	return strings.Replace(waits(name, shared, exitCode), "spec:", "spec:\n  restartPolicy: Never", 1)
}

// waits returns a pod whose container ends with an exit code when its file exists in the shared folder.
func waits(name, shared string, exitCode int) string {
	pod := shell(name, fmt.Sprintf("until test -e /shared/%s; do sleep 0.2; done; exit %d", name, exitCode))
	return strings.Replace(pod, "stdin: true", "volumeMounts: [{name: shared, mountPath: /shared}]", 1) +
		"  volumes: [{name: shared, hostPath: {path: " + shared + "}}]\n"
}

// end ends the container of a pod of once or waits.
func end(t *testing.T, name, shared string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(shared, name), nil, 0o600))
}

// crashing returns a pod whose container ends after a second, again and again.
func crashing(name string) string { return shell(name, "sleep 1; exit 3") }

// running returns whether a container of a pod runs in the runtime.
func (h *history) running(name string) bool {
	for _, c := range h.of(name) {
		if !c.started.IsZero() && c.finished.IsZero() && !c.lost {
			return true
		}
	}
	return false
}

// awaitRestart waits until the runtime has started another container of a pod.
func (h *history) awaitRestart(t *testing.T, name string) {
	t.Helper()
	before := len(h.of(name))
	awaitWithin(t, 6*time.Minute, "the container of "+name+" restarts", func() bool { return len(h.of(name)) > before })
}

// random returns a generator of the same numbers in each run.
func random() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// upTo returns a random duration.
func upTo(r *rand.Rand, limit time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(limit)))
}

// logMark returns the size of the agent's log.
func logMark(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile(bed.logs)
	require.NoError(t, err)
	return len(data)
}

// loggedSince returns how many lines of the agent's log contain a text, from a mark.
func loggedSince(t *testing.T, mark int, text string) int {
	t.Helper()
	data, err := os.ReadFile(bed.logs)
	require.NoError(t, err)
	return bytes.Count(data[mark:], []byte(text))
}

// nodeField returns a field of the node.
func nodeField(t *testing.T, path string) string {
	t.Helper()
	out, err := kubectl(t.Context(), "", "get", "node", bed.env["NODE_NAME"], "-o", "jsonpath={"+path+"}")
	require.NoError(t, err)
	return out
}

// readyStatus is the path of the status of the node's condition Ready.
const readyStatus = `.status.conditions[?(@.type=="Ready")].status`
