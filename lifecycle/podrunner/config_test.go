package podrunner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/crilabels"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func testNode() podrunner.Node {
	return podrunner.Node{
		Agent: "agent", LogRoot: "/logs",
		Facts: podrunner.Facts{Name: "node1", IPs: []string{"192.0.2.7", "2001:db8::7"}, MemoryCapacityBytes: 8 << 30},
	}
}

func TestSandboxConfig(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Labels = map[string]string{"app": "web", crilabels.Agent: "somebody else"}
	pod.Annotations = map[string]string{"note": "1"}
	pod.Spec.Containers = []corev1.Container{{
		Name: "app",
		Ports: []corev1.ContainerPort{
			{ContainerPort: 80},
			{ContainerPort: 53, HostPort: 5353, Protocol: corev1.ProtocolUDP, HostIP: "127.0.0.1"},
		},
		SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
	}}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(7)), RunAsGroup: new(int64(8)), SupplementalGroups: []int64{9}}

	c := podrunner.SandboxConfig(pod, 3, testNode())
	require.Equal(t, &runtimeapi.PodSandboxMetadata{Name: "pod", Uid: "uid", Namespace: "ns", Attempt: 3}, c.GetMetadata())
	require.Equal(t, "pod", c.GetHostname())
	require.Equal(t, "/logs/ns_pod_uid", c.GetLogDirectory())
	require.Equal(t, map[string]string{
		"app": "web", crilabels.PodName: "pod", crilabels.PodNamespace: "ns", crilabels.PodUID: "uid", crilabels.Agent: "agent",
	}, c.GetLabels(), "a pod must not be able to set the agent's label")
	require.Equal(t, map[string]string{"note": "1"}, c.GetAnnotations())
	require.Nil(t, c.GetDnsConfig(), "must be empty, because the runtime copies the host's")
	require.Equal(t, []*runtimeapi.PortMapping{
		{ContainerPort: 80}, {Protocol: runtimeapi.Protocol_UDP, ContainerPort: 53, HostPort: 5353, HostIp: "127.0.0.1"},
	}, c.GetPortMappings())
	sc := c.GetLinux().GetSecurityContext()
	require.True(t, sc.GetPrivileged())
	require.Equal(t, int64(7), sc.GetRunAsUser().GetValue())
	require.Equal(t, int64(8), sc.GetRunAsGroup().GetValue())
	require.Equal(t, []int64{9}, sc.GetSupplementalGroups())
	require.Equal(t, runtimeapi.NamespaceMode_POD, sc.GetNamespaceOptions().GetNetwork())
	require.Equal(t, runtimeapi.SecurityProfile_RuntimeDefault, sc.GetSeccomp().GetProfileType(), "the sandbox must have the profile, although its containers have none")
}

func TestSandboxConfig_PrivilegedInitContainer(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	require.False(t, podrunner.SandboxConfig(pod, 0, testNode()).GetLinux().GetSecurityContext().GetPrivileged())
	pod.Spec.InitContainers = []corev1.Container{{
		Name: "tune", SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
		Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}},
	}}
	c := podrunner.SandboxConfig(pod, 0, testNode())
	require.True(t, c.GetLinux().GetSecurityContext().GetPrivileged(), "must be privileged, because the runtime otherwise rejects the container")
	require.Empty(t, c.GetPortMappings(), "port mappings must be the kubelet's")
}

func TestPortMappings_DuplicatesInAContainerAreRemoved(t *testing.T) {
	t.Parallel()
	pod := testPod()
	twice := []corev1.ContainerPort{
		{ContainerPort: 80, Protocol: corev1.ProtocolUDP},
		{ContainerPort: 80, Protocol: corev1.ProtocolUDP},
		{Name: "web", ContainerPort: 81},
		{Name: "web", ContainerPort: 82},
		{ContainerPort: 80},
	}
	pod.Spec.Containers = []corev1.Container{{Name: "app", Ports: twice}, {Name: "other", Ports: twice[:1]}}
	require.Equal(t, []*runtimeapi.PortMapping{
		{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 80},
		{ContainerPort: 81},
		{ContainerPort: 80},
		{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 80},
	}, podrunner.SandboxConfig(pod, 0, testNode()).GetPortMappings(), "duplicate ports of one container must be removed")
}

