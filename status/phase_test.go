package status_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A scene is a pod and its containers' statuses, described with words:
//
//	run         is running, and has started   init     is running, and has not started
//	wait        has never run                 none     has no status
//	exitN       has exited with N             empty    has a status without a state
//	backN       waits for its restart after exiting with N
//	restarting  was removed to restart all containers
//	gone        was removed to restart all containers, and has no status
//
// A word is a regular container, with the prefix i: a plain init container, and with s: a
// sidecar. The suffix @Policy+ruleN is its own restart policy and rule. "terminal" and "ran"
// are facts of the phase, "static" makes the pod static, and in:Policy is the pod's policy.
type scene struct {
	pod   *corev1.Pod
	s     corev1.PodStatus
	facts status.PhaseFacts
}

func parseScene(t *testing.T, policy corev1.RestartPolicy, words string) scene {
	t.Helper()
	sc := scene{pod: &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}}
	for i, word := range strings.Fields(words) {
		switch {
		case word == "terminal":
			sc.facts.Terminal = true
		case word == "ran":
			sc.facts.Initialized = true
		case word == "static":
			sc.pod.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
		case strings.HasPrefix(word, "in:"):
			sc.pod.Spec.RestartPolicy = corev1.RestartPolicy(word[len("in:"):])
		default:
			sc.add(t, "c"+strconv.Itoa(i), word)
		}
	}
	return sc
}

func (sc *scene) add(t *testing.T, name, word string) {
	t.Helper()
	c := corev1.Container{Name: name}
	prefix, state, isInit := strings.Cut(word, ":")
	if !isInit {
		state = word
	}
	if prefix == "s" {
		c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	}
	state, own, ok := strings.Cut(state, "@")
	if ok {
		policy, rule, _ := strings.Cut(own, "+")
		c.RestartPolicy = new(corev1.ContainerRestartPolicy(policy))
		c.RestartPolicyRules = rules(t, rule)
	}
	specs, list := &sc.pod.Spec.Containers, &sc.s.ContainerStatuses
	if isInit {
		specs, list = &sc.pod.Spec.InitContainers, &sc.s.InitContainerStatuses
	}
	*specs = append(*specs, c)
	if state != "none" {
		*list = append(*list, containerStatus(t, name, state))
	}
}

func rules(t *testing.T, rule string) []corev1.ContainerRestartRule {
	t.Helper()
	action := corev1.ContainerRestartRuleActionRestart
	digits, ok := strings.CutPrefix(rule, "rule")
	if !ok {
		action = corev1.ContainerRestartRuleActionRestartAllContainers
		digits = strings.TrimPrefix(rule, "all")
	}
	if digits == "" {
		return nil
	}
	return []corev1.ContainerRestartRule{{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
		Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{number(t, digits)},
	}}}
}

func number(t *testing.T, digits string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(digits, 10, 32)
	require.NoError(t, err)
	return int32(n)
}

func containerStatus(t *testing.T, name, state string) corev1.ContainerStatus {
	t.Helper()
	st := corev1.ContainerStatus{Name: name}
	waiting := &corev1.ContainerStateWaiting{Reason: status.ReasonContainerCreating}
	takenDown := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: status.ReasonRestartingAllContainers}
	switch {
	case state == "run", state == "init":
		st.State.Running = &corev1.ContainerStateRunning{}
		st.Started = new(state == "run")
	case state == "wait":
		st.State.Waiting = waiting
	case state == "restarting":
		st.State.Terminated = takenDown
	case state == "gone":
		st.State.Waiting, st.LastTerminationState.Terminated = waiting, takenDown
	case strings.HasPrefix(state, "exit"):
		st.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: number(t, state[len("exit"):])}
	case strings.HasPrefix(state, "back"):
		st.State.Waiting = waiting
		st.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: number(t, state[len("back"):])}
	default:
		require.Equal(t, "empty", state, "unknown word")
	}
	return st
}

func TestPhase(t *testing.T) {
	t.Parallel()
	for file, policy := range map[string]corev1.RestartPolicy{
		"always.txt": corev1.RestartPolicyAlways, "never.txt": corev1.RestartPolicyNever,
		"onfailure.txt": corev1.RestartPolicyOnFailure, "rules.txt": "",
	} {
		f, err := os.Open(filepath.Join("testdata", "phase", file))
		require.NoError(t, err)
		defer f.Close()
		cases := 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			line := lines.Text()
			words, rest, ok := strings.Cut(line, "=>")
			if !ok || strings.HasPrefix(line, "#") {
				continue
			}
			want, name, _ := strings.Cut(rest, "#")
			sc := parseScene(t, policy, words)
			before := sc.s.DeepCopy()
			got := status.Phase(sc.pod, &sc.s, sc.facts)
			require.Equal(t, strings.TrimSpace(want), string(got), "%s: %s:%s", file, strings.TrimSpace(words), name)
			require.Equal(t, before, &sc.s)
			cases++
		}
		require.Greater(t, cases, 10, file)
	}
}
