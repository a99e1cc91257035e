//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// rewriteVar makes the tests rewrite testdata/lives. Read the diff, and mark lines again with
// a ? if their state may be too short to be observed.
const rewriteVar = "KUBEPARTS_E2E_REWRITE"

// TestPodStatus_MatchesTestdataAtEachStep compares the pod's statuses from its start to its
// end with testdata/lives: the statuses in /pods and, after the manifest was removed, the
// statuses in the pod's status file.
func TestPodStatus_MatchesTestdataAtEachStep(t *testing.T) {
	t.Parallel()
	container := func(args string) string {
		return "  - {name: main, image: \"kubeparts.test/testserver:1\", args: [" + args + "]}\n"
	}
	for name, life := range map[string]struct {
		spec  string
		steer func(n *node, name string)
	}{
		// Pending, initializing, running, ready, unready, ready, terminating, ended.
		"serves": {
			spec: `  initContainers:
  - {name: first, image: "kubeparts.test/testserver:1", args: [sleep, "8"]}
  - {name: side, image: "kubeparts.test/testserver:1", restartPolicy: Always, args: [serve, -http, ":8081", -unhealthy],
     startupProbe: {httpGet: {port: 8081, path: /healthz}, periodSeconds: 1, failureThreshold: 60}}
  containers:
  - {name: main, image: "kubeparts.test/testserver:1", args: [serve, -unhealthy, -term-delay, 2s],
     readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1, timeoutSeconds: 5, failureThreshold: 1}}
`,
			steer: func(n *node, name string) {
				pod := n.waitPod(startTimeout, name, "to have its sidecar running", func(pod *corev1.Pod) bool {
					return len(pod.Status.InitContainerStatuses) == 2 && pod.Status.InitContainerStatuses[1].State.Running != nil && pod.Status.PodIP != ""
				})
				// After the failed probe, the test waits a second for the consequences.
				n.waitUnhealthy("initContainers{side}")
				n.tellPort(pod, "8081", "/healthz/ok")
				n.waitRunning(name)
				was := bed.traces(n.t, pod)
				n.waitUnhealthy("containers{main}")
				n.tell(pod, "/healthz/ok")
				n.waitReady(name)
				n.tell(pod, "/healthz/fail")
				n.waitPod(startTimeout, name, "to be not ready", func(pod *corev1.Pod) bool { return !ready(pod) })
				n.tell(pod, "/healthz/ok")
				n.waitReady(name)
				file := filepath.Join(n.root, "statuses", string(pod.UID)+".json")
				waitFor(n.t, startTimeout, "the state to be saved", func() (string, bool) {
					pod := saved(file)
					return fmt.Sprint(pod), pod != nil && ready(pod)
				})
				n.remove(name + ".yaml")
				bed.requireGone(n.t, was)
				waitFor(n.t, startTimeout, "the agent to report this", func() (string, bool) {
					_, end, _ := strings.Cut(n.output.String(), "main=Completed(0)") // the status file does not contain it for long
					return n.output.String(), strings.Contains(end, name+"-"+n.hostname+" removed")
				})
			},
		},
		"crashes": {
			spec: "  containers:\n" + container(`exit, "3", "8"`),
			steer: func(n *node, name string) {
				n.waitPod(startTimeout, name, "to back off", func(pod *corev1.Pod) bool {
					return backoff(pod) == "10s" && firstStatus(pod).RestartCount == 1
				})
			},
		},
		"succeeds": {
			spec:  "  restartPolicy: Never\n  containers:\n" + container(`exit, "0", "8"`),
			steer: func(n *node, name string) { n.waitOver(name, corev1.PodSucceeded) },
		},
		"fails": {
			spec:  "  restartPolicy: Never\n  containers:\n" + container(`exit, "3", "8"`),
			steer: func(n *node, name string) { n.waitOver(name, corev1.PodFailed) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			// The runtime creates the sandbox when the test has observed the pod's containers.
			// Otherwise the first status may be too short to be observed.
			observed := make(chan struct{})
			p := startProxyTo(t, bed.endpoint, func(method string, _ []byte) (func(), error) {
				if method == "RunPodSandbox" {
					select {
					case <-observed:
					case <-t.Context().Done():
					}
				}
				return func() {}, nil
			})
			n.start("--cri-endpoint", p.endpoint)
			seen := n.watchLife(name, observed)
			n.write(name+".yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: "+name+"}\nspec:\n"+life.spec)
			life.steer(n, name)
			requireLife(t, filepath.Join("testdata/lives", name+".txt"), seen())
		})
	}
}