// The kubelet reports the first problem in this order, and a status shows only one.
func TestContainerConfig_ReportsProblemsInTheKubeletsOrder(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: new(true)}
	c := &corev1.Container{
		Name:          "app",
		VolumeDevices: []corev1.VolumeDevice{{Name: "disk", DevicePath: "disk"}},
		Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "k",
		}}}},
		VolumeMounts: []corev1.VolumeMount{{Name: "gone", MountPath: "/gone", SubPathExpr: "$(MISSING)", RecursiveReadOnly: new(corev1.RecursiveReadOnlyEnabled)}},
	}
	in := podrunner.Instance{Image: &runtimeapi.Image{Uid: &runtimeapi.Int64Value{}}, Volumes: map[string]string{}}
	for _, step := range []struct {
		want string
		mend func()
	}{
		{"error DevicePath `disk` must be an absolute path", func() { c.VolumeDevices = nil }},
		{`"none"`, func() { c.Env = nil }},
		{`cannot find volume "gone" to mount into container "app"`, func() { in.Volumes["gone"] = "/volumes/gone" }},
		{"missing value for", func() { c.VolumeMounts[0].SubPathExpr = "" }},
		{"failed to resolve recursive read-only mode", func() { c.VolumeMounts = nil }},
		{"container has runAsNonRoot and image will run as root", func() { in.Image.Uid.Value = 1 }},
	} {
		_, err := podrunner.ContainerConfig(t.Context(), pod, c, in, testNode())
		require.ErrorContains(t, err, step.want)
		step.mend()
	}
	_, err := podrunner.ContainerConfig(t.Context(), pod, c, in, testNode())
	require.NoError(t, err)
}

func TestSandboxConfig_HostNamespaces(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.HostNetwork, pod.Spec.HostPID, pod.Spec.HostIPC = true, true, true
	pod.Spec.Containers = []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
	c := podrunner.SandboxConfig(pod, 0, testNode())
	require.Empty(t, c.GetHostname(), "must be empty, because the pod uses the host's name")
	require.Equal(t, []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}}, c.GetPortMappings(), "port mappings must be the kubelet's")
	o := c.GetLinux().GetSecurityContext().GetNamespaceOptions()
	require.Equal(t, runtimeapi.NamespaceMode_NODE, o.GetNetwork())
	require.Equal(t, runtimeapi.NamespaceMode_NODE, o.GetPid())
	require.Equal(t, runtimeapi.NamespaceMode_NODE, o.GetIpc())
}

func TestHostname(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 62)
	override := testPod()
	override.Spec.Hostname, override.Spec.HostnameOverride = "front", new("db.example.test")
	require.Equal(t, "db.example.test", podrunner.SandboxConfig(override, 0, testNode()).GetHostname())
	for name, c := range map[string]struct{ hostname, pod, want string }{
		"the pod's name":                 {"", "web", "web"},
		"its hostname":                   {"front", "web", "front"},
		"cut to 63, not ending in -":     {"", long + "--and-more", long},
		"not cut in the middle of a dot": {"", long + "..more", long},
	} {
		pod := testPod()
		pod.Name, pod.Spec.Hostname = c.pod, c.hostname
		require.Equal(t, c.want, podrunner.SandboxConfig(pod, 0, testNode()).GetHostname(), name)
	}
}

func TestSandboxConfig_DNSPolicyNoneUsesDNSConfig(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.DNSPolicy = corev1.DNSNone
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.53"}, Searches: []string{"example.test"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}},
	}
	require.Equal(t, &runtimeapi.DNSConfig{
		Servers: []string{"192.0.2.53"}, Searches: []string{"example.test"}, Options: []string{"ndots:2", "edns0"},
	}, podrunner.SandboxConfig(pod, 0, testNode()).GetDnsConfig())
}

