package describe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/internal/describe"
	"github.com/kubeparts/kubeparts/prober"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func waiting(name, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "because"}}}
}

func running(name string, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: name, Ready: ready, Started: new(true),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}},
	}
}

func ended(name string, code, signal int32, reason string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Signal: signal, Reason: reason, FinishedAt: metav1.NewTime(now),
	}}}
}

// pod returns a pod with a container for each status. The first statuses are those
// of init containers. An init container whose name begins with s is a sidecar.
func pod(phase corev1.PodPhase, inits, mains []corev1.ContainerStatus) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	for _, s := range inits {
		c := corev1.Container{Name: s.Name}
		if s.Name[0] == 's' {
			c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for _, s := range mains {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: s.Name, Image: "image"})
	}
	p.Status = corev1.PodStatus{Phase: phase, InitContainerStatuses: inits, ContainerStatuses: mains}
	return p
}

func list(s ...corev1.ContainerStatus) []corev1.ContainerStatus { return s }

func TestState_IsThatOfKubectl(t *testing.T) {
	t.Parallel()
	evicted := pod(corev1.PodFailed, nil, list(ended("a", 137, 9, "Error")))
	evicted.Status.Reason = "Evicted"
	deleted := pod(corev1.PodRunning, nil, list(running("a", true)))
	deleted.DeletionTimestamp = new(metav1.NewTime(now))
	ready := pod(corev1.PodRunning, nil, list(ended("a", 0, 0, "Completed"), running("b", true)))
	ready.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for want, p := range map[string]*corev1.Pod{
		"Pending":               pod("", nil, nil),
		"Running":               pod(corev1.PodRunning, nil, list(running("a", true))),
		"CrashLoopBackOff":      pod(corev1.PodRunning, nil, list(waiting("a", "CrashLoopBackOff"), running("b", true))),
		"ContainerCreating":     pod(corev1.PodPending, nil, list(waiting("a", "ContainerCreating"))),
		"Completed":             pod(corev1.PodSucceeded, nil, list(ended("a", 0, 0, "Completed"))),
		"OOMKilled":             pod(corev1.PodFailed, nil, list(ended("a", 137, 0, "OOMKilled"))),
		"ExitCode:3":            pod(corev1.PodFailed, nil, list(ended("a", 3, 0, ""))),
		"Signal:9":              pod(corev1.PodFailed, nil, list(ended("a", 137, 9, ""))),
		"NotReady":              pod(corev1.PodRunning, nil, list(ended("a", 0, 0, "Completed"), running("b", true))),
		"Init:0/2":              pod(corev1.PodPending, list(running("i", false), waiting("j", "PodInitializing")), list(waiting("a", "PodInitializing"))),
		"Init:1/2":              pod(corev1.PodPending, list(ended("i", 0, 0, "Completed"), running("j", false)), list(waiting("a", "PodInitializing"))),
		"Init:Error":            pod(corev1.PodPending, list(ended("i", 1, 0, "Error")), list(waiting("a", "PodInitializing"))),
		"Init:ImagePullBackOff": pod(corev1.PodPending, list(running("s", true), waiting("i", "ImagePullBackOff")), list(waiting("a", "PodInitializing"))),
		"Evicted":               evicted,
		"Terminating":           deleted,
	} {
		require.Equal(t, want, describe.State(p, false), want)
	}
	require.Equal(t, "Running", describe.State(ready, false))
	require.Equal(t, "Running", describe.State(pod(corev1.PodRunning, list(ended("i", 0, 0, "Completed"), running("s", true)), list(running("a", true))), false))
	require.Equal(t, "Terminating", describe.State(pod(corev1.PodRunning, nil, list(running("a", true))), true))
	require.Equal(t, "Completed", describe.State(pod(corev1.PodSucceeded, nil, list(ended("a", 0, 0, "Completed"))), true))
}

func TestPod_ListsContainersInStartOrder(t *testing.T) {
	t.Parallel()
	crashed := waiting("a", "CrashLoopBackOff")
	crashed.RestartCount = 3
	crashed.LastTerminationState = ended("a", 1, 0, "Error").State
	p := pod(corev1.PodRunning, list(ended("i", 0, 0, "Completed"), running("s", true)), list(crashed, running("b", true)))
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}}
	p.Status.PodIP = "10.0.0.1"
	got := describe.Pod(describe.Facts{
		Pod: p, Containers: map[string]api.Usage{"b": {MemoryBytes: 7}},
		Probes: []agent.Probe{{Container: "b", Kind: prober.Liveness, Spec: &corev1.Probe{}, Result: prober.Success, Runs: []prober.Record{
			{At: now, Duration: 1500 * time.Microsecond, Output: "fine"},
		}}},
	})
	require.Equal(t, api.Pod{
		Namespace: "ns", Name: "p", UID: "u", Phase: corev1.PodRunning, State: "CrashLoopBackOff", Ready: 2, Restarts: 3, IP: "10.0.0.1",
		Containers: []api.Container{
			{Name: "i", Kind: "init", State: "Completed", Since: &now, ExitCode: new(int32(0))},
			{Name: "s", Kind: "sidecar", State: "running", Since: &now, Ready: true},
			{Name: "a", Kind: "main", Image: "image", State: "CrashLoopBackOff", Since: &now, ExitCode: new(int32(1)), Restarts: 3},
			{Name: "b", Kind: "main", Image: "image", State: "running", Since: &now, Ready: true, Usage: &api.Usage{MemoryBytes: 7}, Probes: []api.Probe{
				{Kind: "liveness", Result: "success", Time: &now, DurationMS: 1.5, Output: "fine"},
			}},
			{Name: "e", Kind: "ephemeral", State: "waiting"},
		},
	}, got)
	require.Equal(t, []string{"i", "s", "a", "b", "e"}, describe.Containers(p))
	require.Equal(t, "s", describe.ContainerStatus(p, "s").Name)
	require.Nil(t, describe.ContainerStatus(p, "e"))
	empty := describe.Pod(describe.Facts{Pod: &corev1.Pod{}})
	require.Equal(t, corev1.PodPending, empty.Phase)
	require.NotNil(t, empty.Containers, "JSON lists must not be null")
}