// waitOver waits until the pod has this terminal phase and its sandbox is removed.
func (n *node) waitOver(name string, phase corev1.PodPhase) {
	n.t.Helper()
	n.waitPod(startTimeout, name, "to have ended as "+string(phase), func(pod *corev1.Pod) bool {
		return pod.Status.Phase == phase && conditionStatus(pod, corev1.PodReadyToStartContainers) == corev1.ConditionFalse
	})
}

// waitUnhealthy waits until a probe of the container fails. container is a field path in the
// spec.
func (n *node) waitUnhealthy(container string) {
	n.t.Helper()
	waitFor(n.t, startTimeout, "a probe of "+container+" to fail", func() (string, bool) {
		return "", n.output.linesWith(" Unhealthy spec."+container+": ") > 0
	})
}

// watchLife collects the pod's statuses until the returned function is called. It closes
// observed when it has observed the status of a container.
func (n *node) watchLife(name string, observed chan<- struct{}) (stop func() []string) {
	const period = 10 * time.Millisecond
	var (
		watcher sync.WaitGroup
		seen    []string
		file    string
		once    sync.Once
	)
	done := make(chan struct{})
	look := func() {
		line := ""
		if pod := n.shown(name); pod != nil {
			file = filepath.Join(n.root, "statuses", string(pod.UID)+".json")
			line = sentence(pod)
			if len(pod.Status.ContainerStatuses) > 0 {
				once.Do(func() { close(observed) })
			}
		} else if pod := saved(file); pod != nil {
			line = "(not desired) " + sentence(pod)
		}
		if line != "" && (len(seen) == 0 || seen[len(seen)-1] != line) {
			seen = append(seen, line)
		}
	}
	watcher.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			look()
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	return func() []string {
		close(done)
		watcher.Wait()
		look()
		return seen
	}
}

// shown returns the pod as the agent reports it, or nil if it does not report it.
func (n *node) shown(name string) *corev1.Pod {
	pods, err := n.agent.pods()
	if err != nil {
		return nil
	}
	for i := range pods {
		if pods[i].Name == name+"-"+n.hostname {
			return &pods[i]
		}
	}
	return nil
}

// saved reads a status file. It returns nil if the file does not exist.
func saved(file string) *corev1.Pod {
	var pod corev1.Pod
	data, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(data, &pod) != nil {
		return nil
	}
	return &pod
}

// sentence prints a status in one line, without parts that differ between runs.
func sentence(pod *corev1.Pod) string {
	var b strings.Builder
	st := &pod.Status
	fmt.Fprintf(&b, "%s", st.Phase)
	for _, c := range append(slices.Clone(st.InitContainerStatuses), st.ContainerStatuses...) {
		fmt.Fprintf(&b, " | %s %s", c.Name, stateWord(c.State))
		if c.Started != nil && *c.Started {
			b.WriteString(" started")
		}
		if c.Ready {
			b.WriteString(" ready")
		}
		if c.RestartCount > 0 {
			fmt.Fprintf(&b, " #%d", c.RestartCount)
		}
		if last := stateWord(c.LastTerminationState); last != "" {
			b.WriteString(" after " + last)
		}
	}
	b.WriteString(" |")
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		if conditionStatus(pod, kind) != corev1.ConditionTrue {
			kind = "!" + kind
		}
		fmt.Fprintf(&b, " %s", kind)
	}
	return b.String()
}

