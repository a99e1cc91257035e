package podrunner_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

const managed = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
	"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n"

func TestEtcHosts(t *testing.T) {
	t.Parallel()
	node := podrunner.Node{Facts: podrunner.Facts{HostsFile: []byte("127.0.0.1 node\n")}, Policy: podrunner.Policy{ClusterDomain: "cluster.local"}}
	ips := []string{"10.0.0.1", "fd00::1"}
	for name, c := range map[string]struct {
		spec corev1.PodSpec
		ips  []string
		want string
	}{
		"no address yet": {},
		"its addresses":  {ips: ips, want: managed + "10.0.0.1\tpod\nfd00::1\tpod\n"},
		"its full name":  {ips: ips[:1], spec: corev1.PodSpec{Hostname: "db", Subdomain: "sub"}, want: managed + "10.0.0.1\tdb.sub.ns.svc.cluster.local\tdb\n"},
		"the node's":     {spec: corev1.PodSpec{HostNetwork: true}, want: "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n"},
		"with its aliases": {
			ips: ips[:1], spec: corev1.PodSpec{HostAliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a", "b"}}, {IP: "::2"}}},
			want: managed + "10.0.0.1\tpod\n\n# Entries added by HostAliases.\n192.0.2.1\ta\tb\n::2\t\n",
		},
		"the node's, with aliases": {
			spec: corev1.PodSpec{HostNetwork: true, HostAliases: []corev1.HostAlias{{IP: "192.0.2.1", Hostnames: []string{"a"}}}},
			want: "# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n\n# Entries added by HostAliases.\n192.0.2.1\ta\n",
		},
	} {
		pod := testPod()
		pod.Spec = c.spec
		got, err := podrunner.EtcHosts(pod, c.ips, node)
		require.NoError(t, err, name)
		require.Equal(t, c.want, string(got), name)
	}
	pod := testPod()
	pod.Spec.Hostname = "A_B"
	_, err := podrunner.EtcHosts(pod, ips, node)
	require.ErrorContains(t, err, `pod Hostname "A_B" is not a valid DNS label: `)
}

func TestHostnameAndDomain(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40)
	for name, c := range map[string]struct {
		spec    corev1.PodSpec
		podName string
		want    string
		err     string
	}{
		"the hostname has no domain":                         {spec: corev1.PodSpec{Subdomain: "sub"}, want: "pod"},
		"the hostname has the domain with setHostnameAsFQDN": {spec: corev1.PodSpec{Subdomain: "sub", SetHostnameAsFQDN: new(true)}, want: "pod.sub.ns.svc.cluster.local"},
		"setHostnameAsFQDN without a domain":                 {spec: corev1.PodSpec{SetHostnameAsFQDN: new(true)}, want: "pod"},
		"too long with its domain": {
			spec: corev1.PodSpec{Subdomain: long, SetHostnameAsFQDN: new(true)}, want: "",
			err: "failed to construct FQDN from pod hostname and cluster domain, FQDN pod." + long +
				".ns.svc.cluster.local is too long (64 characters is the max, 65 characters requested)",
		},
		"an override gets no domain": {spec: corev1.PodSpec{Subdomain: "sub", HostnameOverride: new("a.b"), SetHostnameAsFQDN: new(true)}, want: "a.b"},
		"an override is cut, too":    {spec: corev1.PodSpec{HostnameOverride: new(long + "." + long)}, want: long + "." + long[:22]},
		"a bad override":             {spec: corev1.PodSpec{HostnameOverride: new("A")}, err: `pod HostnameOverride "A" is not a valid DNS subdomain: `},
		"a bad hostname":             {spec: corev1.PodSpec{Hostname: "a.b"}, err: `pod Hostname "a.b" is not a valid DNS label: `},
		"a bad subdomain":            {spec: corev1.PodSpec{Subdomain: "a b"}, err: `pod Subdomain "a b" is not a valid DNS label: `},
		"nothing is left":            {podName: strings.Repeat("-", 64), err: "hostname for pod"},
		"the node's":                 {spec: corev1.PodSpec{HostNetwork: true, Hostname: "A"}, want: ""},
	} {
		pod := testPod()
		pod.Spec = c.spec
		if c.podName != "" {
			pod.Name = c.podName
		}
		node := podrunner.Node{Policy: podrunner.Policy{ClusterDomain: "cluster.local"}}
		require.Equal(t, c.want, podrunner.SandboxConfig(pod, 0, node).GetHostname(), name)
		if err := podrunner.CheckSandbox(pod, node); c.err != "" {
			require.ErrorContains(t, err, c.err, name)
		} else {
			require.NoError(t, err, name)
		}
	}
}
