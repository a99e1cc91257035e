package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
)

// demandingPod returns a pod with many fields that need a machine.
func demandingPod(name, nodeName string) *corev1.Pod {
	probe := func(h corev1.ProbeHandler) *corev1.Probe { return &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1} }
	security := &corev1.SecurityContext{RunAsNonRoot: new(true), Privileged: new(true)}
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), "example.com/gpu": resource.MustParse("1")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{
			NodeName: nodeName, ServiceAccountName: "default", HostUsers: new(false), RuntimeClassName: new("none"),
			SecurityContext: &corev1.PodSecurityContext{FSGroup: new(int64(2000)), RunAsUser: new(int64(1000))},
			ResourceClaims:  []corev1.PodResourceClaim{{Name: "claim"}},
			Volumes: []corev1.Volume{
				{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}},
				{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"},
				}}}}},
				{Name: "disk", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "none"}}},
				{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none/at/all", Type: new(corev1.HostPathFile)}}},
				{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}},
			},
			InitContainers: []corev1.Container{
				{Name: "init", Image: "any.example/init", SecurityContext: security, Command: []string{"sleep", "infinity"}},
				{Name: "sidecar", Image: "any.example/sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{
				Name: "main", Image: "any.example/main:1.2.3", SecurityContext: security,
				Resources: corev1.ResourceRequirements{Requests: resources, Limits: resources.DeepCopy(), Claims: []corev1.ResourceClaim{{Name: "claim"}}},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "config", MountPath: "/config", SubPath: "config.yaml"},
					{Name: "disk", MountPath: "/disk"},
					{Name: "token", MountPath: "/token"},
					{Name: "host", MountPath: "/host", SubPathExpr: "$(HOSTNAME)"},
					{Name: "memory", MountPath: "/memory"},
				},
				ReadinessProbe: probe(corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8443), Scheme: corev1.URISchemeHTTPS}}),
				LivenessProbe:  probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"any"}}}),
				StartupProbe:   probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(8443)}}),
			}},
		},
	}
}

func TestHollowPod_NeedsNoMachine(t *testing.T) {
	t.Parallel()
	original := demandingPod("p", "n")
	original.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", SecurityContext: &corev1.SecurityContext{},
	}}}
	before := original.DeepCopy()
	s := hollowPod(original).Spec
	require.Equal(t, before, original, "the pod of the source must not be modified")

	require.Nil(t, s.SecurityContext)
	require.Nil(t, s.HostUsers)
	require.Nil(t, s.RuntimeClassName)
	require.Empty(t, s.ResourceClaims)
	require.Nil(t, s.EphemeralContainers[0].SecurityContext)
	require.Len(t, s.Volumes, len(before.Spec.Volumes))
	require.Equal(t, before.Spec.Volumes[:2], s.Volumes[:2])
	for _, v := range s.Volumes[2:] {
		require.Equal(t, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, v.VolumeSource)
	}
	require.Equal(t, []string{initCommand}, s.InitContainers[0].Command)
	require.Empty(t, s.InitContainers[1].Command, "a sidecar does not end")
	main := s.Containers[0]
	require.Nil(t, main.SecurityContext)
	require.Empty(t, main.Resources.Claims)
	require.Equal(t, corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}, main.Resources.Requests)
	require.Equal(t, main.Resources.Requests, main.Resources.Limits)
	require.Len(t, main.VolumeMounts, len(before.Spec.Containers[0].VolumeMounts))
	for _, m := range main.VolumeMounts {
		require.Empty(t, m.SubPath+m.SubPathExpr)
	}
	require.Equal(t, before.Spec.Containers[0].ReadinessProbe, main.ReadinessProbe)
}

// A pod that has not changed since the last call is the same hollow pod, so that the agent need not
// compare it.
func TestHollowed_CopiesAPodOnce(t *testing.T) {
	t.Parallel()
	a, b := demandingPod("a", "n"), demandingPod("b", "n")
	a.UID, b.UID = "a", "b"
	newer := b.DeepCopy()
	var calls [][]*corev1.Pod
	failed := errors.New("failed")
	source := hollowed(func(ctx context.Context, set func(context.Context, []*corev1.Pod)) error {
		set(ctx, []*corev1.Pod{a, b})
		set(ctx, []*corev1.Pod{newer, a})
		set(ctx, nil)
		return failed
	})
	require.ErrorIs(t, source(t.Context(), func(_ context.Context, pods []*corev1.Pod) { calls = append(calls, pods) }), failed)
	require.Len(t, calls, 3)
	require.Same(t, calls[0][0], calls[1][1])
	require.NotSame(t, calls[0][1], calls[1][0])
	require.NotSame(t, a, calls[0][0])
	require.Empty(t, calls[2])
}

func TestProgramFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, args []string
		want          *fakecri.Program
	}{
		{},
		{command: []string{"serve"}},
		{command: []string{initCommand}, want: &fakecri.Program{Runtime: time.Second}},
		{command: []string{"true"}, want: &fakecri.Program{Runtime: shortRuntime}},
		{args: []string{"false"}, want: &fakecri.Program{Runtime: shortRuntime, ExitCode: 1}},
		{command: []string{"sleep", "30"}, want: &fakecri.Program{Runtime: 30 * time.Second}},
		{command: []string{"sleep"}, args: []string{"1.5m"}, want: &fakecri.Program{Runtime: 90 * time.Second}},
		{command: []string{"sleep", "0"}, want: &fakecri.Program{Runtime: shortRuntime}},
		{command: []string{"sleep", "infinity"}},
		{command: []string{"sleep", "-1"}},
		{command: []string{"sleep", "1", "2"}},
		{command: []string{"sleep"}},
	} {
		got := programFor(&runtimeapi.ContainerConfig{Command: c.command, Args: c.args})
		require.Equal(t, c.want, got, "%q %q", c.command, c.args)
	}
}