func stateWord(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "Running"
	case s.Waiting != nil:
		return s.Waiting.Reason
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d)", s.Terminated.Reason, s.Terminated.ExitCode)
	default:
		return ""
	}
}

// requireLife compares the observed statuses with a file. A line that begins with ? need not
// occur, because its state is very short. Every other line must occur. Statuses that are not
// in the file may occur only at a line "...".
func requireLife(t *testing.T, file string, seen []string) {
	t.Helper()
	if os.Getenv(rewriteVar) != "" {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(seen, "\n")+"\n"), 0o600))
		return
	}
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	rest := seen
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		short := strings.TrimPrefix(line, "? ")
		switch {
		case strings.HasPrefix(line, "#"):
		case line == "...":
			return
		case len(rest) > 0 && rest[0] == short:
			rest = rest[1:]
		case short == line:
			t.Fatalf("%s: this status did not occur: %s\nobserved:\n%s", file, line, strings.Join(seen, "\n"))
		}
	}
	require.Empty(t, rest, "%s: unexpected statuses; all observed:\n%s", file, strings.Join(seen, "\n"))
}

// TestPodStatus_UnchangedByAgentRestart compares whole statuses, including times, of three pods:
// a pod that is ready and has every kind of probe, a pod that is not ready, and a pod that has
// not started. The statuses must be the same from before an agent's end to long after the start
// of the next agent.
func TestPodStatus_UnchangedByAgentRestart(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.start()
			n.write("probed.yaml", probed)
			n.write("others.yaml", `
apiVersion: v1
kind: Pod
metadata: {name: others}
spec:
  containers:
  - {name: unready, image: "kubeparts.test/testserver:1", args: [serve, -unhealthy],
     readinessProbe: {httpGet: {port: 8080, path: /healthz}, periodSeconds: 1}}
  - {name: unstarted, image: "kubeparts.test/testserver:1", args: [serve, -unhealthy, -http, ":8081"],
     startupProbe: {httpGet: {port: 8081, path: /healthz}, periodSeconds: 1, failureThreshold: 600}}
  - {name: lived, image: "kubeparts.test/testserver:1", args: [serve, -http, ":8082"],
     livenessProbe: {httpGet: {port: 8082, path: /healthz}, periodSeconds: 1, failureThreshold: 6}} # time to listen
`)
			n.waitReady("probed")
			others := n.waitRunning("others")
			n.tellPort(others, "8082", "/healthz/fail")
			n.waitPod(startTimeout, "others", "to have restarted one container", func(pod *corev1.Pod) bool {
				st := containerStatus(t, pod, "lived")
				return st.RestartCount == 1 && st.Ready
			})
			settle := time.NewTimer(2 * time.Second)
			<-settle.C
			before := n.statuses()
			if how == "stopped" {
				n.agent.stop(t)
			} else {
				n.agent.kill(t)
			}
			n.start()
			all := false
			stays(t, 13*time.Second, "the statuses are those of before the restart", func() (string, bool) {
				now := n.statuses()
				all = all || now == before
				// The agent loads the manifests one by one, in this order.
				return before + "\n\nnow:\n" + now, now == before || !all && strings.HasPrefix(before, now)
			})
			require.Equal(t, before, n.statuses())
		})
	}
}

// statuses returns the complete statuses of all pods, or "" before the manifests were read.
func (n *node) statuses() string {
	n.t.Helper()
	pods, err := n.agent.pods()
	require.NoError(n.t, err)
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var b strings.Builder
	for i := range pods {
		data, err := json.MarshalIndent(&pods[i].Status, "", " ")
		require.NoError(n.t, err)
		b.WriteString(pods[i].Name + " " + string(data) + "\n")
	}
	return b.String()
}
