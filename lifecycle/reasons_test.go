package lifecycle_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// A CRI client can run hooks.
var _ lifecycle.ExecRunner = cri.RuntimeService(nil)

// The texts must equal the kubelet's byte for byte, because users search for them.
func TestReasons_TextsEqualTheKubelets(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"}}
	require.Equal(t, "back-off 2m40s restarting failed container=main pod=web_shop(u)", lifecycle.CrashLoopMessage(160*time.Second, "main", pod))
	require.Equal(t, `Back-off pulling image "registry.example/web:1"`, lifecycle.ImagePullMessage("registry.example/web:1"))
	require.Equal(t, "Stopping container main", lifecycle.StoppingMessage("main"))
	for got, want := range map[string]string{
		lifecycle.CrashLoopBackOff:           "CrashLoopBackOff",
		lifecycle.ImagePullBackOff:           "ImagePullBackOff",
		lifecycle.PostStartHookError:         "PostStartHookError",
		lifecycle.Killing:                    "Killing",
		lifecycle.FailedPostStartHook:        "FailedPostStartHook",
		lifecycle.PostStartHookFailedMessage: "PostStartHook failed",
		lifecycle.FailedPreStopHook:          "FailedPreStopHook",
		lifecycle.PreStopHookFailedMessage:   "PreStopHook failed",
		lifecycle.LifecycleHTTPFallback:      "LifecycleHTTPFallback",
		lifecycle.Preempting:                 "Preempting",
		lifecycle.PreemptingMessage:          "Preempted in order to admit critical pod",
		lifecycle.DeadlineExceeded:           "DeadlineExceeded",
		lifecycle.OutOfCPU:                   "OutOfcpu",
		lifecycle.OutOfMemory:                "OutOfmemory",
		lifecycle.OutOfEphemeralStorage:      "OutOfephemeral-storage",
		lifecycle.OutOfPods:                  "OutOfpods",
		lifecycle.InvalidNodeInfo:            "InvalidNodeInfo",
		lifecycle.UnexpectedAdmissionError:   "UnexpectedAdmissionError",
	} {
		require.Equal(t, want, got)
	}
}
