package podspec_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func Example() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "backup", Namespace: "ops",
			Annotations: map[string]string{podspec.SourceAnnotation: "file"},
		},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyOnFailure,
			Containers:    []corev1.Container{{Name: "dump", Image: "registry.example/dump:1"}},
		},
	}
	fmt.Println(podspec.FullName(pod), "static:", podspec.IsStatic(pod), podspec.QOSClass(pod))
	for c := range podspec.Containers(&pod.Spec) {
		fmt.Println(c.Name, "after exit 0:", podspec.ShouldRestart(pod, c, 0), "after exit 1:", podspec.ShouldRestart(pod, c, 1))
	}
	// Output:
	// backup_ops static: true BestEffort
	// dump after exit 0: false after exit 1: true
}
