package podrunner_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// Target: a runtime needs tens of milliseconds to create a container; its
// configuration, with a large environment, should cost less than one
// millisecond.
func BenchmarkContainerConfig(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("env=%d", n), func(b *testing.B) {
			pod := testPod()
			c := corev1.Container{Name: "app", Image: "app:1"}
			for i := range n {
				c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("VAR_%d", i), Value: fmt.Sprintf("value $(VAR_%d)", i/2)})
			}
			pod.Spec.Containers = []corev1.Container{c}
			b.ReportAllocs()
			for b.Loop() {
				_, err := podrunner.ContainerConfig(b.Context(), pod, &pod.Spec.Containers[0], podrunner.Instance{}, testNode())
				require.NoError(b, err)
			}
		})
	}
}
