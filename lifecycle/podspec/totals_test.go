package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func cpu(q string) corev1.ResourceList {
	if q == "" {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
}

func container(request, limit string) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: cpu(request), Limits: cpu(limit)}}
}

func sidecarOf(request, limit string) corev1.Container {
	c := container(request, limit)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func TestTotals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec             corev1.PodSpec
		requests, limits string
	}{
		"nothing asked":         {corev1.PodSpec{Containers: []corev1.Container{{}}}, "0", "0"},
		"containers add up":     {corev1.PodSpec{Containers: []corev1.Container{container("1", "2"), container("500m", "")}}, "1500m", "2"},
		"a small init":          {corev1.PodSpec{Containers: []corev1.Container{container("1", "2")}, InitContainers: []corev1.Container{container("500m", "1")}}, "1", "2"},
		"the largest init":      {corev1.PodSpec{Containers: []corev1.Container{container("1", "")}, InitContainers: []corev1.Container{container("3", "4"), container("2", "2")}}, "3", "4"},
		"a sidecar is added":    {corev1.PodSpec{Containers: []corev1.Container{container("1", "2")}, InitContainers: []corev1.Container{sidecarOf("1", "1")}}, "2", "3"},
		"init after a sidecar":  {corev1.PodSpec{Containers: []corev1.Container{container("1", "")}, InitContainers: []corev1.Container{sidecarOf("1", ""), container("3", "")}}, "4", "0"},
		"init before a sidecar": {corev1.PodSpec{Containers: []corev1.Container{container("1", "")}, InitContainers: []corev1.Container{container("3", ""), sidecarOf("1", "")}}, "3", "0"},
		"the pod as a whole": {corev1.PodSpec{
			Containers: []corev1.Container{container("1", "")},
			Resources:  &corev1.ResourceRequirements{Requests: cpu("6"), Limits: cpu("7")},
		}, "6", "7"},
	} {
		pod := &corev1.Pod{Spec: c.spec}
		before := pod.DeepCopy()
		requests, limits := podspec.Requests(pod), podspec.Limits(pod)
		require.Equal(t, c.requests, requests.Cpu().String(), name)
		require.Equal(t, c.limits, limits.Cpu().String(), name)
		require.Equal(t, before, pod, name)
	}
}
