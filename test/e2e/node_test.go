//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// startTimeout is how long the start of a pod may take on a machine that runs other tests.
// The tests print the duration.
const startTimeout = time.Minute

// node is one test's part of the bed: an agent name, the agent's directories, and the agent,
// if it is running.
type node struct {
	t    *testing.T
	name string // of the agent
	// hostname is the --node-name, and the suffix of the pods' names. Each node has a
	// different hostname: the runtime rejects a second pod with the same name and UID.
	hostname        string
	manifests, root string
	output          *output // output of all agents of this node
	agent           *agent
}

// newNode creates a node without an agent. At the end of the test, the agent is stopped, the
// node's pods are removed, and the foreign pods are checked.
func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	n := &node{
		t: t, name: strings.ReplaceAll(t.Name(), "/", "."), hostname: fmt.Sprintf("e2e-%d", bed.nodes.Add(1)),
		manifests: filepath.Join(dir, "manifests"), root: filepath.Join(dir, "root"), output: &output{},
	}
	n.name = n.name[:min(len(n.name), 63)] // a label value has at most 63 characters
	require.NoError(t, os.Mkdir(n.manifests, 0o755))
	t.Cleanup(n.close)
	return n
}

func (n *node) close() {
	if n.t.Failed() {
		n.t.Logf("output of the agent:\n%s", n.output)
		if why, ok := reasons.Load(n.t.Name()); ok {
			n.t.Log(why)
		}
	}
	defer n.unmountAll()
	// Each action has a separate defer, so that the pods are removed even if the agent does not
	// stop. They are removed after the agent has stopped, because the CNI plugins fail if two
	// clients stop one sandbox at the same time.
	defer func() { bed.clear(n.t, map[string]string{labelAgent: n.name}) }()
	switch {
	case n.agent == nil:
	case !n.agent.over():
		defer n.agent.stop(n.t)
	case !n.agent.awaited.Load():
		n.t.Errorf("the agent exited by itself: %v", n.agent.err)
	}
	requireForeignUntouched(n.t)
}

// clear removes the pods that a test has left. A container whose start was interrupted by the
// kill of its agent cannot be removed immediately.
func (b *testbed) clear(t *testing.T, labels map[string]string) {
	t.Helper()
	why, removed := poll(startTimeout, func() (string, bool) {
		err := b.removeSandboxes(labels)
		return fmt.Sprint(err), err == nil
	})
	if !removed {
		t.Errorf("could not remove the pods of the test: %s", why)
	}
}

// requireForeignUntouched fails the test if a foreign pod has changed.
func requireForeignUntouched(t *testing.T) {
	t.Helper()
	for _, f := range bed.foreign {
		now, err := f.look(bed)
		require.NoError(t, err, "foreign pod %s", f.before.Sandbox)
		require.Equal(t, f.before, now, "a foreign pod was changed")
	}
}

// flags returns the agent's flags, so that a second agent can be started in the same way.
func (n *node) flags(addr string, extra ...string) []string {
	return append([]string{
		"--cri-endpoint", bed.endpoint, "--manifests", n.manifests, "--listen", addr,
		"--node-name", n.hostname, "--root-dir", n.root, "--agent-name", n.name,
		"--max-pods", "500", "--eviction-hard=", // only tests of evictions depend on the disk usage of this machine
	}, extra...)
}

// start starts an agent and waits until it responds.
func (n *node) start(extra ...string) *agent {
	n.t.Helper()
	addr := freeAddr(n.t)
	a, err := startAgent(addr, n.output, n.flags(addr, extra...)...)
	require.NoError(n.t, err)
	n.agent = a
	waitFor(n.t, 15*time.Second, "the agent to answer", func() (string, bool) {
		_, body, err := a.get("/healthz")
		return fmt.Sprint(body, err), err == nil || a.over()
	})
	require.False(n.t, a.over(), "the agent exited during its start: %v", a.err)
	return a
}

// write writes a manifest into the directory atomically.
func (n *node) write(file, text string) {
	n.t.Helper()
	beside := filepath.Join(filepath.Dir(n.manifests), file)
	require.NoError(n.t, os.WriteFile(beside, []byte(text), 0o600))
	require.NoError(n.t, os.Rename(beside, filepath.Join(n.manifests, file)))
}

// remove removes a manifest.
func (n *node) remove(file string) {
	n.t.Helper()
	require.NoError(n.t, os.Remove(filepath.Join(n.manifests, file)))
}

// waitPod waits until the agent reports the pod of a manifest in a state that accept accepts.
func (n *node) waitPod(timeout time.Duration, name, what string, accept func(*corev1.Pod) bool) *corev1.Pod {
	n.t.Helper()
	var found *corev1.Pod
	waitFor(n.t, timeout, "pod "+name+" "+what, func() (string, bool) {
		pods, err := n.agent.pods()
		if err != nil {
			return err.Error(), false
		}
		for i := range pods {
			if pods[i].Name == name+"-"+n.hostname && accept(&pods[i]) {
				found = &pods[i]
				return "", true
			}
		}
		return describe(pods), false
	})
	return found
}

// waitRunning waits until all containers of the pod are running.
func (n *node) waitRunning(name string) *corev1.Pod {
	n.t.Helper()
	return n.waitPod(startTimeout, name, "to run", running)
}

// waitGone waits until the agent no longer reports the pod.
func (n *node) waitGone(timeout time.Duration, name string) {
	n.t.Helper()
	waitFor(n.t, timeout, "pod "+name+" to be gone", func() (string, bool) {
		pods, err := n.agent.pods()
		if err != nil {
			return err.Error(), false
		}
		for i := range pods {
			if pods[i].Name == name+"-"+n.hostname {
				return describe(pods), false
			}
		}
		return "", true
	})
}

// running reports whether all containers of a pod are running.
func running(pod *corev1.Pod) bool {
	statuses := pod.Status.ContainerStatuses
	if pod.Status.Phase != corev1.PodRunning || len(statuses) != len(pod.Spec.Containers) {
		return false
	}
	for i := range statuses {
		if statuses[i].State.Running == nil {
			return false
		}
	}
	return true
}

// describe prints pods for the report of a failed wait.
func describe(pods []corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pods", len(pods))
	for i := range pods {
		st := &pods[i].Status
		fmt.Fprintf(&b, "; %s %s %s", pods[i].Name, st.Phase, st.Reason)
		for _, c := range append(st.InitContainerStatuses, st.ContainerStatuses...) {
			state := "no state"
			switch {
			case c.State.Running != nil:
				state = "running"
			case c.State.Waiting != nil:
				state = "waiting " + c.State.Waiting.Reason + " " + c.State.Waiting.Message
			case c.State.Terminated != nil:
				state = fmt.Sprintf("terminated %d %s", c.State.Terminated.ExitCode, c.State.Terminated.Reason)
			}
			fmt.Fprintf(&b, ", %s #%d %s", c.Name, c.RestartCount, state)
		}
	}
	return b.String()
}

// containerStatus returns the status of one regular container.
func containerStatus(t *testing.T, pod *corev1.Pod, name string) corev1.ContainerStatus {
	t.Helper()
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("pod %s has no status of container %s", pod.Name, name)
	return corev1.ContainerStatus{}
}
