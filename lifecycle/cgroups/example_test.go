package cgroups_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/cgroups"
)

func Example() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "8f6d-21"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
			},
		}}},
	}
	name := cgroups.PodName(pod)
	fmt.Println(name.Cgroupfs())
	fmt.Println(name.Systemd())
	limits := cgroups.PodLimits(pod, 100*time.Millisecond)
	fmt.Println(limits.CPUShares, limits.MemoryBytes)
	// Output:
	// /kubepods/burstable/pod8f6d-21
	// /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8f6d_21.slice
	// 256 67108864
}
