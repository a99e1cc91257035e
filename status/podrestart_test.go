package status_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/podcache"
	"github.com/kubeparts/kubeparts/status"
)

// exitedIn returns an exited container.
func exitedIn(name, id string, code int32) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: name}, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: 1, StartedAt: 2, FinishedAt: 3, ExitCode: code, Labels: map[string]string{"io.kubernetes.container.name": name},
	}
}

// After a requested restart, the exits of the old containers are not final with any restart
// policy, and the status may become running again.
func TestGenerate_RequestedRestart(t *testing.T) {
	t.Parallel()
	for policy, codes := range map[corev1.RestartPolicy][]int32{
		corev1.RestartPolicyNever: {0, 143}, corev1.RestartPolicyOnFailure: {0}, corev1.RestartPolicyAlways: {0, 1},
	} {
		for _, code := range codes {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{
				RestartPolicy:  policy,
				InitContainers: []corev1.Container{{Name: "setup"}},
				Containers:     []corev1.Container{{Name: "main"}, {Name: "done"}},
			}}
			observed := &podcache.Status{UID: "u", Containers: []*runtimeapi.ContainerStatus{
				exitedIn("main", "m0", code), exitedIn("done", "d0", 0), exitedIn("setup", "s0", 0),
			}}
			ended := status.Generate(status.Input{Pod: pod, Runtime: observed})
			restarting := map[string]bool{"setup": true, "main": true, "done": true}
			s := status.Generate(status.Input{Pod: pod, Runtime: observed, Restarting: restarting})
			require.Equal(t, corev1.PodRunning, s.Phase, "%s %d", policy, code)
			for _, c := range append(s.InitContainerStatuses, s.ContainerStatuses...) {
				require.NotNil(t, c.State.Waiting, c.Name)
				require.Equal(t, status.ReasonPodRestarting, c.State.Waiting.Reason)
				require.NotNil(t, c.LastTerminationState.Terminated)
			}
			require.NoError(t, status.CheckTransition(pod, &ended, &s), "the transition must be permitted, because the user has requested the restart")

			// The init container fails after the restart. This failure is final.
			observed.Containers = append([]*runtimeapi.ContainerStatus{exitedIn("setup", "s1", 1)}, observed.Containers...)
			delete(restarting, "setup")
			s = status.Generate(status.Input{Pod: pod, Runtime: observed, Restarting: restarting})
			if policy == corev1.RestartPolicyNever {
				require.Equal(t, corev1.PodFailed, s.Phase)
			} else {
				require.NotEqual(t, corev1.PodFailed, s.Phase)
			}

			// A pod that terminates during its restart is terminated.
			s = status.Generate(status.Input{Pod: pod, Runtime: observed, Restarting: map[string]bool{}, Terminal: true})
			require.NotNil(t, s.ContainerStatuses[0].State.Terminated)
		}
	}
}

// A restart does not start ephemeral containers again, so an ephemeral container stays terminated.
func TestGenerate_RequestedRestartWithEphemeralContainer(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{
		Containers:          []corev1.Container{{Name: "main"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}}
	s := status.Generate(status.Input{
		Pod: pod, Runtime: &podcache.Status{UID: "u", Containers: []*runtimeapi.ContainerStatus{exitedIn("main", "m0", 0), exitedIn("debug", "e0", 0)}},
		Restarting: map[string]bool{"main": true, "debug": true},
	})
	require.NotNil(t, s.ContainerStatuses[0].State.Waiting)
	require.NotNil(t, s.EphemeralContainerStatuses[0].State.Terminated)
}

// A failed init container of the replaced sandbox does not fail the pod, and a better reason for
// waiting has precedence.
func TestGenerate_RequestedRestartOfFailedInit(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, InitContainers: []corev1.Container{{Name: "setup"}}, Containers: []corev1.Container{{Name: "main"}},
	}}
	in := status.Input{
		Pod: pod, Runtime: &podcache.Status{UID: "u", Containers: []*runtimeapi.ContainerStatus{exitedIn("setup", "s0", 143)}},
		Restarting: map[string]bool{"setup": true},
	}
	require.Equal(t, corev1.PodPending, status.Generate(in).Phase)
	in.Waiting = map[string]corev1.ContainerStateWaiting{"setup": {Reason: "ImagePullBackOff"}}
	s := status.Generate(in)
	require.Equal(t, corev1.PodPending, s.Phase)
	require.Equal(t, "ImagePullBackOff", s.InitContainerStatuses[0].State.Waiting.Reason)
	in.Restarting = nil
	require.Equal(t, corev1.PodFailed, status.Generate(in).Phase)
}
