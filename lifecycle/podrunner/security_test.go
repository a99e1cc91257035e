package podrunner_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestContainerSecurity(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsUser: new(int64(1)), RunAsGroup: new(int64(2)), FSGroup: new(int64(5)), SupplementalGroups: []int64{4},
	}
	pod.Spec.ShareProcessNamespace = new(true)
	config := func(s *corev1.SecurityContext) *runtimeapi.LinuxContainerSecurityContext {
		got, err := podrunner.ContainerConfig(pod, &corev1.Container{SecurityContext: s}, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		return got.GetLinux().GetSecurityContext()
	}
	plain := config(nil)
	require.Equal(t, int64(1), plain.GetRunAsUser().GetValue())
	require.Equal(t, int64(2), plain.GetRunAsGroup().GetValue())
	require.Equal(t, []int64{4, 5}, plain.GetSupplementalGroups())
	require.Contains(t, plain.GetMaskedPaths(), "/proc/kcore")
	require.Contains(t, plain.GetReadonlyPaths(), "/proc/sys")
	require.Equal(t, runtimeapi.SecurityProfile_Unconfined, plain.GetSeccomp().GetProfileType())
	require.Equal(t, runtimeapi.NamespaceMode_POD, plain.GetNamespaceOptions().GetPid())

	own := config(&corev1.SecurityContext{
		RunAsUser: new(int64(10)), RunAsGroup: new(int64(20)), ReadOnlyRootFilesystem: new(true), AllowPrivilegeEscalation: new(false),
		Capabilities:   &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}, Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	})
	require.Equal(t, int64(10), own.GetRunAsUser().GetValue())
	require.Equal(t, int64(20), own.GetRunAsGroup().GetValue())
	require.True(t, own.GetReadonlyRootfs())
	require.True(t, own.GetNoNewPrivs())
	require.Equal(t, []string{"NET_ADMIN"}, own.GetCapabilities().GetAddCapabilities())
	require.Equal(t, []string{"ALL"}, own.GetCapabilities().GetDropCapabilities())
	require.Equal(t, runtimeapi.SecurityProfile_RuntimeDefault, own.GetSeccomp().GetProfileType())

	privileged := config(&corev1.SecurityContext{Privileged: new(true)})
	require.True(t, privileged.GetPrivileged())
	require.Empty(t, privileged.GetMaskedPaths())
	require.Empty(t, privileged.GetReadonlyPaths())
}

func TestGroupWithoutAUserTakesTheImages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image *runtimeapi.Image
		want  *runtimeapi.LinuxContainerSecurityContext
	}{
		"a number":         {&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}}, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 7}}},
		"a name":           {&runtimeapi.Image{Username: "www"}, &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "www"}},
		"nobody, so root":  {&runtimeapi.Image{}, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{}}},
		"nothing is known": {nil, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{}}},
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsGroup: new(int64(20))}
		got, err := podrunner.ContainerConfig(pod, &corev1.Container{}, podrunner.Instance{Image: c.image}, testNode())
		require.NoError(t, err, name)
		sc := got.GetLinux().GetSecurityContext()
		require.Equal(t, c.want.GetRunAsUser().String(), sc.GetRunAsUser().String(), name)
		require.Equal(t, c.want.GetRunAsUsername(), sc.GetRunAsUsername(), name)
		require.Equal(t, int64(20), sc.GetRunAsGroup().GetValue(), name)

		pod.Spec.SecurityContext.RunAsGroup = nil
		got, err = podrunner.ContainerConfig(pod, &corev1.Container{}, podrunner.Instance{Image: c.image}, testNode())
		require.NoError(t, err, name)
		require.Nil(t, got.GetLinux().GetSecurityContext().GetRunAsUser(), "%s: the runtime knows the image's group, too", name)
	}
}

func TestRunAsNonRoot(t *testing.T) {
	t.Parallel()
	const breaks, asRoot = "container's runAsUser breaks non-root policy", "container has runAsNonRoot and image will run as root"
	root, app := &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}, &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}}
	type pod = corev1.PodSecurityContext
	type own = corev1.SecurityContext
	for name, c := range map[string]struct {
		pod   *corev1.PodSecurityContext
		own   *corev1.SecurityContext
		image *runtimeapi.Image
		want  string
	}{
		"not asked for":                     {nil, nil, root, ""},
		"asked not to":                      {&pod{RunAsNonRoot: new(false)}, nil, root, ""},
		"the pod's user":                    {&pod{RunAsNonRoot: new(true), RunAsUser: new(int64(1))}, nil, root, ""},
		"the container's user":              {&pod{RunAsNonRoot: new(true)}, &own{RunAsUser: new(int64(1))}, root, ""},
		"the image's user":                  {&pod{RunAsNonRoot: new(true)}, nil, app, ""},
		"the image's user is root":          {&pod{RunAsNonRoot: new(true)}, nil, root, asRoot},
		"the image has no user":             {&pod{RunAsNonRoot: new(true)}, nil, &runtimeapi.Image{}, asRoot},
		"nothing is known of the image":     {nil, &own{RunAsNonRoot: new(true)}, nil, asRoot},
		"the image's user has a name":       {nil, &own{RunAsNonRoot: new(true)}, &runtimeapi.Image{Username: "www"}, "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root"},
		"the pod's user is root":            {&pod{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}, nil, app, breaks},
		"root by the container alone":       {&pod{RunAsNonRoot: new(true), RunAsUser: new(int64(1))}, &own{RunAsUser: new(int64(0))}, app, breaks},
		"the container lifts the pod's ban": {&pod{RunAsNonRoot: new(true)}, &own{RunAsNonRoot: new(false)}, root, ""},
	} {
		p := testPod()
		p.Spec.SecurityContext = c.pod
		_, err := podrunner.ContainerConfig(p, &corev1.Container{Name: "app", SecurityContext: c.own}, podrunner.Instance{Image: c.image}, testNode())
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.EqualError(t, err, c.want+` (pod: "pod_ns(uid)", container: app)`, name)
	}
}

func TestSeccompThatIsNotSupportedIsTheStricter(t *testing.T) {
	t.Parallel()
	for kind, want := range map[corev1.SeccompProfileType]runtimeapi.SecurityProfile_ProfileType{
		corev1.SeccompProfileTypeUnconfined:     runtimeapi.SecurityProfile_Unconfined,
		corev1.SeccompProfileTypeRuntimeDefault: runtimeapi.SecurityProfile_RuntimeDefault,
		corev1.SeccompProfileTypeLocalhost:      runtimeapi.SecurityProfile_RuntimeDefault,
		"Unheard":                               runtimeapi.SecurityProfile_RuntimeDefault,
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: kind}}
		got, err := podrunner.ContainerConfig(pod, &corev1.Container{}, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, want, got.GetLinux().GetSecurityContext().GetSeccomp().GetProfileType(), kind)
	}
}
