package podrunner_test

import (
	"strings"
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
		got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{SecurityContext: s}, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		return got.GetLinux().GetSecurityContext()
	}
	plain := config(nil)
	require.Equal(t, int64(1), plain.GetRunAsUser().GetValue())
	require.Equal(t, int64(2), plain.GetRunAsGroup().GetValue())
	require.Equal(t, []int64{5, 4}, plain.GetSupplementalGroups(), "fsGroup must come first, as in the kubelet")
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
	require.True(t, config(&corev1.SecurityContext{Privileged: new(true)}).GetPrivileged())
}

func TestContainerSecurity_ImageUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		image *runtimeapi.Image
		want  *runtimeapi.LinuxContainerSecurityContext
	}{
		"a number":         {&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}}, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: 7}}},
		"a name":           {&runtimeapi.Image{Username: "www"}, &runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "www"}},
		"no user, so root": {&runtimeapi.Image{}, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{}}},
		"no image status":  {nil, &runtimeapi.LinuxContainerSecurityContext{RunAsUser: &runtimeapi.Int64Value{}}},
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsGroup: new(int64(20))}
		got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{}, podrunner.Instance{Image: c.image}, testNode())
		require.NoError(t, err, name)
		sc := got.GetLinux().GetSecurityContext()
		require.Equal(t, c.want.GetRunAsUser().String(), sc.GetRunAsUser().String(), name)
		require.Equal(t, c.want.GetRunAsUsername(), sc.GetRunAsUsername(), name)
		require.Equal(t, int64(20), sc.GetRunAsGroup().GetValue(), name)

		pod.Spec.SecurityContext.RunAsGroup = nil
		got, err = podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{}, podrunner.Instance{Image: c.image}, testNode())
		require.NoError(t, err, name)
		sc = got.GetLinux().GetSecurityContext()
		require.Equal(t, c.want.GetRunAsUser().String(), sc.GetRunAsUser().String(), name)
		require.Equal(t, c.want.GetRunAsUsername(), sc.GetRunAsUsername(), name)
		require.Nil(t, sc.GetRunAsGroup(), name)
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
		_, err := podrunner.ContainerConfig(t.Context(), p, &corev1.Container{Name: "app", SecurityContext: c.own}, podrunner.Instance{Image: c.image}, testNode())
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.EqualError(t, err, c.want+` (pod: "pod_ns(uid)", container: app)`, name)
	}
}

func TestSeccomp(t *testing.T) {
	t.Parallel()
	local := func(path string) *corev1.SeccompProfile {
		return &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &path}
	}
	own := func(p *corev1.SeccompProfile) *corev1.SecurityContext {
		return &corev1.SecurityContext{SeccompProfile: p}
	}
	withRoot := podrunner.Node{SeccompRoot: "/profiles"}
	for name, c := range map[string]struct {
		pod  *corev1.SeccompProfile
		own  *corev1.SecurityContext
		node podrunner.Node
		want string
	}{
		"none":                      {want: "Unconfined"},
		"none, with a default":      {node: podrunner.Node{Policy: podrunner.Policy{SeccompDefault: true}}, want: "RuntimeDefault"},
		"the pod's":                 {pod: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}, want: "RuntimeDefault"},
		"the container's":           {pod: local("x"), own: own(&corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}), want: "Unconfined"},
		"a file":                    {pod: local("a/b.json"), node: withRoot, want: "Localhost /profiles/a/b.json"},
		"a file, without a folder":  {pod: local("b.json"), want: `error seccomp profile "b.json": this node has no directory of seccomp profiles`},
		"a file outside the folder": {pod: local("../b.json"), node: withRoot, want: `error seccomp profile "../b.json": must be a relative path and must not contain '..'`},
		"an absolute file":          {pod: local("/b.json"), node: withRoot, want: `error seccomp profile "/b.json": must be a relative path and must not contain '..'`},
		"a file without a name":     {pod: local(""), node: withRoot, want: "error localhostProfile must be set if seccompProfile type is Localhost"},
		"no file":                   {pod: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost}, want: "error localhostProfile must be set if seccompProfile type is Localhost"},
		"an unknown type":           {pod: &corev1.SeccompProfile{Type: "Unheard"}, want: `error unknown seccompProfile.type "Unheard"`},
	} {
		pod := testPod()
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: c.pod}
		got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{SecurityContext: c.own}, podrunner.Instance{}, c.node)
		require.Equal(t, c.want, shown(got.GetLinux().GetSecurityContext().GetSeccomp(), err), name)
		if c.own == nil {
			require.Equal(t, err != nil, podrunner.CheckSandbox(pod, c.node) != nil, name)
		}
	}
}

func shown(p *runtimeapi.SecurityProfile, err error) string {
	if err != nil {
		return "error " + err.Error()
	}
	if p == nil {
		return ""
	}
	return strings.TrimSpace(p.GetProfileType().String() + " " + p.GetLocalhostRef())
}

