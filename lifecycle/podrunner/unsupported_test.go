package podrunner_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// demanding returns a pod that needs every optional collaborator.
func demanding() *corev1.Pod {
	pod := testPod()
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}, {Name: "i", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}}}
	pod.Spec.RuntimeClassName = new("gvisor")
	pod.Spec.HostUsers = new(false)
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.1"}}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{}}
	pod.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), StartupProbe: &corev1.Probe{}}}
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", LivenessProbe: &corev1.Probe{}, ReadinessProbe: &corev1.Probe{},
		VolumeMounts:  []corev1.VolumeMount{{Name: "v"}, {Name: "v", SubPathExpr: "$(A)"}},
		VolumeDevices: []corev1.VolumeDevice{{}},
		Lifecycle:     &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}, PreStop: &corev1.LifecycleHandler{}},
		Resources: corev1.ResourceRequirements{
			Claims: []corev1.ResourceClaim{{}},
			Limits: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1"), "hugepages-2Mi": resource.MustParse("4Mi"), "example.test/gpu": resource.MustParse("1"),
			},
		},
		Env:             []corev1.EnvVar{{Name: "S", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}}}},
		SecurityContext: &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{}},
	}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		VolumeMounts: []corev1.VolumeMount{{Name: "v", SubPath: "a"}},
	}}}
	return pod
}

func TestUnsupported_ReportsEveryField(t *testing.T) {
	t.Parallel()
	b := newBed(t, func(c *podrunner.Config) { c.Probes = nil })
	require.NoError(t, b.runner.Unsupported(podOf(nil, "app")))
	require.EqualError(t, b.runner.Unsupported(demanding()), `spec.volumes[0]: not supported
spec.runtimeClassName: not supported
spec.hostUsers: not supported
spec.hostAliases: not supported
spec.resourceClaims: not supported
spec.initContainers[0].startupProbe: not supported
spec.containers[0].volumeMounts[1].subPath: not supported
spec.containers[0].volumeDevices: not supported
spec.containers[0].livenessProbe: not supported
spec.containers[0].readinessProbe: not supported
spec.containers[0].lifecycle.postStart: not supported
spec.containers[0].lifecycle.preStop: not supported
spec.containers[0].resources.claims: not supported
spec.containers[0].resources.limits[example.test/gpu]: not supported
spec.containers[0].env[0].valueFrom.fileKeyRef: not supported
spec.ephemeralContainers[0].volumeMounts[0].subPath: not supported`)
}

// TestUnsupported_ConfiguredFeaturesAreSupported checks that if all collaborators are configured, only fields
// that are never supported are rejected.
func TestUnsupported_ConfiguredFeaturesAreSupported(t *testing.T) {
	t.Parallel()
	hooks, err := lifecycle.NewHookRunner(lifecycle.HookConfig{})
	require.NoError(t, err)
	ids, err := podrunner.NewIDRanges(podrunner.IDRangesConfig{PodRoot: t.TempDir()})
	require.NoError(t, err)
	b := newBed(t, func(c *podrunner.Config) {
		c.Hooks, c.UserIDs, c.RootDir, c.Volumes = hooks, ids, t.TempDir(), &fakeVolumes{unsupported: errors.New("spec.volumes[0].nfs: no plugin")}
		c.Facts = func() podrunner.Facts {
			return podrunner.Facts{
				RuntimeHandler: func(string) (string, error) { return "", nil },
				Handler:        func(string) *runtimeapi.RuntimeHandlerFeatures { return nil },
			}
		}
	})
	require.EqualError(t, b.runner.Unsupported(demanding()), `spec.volumes[0].nfs: no plugin
spec.resourceClaims: not supported
spec.containers[0].volumeDevices: not supported
spec.containers[0].resources.claims: not supported
spec.containers[0].resources.limits[example.test/gpu]: not supported
spec.containers[0].env[0].valueFrom.fileKeyRef: not supported`)
}