func TestContainerConfig(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.TerminationGracePeriodSeconds = new(int64(12))
	c := corev1.Container{
		Name: "app", Image: "registry.test/app:1", WorkingDir: "/srv",
		Command: []string{"/app", "--name=$(NAME)"}, Args: []string{"$(UNKNOWN)", "$$(NAME)"},
		Env: []corev1.EnvVar{
			{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "HELLO", Value: "hello $(NAME) $(LATER)"},
			{Name: "LATER", Value: "x"},
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	got, err := podrunner.ContainerConfig(t.Context(), pod, &c, podrunner.Instance{Attempt: 4, Image: &runtimeapi.Image{Id: "sha256:1"}}, testNode())
	require.NoError(t, err)
	require.Equal(t, &runtimeapi.ContainerMetadata{Name: "app", Attempt: 4}, got.GetMetadata())
	require.Equal(t, "sha256:1", got.GetImage().GetImage())
	require.Equal(t, "registry.test/app:1", got.GetImage().GetUserSpecifiedImage())
	require.Equal(t, []string{"/app", "--name=pod"}, got.GetCommand())
	require.Equal(t, []string{"$(UNKNOWN)", "$(NAME)"}, got.GetArgs())
	require.Equal(t, "/srv", got.GetWorkingDir())
	require.Equal(t, "app/4.log", got.GetLogPath())
	require.Equal(t, []string{"NAME=pod", "HELLO=hello pod $(LATER)", "LATER=x"}, variables(got))
	require.Equal(t, map[string]string{
		crilabels.Hash:                      podspec.KubeletHash(&c),
		crilabels.Definition:                podspec.ContainerHash(&c),
		crilabels.RestartCount:              "4",
		crilabels.TerminationMessagePath:    "/dev/termination-log",
		crilabels.TerminationMessagePolicy:  "File",
		crilabels.PodTerminationGracePeriod: "12",
	}, got.GetAnnotations())
	require.Equal(t, "agent", got.GetLabels()[crilabels.Agent])
	require.Equal(t, "app", got.GetLabels()[crilabels.ContainerName])
}

func TestDownwardFields(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Labels = map[string]string{"app": "web"}
	pod.Annotations = map[string]string{"a/b": "note"}
	pod.Spec.ServiceAccountName = "robot"
	ips := []string{"10.0.0.1", "fd00::1"}
	for path, want := range map[string]string{
		"metadata.name": "pod", "metadata.namespace": "ns", "metadata.uid": "uid",
		"spec.nodeName": "node1", "spec.serviceAccountName": "robot",
		"status.hostIP": "192.0.2.7", "status.hostIPs": "192.0.2.7,2001:db8::7",
		"status.podIP": "10.0.0.1", "status.podIPs": "10.0.0.1,fd00::1",
		"metadata.labels['app']": "web", "metadata.annotations['a/b']": "note", "metadata.labels['none']": "",
	} {
		got, err := podrunner.ContainerConfig(t.Context(), pod, withField(path), podrunner.Instance{PodIPs: ips}, testNode())
		require.NoError(t, err, path)
		require.Equal(t, "V="+want, variables(got)[0], path)
	}
	for _, path := range []string{"", "spec.containers", "metadata.labels", "metadata.labels['app'"} {
		_, err := podrunner.ContainerConfig(t.Context(), pod, withField(path), podrunner.Instance{PodIPs: ips}, testNode())
		require.ErrorContains(t, err, "unsupported fieldPath: "+path)
	}
	pod.Spec.HostNetwork = true
	got, err := podrunner.ContainerConfig(t.Context(), pod, withField("status.podIP"), podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Equal(t, "V=192.0.2.7", variables(got)[0], "the pod's address must be the host's")
}

// variables returns NAME=VALUE of each environment variable. The type of a
// value depends on the version of cri-api.
func variables(c *runtimeapi.ContainerConfig) []string {
	var out []string
	for _, e := range c.GetEnvs() {
		out = append(out, fmt.Sprintf("%s=%s", e.GetKey(), e.GetValue()))
	}
	return out
}

func withField(path string) *corev1.Container {
	return &corev1.Container{Env: []corev1.EnvVar{{
		Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}},
	}}}
}

func TestExpansion(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"$(A)":          "1",
		"$(A)$(B)":      "1two",
		"x$(A)y":        "x1y",
		"$(NO)":         "$(NO)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$":             "$",
		"$$":            "$",
		"$A":            "$A",
		"$(A":           "$(A",
		"$()":           "$()",
		"$(A) $ $(B) $": "1 $ two $",
	} {
		c := &corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "two"}}, Args: []string{in}}
		got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, []string{want}, got.GetArgs(), "%q", in)
	}
}

func TestResources(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	for name, c := range map[string]struct {
		requests, limits corev1.ResourceList
		want             *runtimeapi.LinuxContainerResources
	}{
		"nothing asked": {want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 1000}},
		"guaranteed": {
			requests: list("500m", "1Gi"), limits: list("500m", "1Gi"),
			want: &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 1 << 30, OomScoreAdj: -997},
		},
		"burstable, a quarter of the memory": {
			requests: list("2", "2Gi"),
			want:     &runtimeapi.LinuxContainerResources{CpuShares: 2048, CpuPeriod: 100000, OomScoreAdj: 750},
		},
		"burstable, a byte": {
			requests: list("", "1"),
			want:     &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 999},
		},
		"burstable, all of it": {
			requests: list("", "8Gi"),
			want:     &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, OomScoreAdj: 3},
		},
		"a limit alone is the request too": {
			limits: list("1", ""),
			want:   &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100000, CpuQuota: 100000, OomScoreAdj: 999},
		},
		"the smallest": {
			requests: list("1m", ""), limits: list("1m", ""),
			want: &runtimeapi.LinuxContainerResources{CpuShares: 2, CpuPeriod: 100000, CpuQuota: 1000, OomScoreAdj: 999},
		},
		"more than a cgroup takes": {
			requests: list("300", ""), limits: list("300", ""),
			want: &runtimeapi.LinuxContainerResources{CpuShares: 262144, CpuPeriod: 100000, CpuQuota: 30_000_000, OomScoreAdj: 999},
		},
		"more than can be counted": {
			requests: list("9P", "8E"), limits: list("9P", "9E"),
			want: &runtimeapi.LinuxContainerResources{
				CpuShares: 262144, CpuPeriod: 100000, CpuQuota: 1 << 40 * 100, MemoryLimitInBytes: 9e18, OomScoreAdj: 3,
			},
		},
	} {
		pod := testPod()
		pod.Spec.Containers = []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}}}
		got, err := podrunner.ContainerConfig(t.Context(), pod, &pod.Spec.Containers[0], podrunner.Instance{}, testNode())
		require.NoError(t, err)
		require.Equal(t, c.want.String(), got.GetLinux().GetResources().String(), name)
	}
}
