package podrunner_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func TestParseResolvConf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]podrunner.ResolvConf{
		"": {},
		"# nameserver 10.0.0.1\n; other\nnameserver 10.0.0.2\n nameserver\t10.0.0.3 # x\n": {Servers: []string{"10.0.0.2", "10.0.0.3"}},
		"search a b\nsearch c. d.\n":                {Searches: []string{"c", "d"}},
		"search a\nsearch\n":                        {},
		"search . a .":                              {Searches: []string{"a"}},
		"options ndots:2 x\noptions ndots:5 rotate": {Options: []string{"ndots:5", "x", "rotate"}},
		"options ndots:2 ndots:3":                   {Options: []string{"ndots:3"}},
		"domain x\nsortlist 10.0.0.0\r\n":           {},
		"nameserver 10.0.0.1\r\n":                   {Servers: []string{"10.0.0.1"}},
	} {
		got, err := podrunner.ParseResolvConf(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	got, err := podrunner.ParseResolvConf("nameserver\nsearch a\nnameserver\n")
	require.EqualError(t, err, "Encountered error while parsing resolv conf file. Error: nameserver list is empty ")
	require.Equal(t, []string{"a"}, got.Searches, "the valid lines must be used")
	_, err = podrunner.ParseResolvConf(strings.Repeat(" ", 10<<20+1))
	require.ErrorContains(t, err, "more than the limit of 10485760")
}

// FuzzParseResolvConf formats a parsed file and parses it again.
func FuzzParseResolvConf(f *testing.F) {
	f.Add("nameserver 10.0.0.1\nsearch a. b\noptions ndots:5 x\n# c")
	f.Add("nameserver\nsearch\n\x00options")
	f.Fuzz(func(t *testing.T, text string) {
		one, _ := podrunner.ParseResolvConf(text)
		var b strings.Builder
		for _, s := range one.Servers {
			fmt.Fprintf(&b, "nameserver %s\n", s)
		}
		if len(one.Options) > 0 {
			fmt.Fprintf(&b, "options %s\n", strings.Join(one.Options, " "))
		}
		two, err := podrunner.ParseResolvConf(b.String())
		require.NoError(t, err)
		require.Equal(t, one.Servers, two.Servers)
		require.Len(t, two.Options, len(one.Options))
		for _, s := range one.Searches {
			require.NotContains(t, s, " ")
		}
	})
}

func TestDNSConfig(t *testing.T) {
	t.Parallel()
	host := &podrunner.ResolvConf{Servers: []string{"192.0.2.1"}, Searches: []string{"example.test"}, Options: []string{"rotate"}}
	node := func(dns podrunner.DNS, clusterDomain string, clusterDNS ...string) podrunner.Node {
		n := testNode()
		n.DNS, n.ClusterDomain, n.ClusterDNS = dns, clusterDomain, clusterDNS
		return n
	}
	cluster := node(podrunner.DNS{Host: host}, "cluster.local", "10.96.0.10")
	const ofCluster = "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.test | ndots:5"
	const ofHost = "192.0.2.1 | example.test | rotate"
	extra := &corev1.PodDNSConfig{
		Nameservers: []string{"192.0.2.9", "192.0.2.1"}, Searches: []string{"example.test", "more.test"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("2")}, {Name: "edns0"}, {Name: "rotate", Value: new("")}},
	}
	for name, c := range map[string]struct {
		policy      corev1.DNSPolicy
		hostNetwork bool
		config      *corev1.PodDNSConfig
		node        podrunner.Node
		want        string
		warning     string
	}{
		"cluster first":                        {policy: corev1.DNSClusterFirst, node: cluster, want: ofCluster},
		"no policy":                            {node: cluster, want: ofCluster},
		"an unheard policy":                    {policy: "Unheard", node: cluster, want: ofCluster},
		"cluster first, in the host's network": {policy: corev1.DNSClusterFirst, hostNetwork: true, node: cluster, want: ofHost},
		"cluster first, though in the host's":  {policy: corev1.DNSClusterFirstWithHostNet, hostNetwork: true, node: cluster, want: ofCluster},
		"cluster first, with more": {
			policy: corev1.DNSClusterFirst, config: extra, node: cluster,
			want: "10.96.0.10 192.0.2.9 192.0.2.1 | ns.svc.cluster.local svc.cluster.local cluster.local example.test more.test | ndots:2 edns0 rotate",
		},
		"a cluster without a domain": {node: node(podrunner.DNS{Host: host}, "", "10.96.0.10"), want: "10.96.0.10 | example.test | ndots:5"},
		"no cluster": {node: node(podrunner.DNS{Host: host}, ""), want: ofHost, warning: podrunner.MissingClusterDNS +
			`: pod: "pod_ns(uid)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`},
		"the host's":            {policy: corev1.DNSDefault, node: cluster, want: ofHost},
		"the host's, with more": {policy: corev1.DNSDefault, config: extra, node: cluster, want: "192.0.2.1 192.0.2.9 | example.test more.test | rotate ndots:2 edns0"},
		"a host without any":    {policy: corev1.DNSDefault, node: node(podrunner.DNS{Host: &podrunner.ResolvConf{}}, ""), want: " |  | "},
		"no lookups":            {policy: corev1.DNSDefault, node: node(podrunner.DNS{NoLookups: true}, ""), want: "127.0.0.1 ::1 | . | "},
		"no lookups on the node": {
			policy: corev1.DNSClusterFirst, node: node(podrunner.DNS{NoLookups: true}, "c", "10.96.0.10"),
			want: "10.96.0.10 | ns.svc.c svc.c c | ndots:5",
		},
		"domains that are named twice, without a cluster's": {
			node: node(podrunner.DNS{Host: &podrunner.ResolvConf{Searches: []string{"a", "a"}}}, "", "10.96.0.10"),
			want: "10.96.0.10 | a a | ndots:5",
		},
		"an unknown host":      {policy: corev1.DNSDefault, want: "the runtime's"},
		"none":                 {policy: corev1.DNSNone, node: cluster, want: " |  | "},
		"none, with dnsConfig": {policy: corev1.DNSNone, config: extra, want: "192.0.2.9 192.0.2.1 | example.test more.test | ndots:2 edns0 rotate"},
		"too many servers": {
			policy: corev1.DNSNone, config: &corev1.PodDNSConfig{Nameservers: []string{"1", "2", "3", "4"}}, want: "1 2 3 |  | ",
			warning: "DNSConfigForming: Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: 1 2 3",
		},
		"too long a domain": {
			policy: corev1.DNSNone, config: &corev1.PodDNSConfig{Searches: []string{strings.Repeat("x", 254), "a"}}, want: " | a | ",
			warning: "DNSConfigForming: Search Line limits were exceeded, some search paths have been omitted, the applied search line is: a",
		},
	} {
		pod := testPod()
		pod.Spec.DNSPolicy, pod.Spec.DNSConfig, pod.Spec.HostNetwork = c.policy, c.config, c.hostNetwork
		before := pod.DeepCopy()
		got, warnings := podrunner.DNSConfig(pod, c.node)
		text := "the runtime's"
		if got != nil {
			text = strings.Join([]string{
				strings.Join(got.GetServers(), " "), strings.Join(got.GetSearches(), " "), strings.Join(got.GetOptions(), " "),
			}, " | ")
		}
		require.Equal(t, c.want, text, name)
		onNode := slices.IndexFunc(warnings, func(w podrunner.Warning) bool { return w.OfNode })
		if onNode >= 0 {
			require.True(t, strings.HasSuffix(c.warning, ` `+warnings[onNode].Message), name)
			warnings = slices.Delete(warnings, onNode, onNode+1)
		}
		require.Equal(t, strings.HasPrefix(c.warning, podrunner.MissingClusterDNS), onNode >= 0, name)
		if c.warning == "" {
			require.Empty(t, warnings, name)
		} else {
			require.Len(t, warnings, 1, name)
			require.Equal(t, c.warning, warnings[0].Reason+": "+warnings[0].Message, name)
		}
		require.NoError(t, podrunner.CheckSandbox(pod, c.node), name)
		require.Equal(t, before, pod, name)
	}
	require.Equal(t, []string{"rotate"}, host.Options, "the node's configuration must not be modified")
}

