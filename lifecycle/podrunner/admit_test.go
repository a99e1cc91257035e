package podrunner_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestAdmit(t *testing.T) {
	t.Parallel()
	sysctl := func(name string) *corev1.PodSecurityContext {
		return &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: name, Value: "1"}}}
	}
	unsafe := podrunner.Node{Policy: podrunner.Policy{UnsafeSysctls: []string{"kernel.msg*", "net/core/somaxconn", "vm.swappiness"}}}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		node podrunner.Node
		want string
	}{
		"nothing asked":                    {},
		"linux":                            {spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Linux}}},
		"windows":                          {spec: corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Windows}}, want: "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"},
		"a safe sysctl":                    {spec: corev1.PodSpec{SecurityContext: sysctl("net.ipv4.tcp_syncookies")}},
		"a safe sysctl with slashes":       {spec: corev1.PodSpec{SecurityContext: sysctl("net/ipv4/tcp_syncookies")}},
		"an unsafe sysctl":                 {spec: corev1.PodSpec{SecurityContext: sysctl("net.core.somaxconn")}, want: `SysctlForbidden: forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		"an unsafe sysctl that is allowed": {spec: corev1.PodSpec{SecurityContext: sysctl("net.core.somaxconn")}, node: unsafe},
		"allowed by a prefix":              {spec: corev1.PodSpec{SecurityContext: sysctl("kernel.msgmax")}, node: unsafe},
		"a sysctl without a namespace, though allowed": {
			spec: corev1.PodSpec{SecurityContext: sysctl("vm.swappiness")}, node: unsafe,
			want: `SysctlForbidden: forbidden sysctl: "vm.swappiness" not allowlisted`,
		},
		"in the host's network": {
			spec: corev1.PodSpec{SecurityContext: sysctl("net.ipv4.tcp_syncookies"), HostNetwork: true},
			want: `SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host net enabled`,
		},
		"in the host's IPC": {
			spec: corev1.PodSpec{SecurityContext: sysctl("kernel.shm_rmid_forced"), HostIPC: true},
			want: `SysctlForbidden: forbidden sysctl: "kernel.shm_rmid_forced" not allowed with host ipc enabled`,
		},
		"groups, merged": {spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyMerge)}}},
		"groups, strict": {
			spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}},
			want: "SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node",
		},
		"groups, strict, on a runtime with support": {
			spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: new(corev1.SupplementalGroupsPolicyStrict)}},
			node: podrunner.Node{Facts: podrunner.Facts{Runtime: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}}},
		},
		"AppArmor is not enabled": {
			spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}},
			want: "AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host",
		},
		"AppArmor that is not wanted": {
			spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}}},
		},
		"AppArmor": {
			spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}}},
			node: podrunner.Node{Facts: podrunner.Facts{AppArmor: true}},
		},
	} {
		pod := testPod()
		pod.Spec = c.spec
		pod.Spec.Containers = []corev1.Container{{Name: "app"}}
		err := podrunner.Admit(pod, c.node)
		if c.want == "" {
			require.NoError(t, err, name)
			continue
		}
		refusal, ok := errors.AsType[*podrunner.AdmissionError](err)
		require.True(t, ok, name)
		require.Equal(t, c.want, refusal.Error(), name)
	}
}

func TestSysctls_NamesAreConvertedToDots(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{
		{Name: "net/ipv4/conf/eno2.100/rp_filter", Value: "1"}, {Name: "net.ipv4.conf.eno2/100.rp_filter2", Value: "2"}, {Name: "x", Value: "3"},
	}}
	require.Equal(t, map[string]string{
		"net.ipv4.conf.eno2/100.rp_filter": "1", "net.ipv4.conf.eno2/100.rp_filter2": "2", "x": "3",
	}, podrunner.SandboxConfig(pod, 0, testNode()).GetLinux().GetSysctls())
}

func TestRuntimeClasses(t *testing.T) {
	t.Parallel()
	pod := testPod()
	handler, err := podrunner.RuntimeHandler(pod, podrunner.Node{})
	require.NoError(t, err)
	require.Empty(t, handler)

	pod.Spec.RuntimeClassName = new("gvisor")
	require.EqualError(t, podrunner.CheckSandbox(pod, podrunner.Node{}), "failed to get RuntimeClass gvisor: this node has no runtime classes")

	node := podrunner.Node{}
	node.RuntimeHandler = func(class string) (string, error) {
		if class != "gvisor" {
			return "", errors.New("unknown")
		}
		return "runsc", nil
	}
	require.NoError(t, podrunner.CheckSandbox(pod, node))
}

func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.HostUsers = new(false)
	can := func(handler string) *runtimeapi.RuntimeHandlerFeatures {
		return &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: handler == ""}
	}
	ids := func(uid types.UID) (podrunner.IDRange, bool) {
		return podrunner.IDRange{First: 131072, Length: 65536}, uid == "uid"
	}
	for want, node := range map[string]podrunner.Node{
		"can't set `spec.hostUsers: false`, runtime does not support user namespaces": {},
		"can't set `spec.hostUsers: false`, this node has no IDs for user namespaces": {Facts: podrunner.Facts{Handler: can}},
		"create user namespace: no user IDs are allocated to the pod":                 {Facts: podrunner.Facts{Handler: can}, UserNamespace: func(types.UID) (podrunner.IDRange, bool) { return podrunner.IDRange{}, false }},
	} {
		require.EqualError(t, podrunner.CheckSandbox(pod, node), want)
		require.Equal(t, runtimeapi.NamespaceMode_NODE,
			podrunner.SandboxConfig(pod, 0, node).GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions().GetMode())
	}
	other := pod.DeepCopy()
	other.Spec.RuntimeClassName = new("c")
	require.EqualError(t, podrunner.CheckSandbox(other, podrunner.Node{Facts: podrunner.Facts{Handler: can, RuntimeHandler: func(string) (string, error) { return "h", nil }}}),
		"can't set `spec.hostUsers: false`, RuntimeClass handler \"h\" does not support user namespaces")
	require.EqualError(t, podrunner.CheckSandbox(other, podrunner.Node{}), "failed to get RuntimeClass c: this node has no runtime classes")

	node := podrunner.Node{Facts: podrunner.Facts{Handler: can}, UserNamespace: ids}
	require.NoError(t, podrunner.CheckSandbox(pod, node))
	container, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{}, podrunner.Instance{}, node)
	require.NoError(t, err)
	for _, o := range []*runtimeapi.NamespaceOption{
		podrunner.SandboxConfig(pod, 0, node).GetLinux().GetSecurityContext().GetNamespaceOptions(),
		container.GetLinux().GetSecurityContext().GetNamespaceOptions(),
	} {
		require.Equal(t, runtimeapi.NamespaceMode_POD, o.GetUsernsOptions().GetMode())
		for _, m := range append(o.GetUsernsOptions().GetUids(), o.GetUsernsOptions().GetGids()...) {
			require.Equal(t, []uint32{131072, 0, 65536}, []uint32{m.GetHostId(), m.GetContainerId(), m.GetLength()})
		}
	}
}
