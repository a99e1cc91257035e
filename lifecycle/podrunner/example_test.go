package podrunner_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/podcache"
)

// A plan is a value that can be printed before its execution.
func ExamplePlan() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1234"},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyAlways,
			Containers:    []corev1.Container{{Name: "server", Image: "web:1"}, {Name: "logger", Image: "log:1"}},
		},
	}
	status := &podcache.Status{
		Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: "box"}},
		Containers: []*runtimeapi.ContainerStatus{{
			Id: "c1", Labels: map[string]string{"io.kubernetes.container.name": "server"},
			State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 1,
		}},
		SandboxOf: map[string]string{"c1": "box"},
	}
	backoff := func(_ string, ended time.Time) (time.Time, time.Duration, bool) {
		return ended.Add(20 * time.Second), 20 * time.Second, true
	}
	fmt.Print(podrunner.Plan(podrunner.Input{Pod: pod, Status: status, Backoff: backoff}))
	// Output:
	// start container logger, attempt 0: it has not run yet
	// wait to start container server: CrashLoopBackOff: back-off 20s restarting failed container=server pod=web_default(1234)
}