// If the node's resolv.conf can't be read, the DNS configuration is unknown, so
// no sandbox is created.
func TestDNSConfig_UnreadableResolvConf(t *testing.T) {
	t.Parallel()
	node := testNode()
	_, node.DNS.HostErr = podrunner.ParseResolvConf("nameserver\n")
	for _, policy := range []corev1.DNSPolicy{corev1.DNSDefault, corev1.DNSClusterFirst, corev1.DNSNone} {
		pod := testPod()
		pod.Spec.DNSPolicy = policy
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}}
		require.ErrorIs(t, podrunner.CheckSandbox(pod, node), node.DNS.HostErr)
		pod.Spec.Hostname, pod.Spec.Subdomain, pod.Spec.SetHostnameAsFQDN = strings.Repeat("h", 63), "pool", new(true)
		problems := strings.Split(podrunner.CheckSandbox(pod, node).Error(), "\n")
		require.Equal(t, node.DNS.HostErr.Error(), problems[0], "as in the kubelet, the error about resolv.conf must come first")
		require.Contains(t, problems[1], "is too long")
	}
}

func TestSearchLimits(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.DNSPolicy = corev1.DNSNone
	searches := func(n, length int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("%03d", i)+strings.Repeat("x", length-3))
		}
		return all
	}
	for name, c := range map[string]struct {
		searches []string
		want     int
	}{
		"the maximum number of domains":              {searches(32, 3), 32},
		"one domain more than the maximum":           {searches(33, 3), 32},
		"one character more than the maximum length": {append(searches(8, 249), searches(8, 49)[0]), 8}, // 8×249+7+50 = 2049
		"exactly the maximum length":                 {append(searches(8, 249), searches(8, 48)[0]), 9}, // 2048
		"one domain that is far too long":            {[]string{strings.Repeat("y", 3000)}, 0},
		"two short domains that still fit":           {append(searches(8, 253), "a", "b"), 10}, // 8×253+7+4 = 2035
	} {
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: c.searches}
		got, warnings := podrunner.DNSConfig(pod, testNode())
		require.Len(t, got.GetSearches(), c.want, name)
		require.Equal(t, c.want < len(c.searches), len(warnings) == 1, name)
	}
}

func TestCheckSandbox_DNSConfigWithUnknownResolvConf(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.Spec.DNSPolicy, pod.Spec.DNSConfig = corev1.DNSDefault, &corev1.PodDNSConfig{Searches: []string{"a"}}
	require.EqualError(t, podrunner.CheckSandbox(pod, testNode()),
		"dnsConfig can't be added to the node's resolv.conf, which is unknown (dnsPolicy Default)")
}