func TestAppArmor(t *testing.T) {
	t.Parallel()
	type profile = corev1.AppArmorProfile
	const key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "app"
	runtimeDefault := &profile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	local := &profile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("k8s-x")}
	for name, c := range map[string]struct {
		pod        *profile
		annotation string
		own        *profile
		want       string
	}{
		"none":                        {},
		"the pod's":                   {pod: runtimeDefault, want: "RuntimeDefault"},
		"the container's":             {pod: runtimeDefault, own: local, want: "Localhost k8s-x"},
		"the annotation's":            {pod: runtimeDefault, annotation: "localhost/old", want: "Localhost old"},
		"the annotation's default":    {annotation: "runtime/default", want: "RuntimeDefault"},
		"the annotation's unconfined": {pod: runtimeDefault, annotation: "unconfined", want: "Unconfined"},
		"the field wins":              {annotation: "unconfined", own: local, want: "Localhost k8s-x"},
		"a file without a name":       {own: &profile{Type: corev1.AppArmorProfileTypeLocalhost}, want: "error localhostProfile must be set if appArmorProfile type is Localhost"},
		"an unknown type":             {own: &profile{Type: "Unheard"}, want: `error unknown appArmorProfile.type "Unheard"`},
	} {
		pod := testPod()
		pod.Annotations = map[string]string{key: c.annotation}
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{AppArmorProfile: c.pod}
		got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{Name: "app", SecurityContext: &corev1.SecurityContext{AppArmorProfile: c.own}}, podrunner.Instance{}, testNode())
		require.Equal(t, c.want, shown(got.GetLinux().GetSecurityContext().GetApparmor(), err), name)
	}
}

func TestContainerSecurity_MoreFields(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{
		SELinuxOptions:           &corev1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0"},
		SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict),
	}
	got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{}, podrunner.Instance{TargetID: "c1"}, testNode())
	require.NoError(t, err)
	sc := got.GetLinux().GetSecurityContext()
	require.Equal(t, "t", sc.GetSelinuxOptions().GetType())
	require.Equal(t, runtimeapi.SupplementalGroupsPolicy_Strict, sc.GetSupplementalGroupsPolicy())
	require.Equal(t, runtimeapi.NamespaceMode_TARGET, sc.GetNamespaceOptions().GetPid())
	require.Equal(t, "c1", sc.GetNamespaceOptions().GetTargetId())
	box := podrunner.SandboxConfig(pod, 0, testNode()).GetLinux().GetSecurityContext()
	require.Equal(t, "s0", box.GetSelinuxOptions().GetLevel())
	require.Equal(t, runtimeapi.SupplementalGroupsPolicy_Strict, box.GetSupplementalGroupsPolicy())

	got, err = podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{SecurityContext: &corev1.SecurityContext{
		SELinuxOptions: &corev1.SELinuxOptions{Level: "s1"}, ProcMount: new(corev1.UnmaskedProcMount),
	}}, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	sc = got.GetLinux().GetSecurityContext()
	require.Equal(t, "s1", sc.GetSelinuxOptions().GetLevel())
	require.Empty(t, sc.GetSelinuxOptions().GetType(), "the container's options must replace all of the pod's")
	require.Empty(t, sc.GetMaskedPaths())
	require.Empty(t, sc.GetReadonlyPaths())
}

func TestContainerConfig_ImageUserMustBeValid(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true)}
	for _, uid := range []int64{-1, 1 << 31} {
		_, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{Name: "app"}, podrunner.Instance{Image: &runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: uid}}}, testNode())
		require.ErrorContains(t, err, "container has runAsNonRoot and image has an invalid user id (")
		require.ErrorContains(t, err, `(pod: "pod_ns(uid)", container: app)`)
	}
}

// Runtimes reject a privileged container in an unprivileged sandbox.
func TestSandboxConfig_PrivilegedEphemeralContainer(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	require.False(t, podrunner.SandboxConfig(pod, 0, testNode()).GetLinux().GetSecurityContext().GetPrivileged())
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
	}}}
	require.True(t, podrunner.SandboxConfig(pod, 0, testNode()).GetLinux().GetSecurityContext().GetPrivileged())
}

// Masked paths are set even for privileged containers, for which runtimes
// ignore them.
func TestMaskedPaths_SetForPrivilegedContainers(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{SecurityContext: &corev1.SecurityContext{Privileged: new(true)}}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Contains(t, got.GetLinux().GetSecurityContext().GetMaskedPaths(), "/proc/kcore")
	c.SecurityContext.ProcMount = new(corev1.UnmaskedProcMount)
	got, err = podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Empty(t, got.GetLinux().GetSecurityContext().GetMaskedPaths())
}

// A target is used only if each container has its own process namespace.
func TestContainerSecurity_ProcessesOfATarget(t *testing.T) {
	t.Parallel()
	for want, change := range map[runtimeapi.NamespaceMode]func(*corev1.PodSpec){
		runtimeapi.NamespaceMode_TARGET: func(*corev1.PodSpec) {},
		runtimeapi.NamespaceMode_POD:    func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) },
		runtimeapi.NamespaceMode_NODE:   func(s *corev1.PodSpec) { s.HostPID = true },
	} {
		pod := testPod()
		change(&pod.Spec)
		got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{}, podrunner.Instance{TargetID: "x"}, testNode())
		require.NoError(t, err)
		options := got.GetLinux().GetSecurityContext().GetNamespaceOptions()
		require.Equal(t, want, options.GetPid())
		require.Equal(t, want == runtimeapi.NamespaceMode_TARGET, options.GetTargetId() == "x")
	}
}

// Old runtimes read a text instead of the current field.
func TestAppArmor_DeprecatedFieldForOldRuntimes(t *testing.T) {
	t.Parallel()
	for want, profile := range map[string]*corev1.AppArmorProfile{
		"":                nil,
		"runtime/default": {Type: corev1.AppArmorProfileTypeRuntimeDefault},
		"unconfined":      {Type: corev1.AppArmorProfileTypeUnconfined},
		"localhost/web":   {Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("web")},
	} {
		c := &corev1.Container{SecurityContext: &corev1.SecurityContext{AppArmorProfile: profile}}
		got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, want, got.GetLinux().GetSecurityContext().GetApparmorProfile())
	}
}
