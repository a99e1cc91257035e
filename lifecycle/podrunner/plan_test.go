package podrunner_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestPlan reads situations from testdata/plan. A case is
//
//	plan policy=Never [hostnetwork]
//	spec init fetch                   an init container of the spec
//	spec app [never|onfailure|always] a container, with a policy of its own, and
//	         [restart-on 42]          a rule for an exit code; the same for init ones
//	sandbox 1 notready                newest first; "noip", "hostnetwork" as words
//	app 2 exited 137 [in 0] [old]     restart count, state, code; in an older sandbox;
//	                                  made from an older definition
//	backoff app 20s                   what the back-off says of it, or of "sandbox"
func TestPlan(t *testing.T) {
	datadriven.Walk(t, "testdata/plan", func(t *testing.T, path string) {
		t.Helper()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "plan", d.Cmd)
			s := newSituation(t, d)
			return podrunner.Plan(podrunner.Input{Pod: s.pod, Status: s.status, Backoff: s.until}).String()
		})
	})
}

// situation is a pod, what the runtime shows of it, and who backs off.
type situation struct {
	pod     *corev1.Pod
	status  *podcache.Status
	backoff map[string]time.Duration
}

func newSituation(t *testing.T, d *datadriven.TestData) *situation {
	t.Helper()
	s := &situation{
		pod:     testPod(),
		status:  &podcache.Status{UID: "uid", SandboxOf: map[string]string{}},
		backoff: map[string]time.Duration{},
	}
	if d.HasArg("policy") {
		var policy string
		d.ScanArgs(t, "policy", &policy)
		s.pod.Spec.RestartPolicy = corev1.RestartPolicy(policy)
	}
	s.pod.Spec.HostNetwork = d.HasArg("hostnetwork")
	for line := range strings.Lines(d.Input) {
		words := strings.Fields(line)
		switch words[0] {
		case "spec":
			s.addSpec(words[1:])
		case "sandbox":
			s.addSandbox(t, words[1:])
		case "backoff":
			delay, err := time.ParseDuration(words[2])
			require.NoError(t, err)
			s.backoff[words[1]] = delay
		default:
			s.addContainer(t, words)
		}
	}
	podcache.SortContainers(s.status.Containers)
	return s
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: "ns", UID: "uid"},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways},
	}
}

func (s *situation) addSpec(words []string) {
	list := &s.pod.Spec.Containers
	if words[0] == "init" {
		list, words = &s.pod.Spec.InitContainers, words[1:]
	}
	c := corev1.Container{Name: words[0], Image: "image"}
	policies := map[string]corev1.ContainerRestartPolicy{
		"never": corev1.ContainerRestartPolicyNever, "onfailure": corev1.ContainerRestartPolicyOnFailure, "always": corev1.ContainerRestartPolicyAlways,
	}
	if len(words) > 1 {
		c.RestartPolicy = new(policies[words[1]])
	}
	if len(words) > 3 && words[2] == "restart-on" {
		var code int32
		_, _ = fmt.Sscan(words[3], &code) // no code is code 0
		c.RestartPolicyRules = []corev1.ContainerRestartRule{{
			Action: corev1.ContainerRestartRuleActionRestart,
			ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{
				Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code},
			},
		}}
	}
	*list = append(*list, c)
}

func (s *situation) addSandbox(t *testing.T, words []string) {
	t.Helper()
	attempt, err := strconv.ParseUint(words[0], 10, 32)
	require.NoError(t, err)
	box := &runtimeapi.PodSandboxStatus{
		Id:       "box" + words[0],
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Attempt: uint32(attempt)},
		Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_POD},
		}},
	}
	for _, w := range words[1:] {
		switch w {
		case "ready":
		case "notready":
			box.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		case "noip":
			box.Network.Ip = ""
		case "hostnetwork":
			box.Network.Ip = ""
			box.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
		default:
			t.Fatalf("unknown word %q", w)
		}
	}
	s.status.Sandboxes = append(s.status.Sandboxes, box)
}

func (s *situation) addContainer(t *testing.T, words []string) {
	t.Helper()
	name, count := words[0], words[1]
	c := &runtimeapi.ContainerStatus{
		Id:          name + count,
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Labels:      map[string]string{crilabels.ContainerName: name},
		Annotations: map[string]string{crilabels.RestartCount: count},
		FinishedAt:  int64(time.Minute),
	}
	for spec := range podspec.Containers(&s.pod.Spec) {
		if spec.Name == name {
			c.Annotations[crilabels.Hash] = podspec.ContainerHash(spec)
		}
	}
	box := "none"
	if len(s.status.Sandboxes) > 0 {
		box = s.status.Sandboxes[0].GetId()
	}
	for i := 2; i < len(words); i++ {
		switch words[i] {
		case "created":
		case "running":
			c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		case "unknown":
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		case "weird":
			c.State = 17
		case "exited":
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			i++
			_, err := fmt.Sscan(words[i], &c.ExitCode)
			require.NoError(t, err)
		case "in":
			i++
			box = "box" + words[i]
		case "old":
			c.Annotations[crilabels.Hash] = "another"
		case "nohash":
			delete(c.Annotations, crilabels.Hash)
		default:
			t.Fatalf("unknown word %q", words[i])
		}
	}
	s.status.SandboxOf[c.Id] = box
	s.status.Containers = append(s.status.Containers, c)
}

func (s *situation) until(key string, since time.Time) (time.Time, time.Duration, bool) {
	name := strings.Split(key, "/")[1]
	delay, ok := s.backoff[name]
	return since.Add(delay), delay, ok
}
