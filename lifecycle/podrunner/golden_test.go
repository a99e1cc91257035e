package podrunner_test

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// TestConfig reads pods from testdata/config and prints the configurations of their sandboxes
// and containers. A case is
//
//	pod [cgroup=v2] [bare] [attempt=3]
//	MANIFEST
//
// "bare" is a node whose facts are all unknown. Otherwise the node is in a cluster. After a
// deliberate change run: go test ./lifecycle/podrunner -run TestConfig -rewrite
func TestConfig(t *testing.T) {
	datadriven.Walk(t, "testdata/config", func(t *testing.T, file string) {
		t.Helper()
		datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			require.Equal(t, "pod", d.Cmd)
			pod := &corev1.Pod{}
			require.NoError(t, yaml.UnmarshalStrict([]byte(d.Input), pod))
			node := podrunner.Node{Agent: "agent", LogRoot: "/var/log/pods", Facts: podrunner.Facts{Name: "node1", IPs: []string{"192.0.2.7"}}}
			if !d.HasArg("bare") {
				node = clusterNode()
			}
			node.Cgroups.V2 = d.HasArg("cgroup")
			attempt := 0
			d.MaybeScanArgs(t, "attempt", &attempt)
			return showPod(t, pod, uint32(attempt), node)
		})
	})
}

func clusterNode() podrunner.Node {
	node := envNode()
	node.LogRoot, node.SeccompRoot, node.AppArmor, node.SELinux = "/var/log/pods", "/var/lib/kubelet/seccomp", true, true
	node.ClusterDNS, node.ClusterDomain = []string{"10.96.0.10"}, "cluster.local"
	node.DNS.Host = &podrunner.ResolvConf{Servers: []string{"192.0.2.53"}, Searches: []string{"example.test"}}
	node.HostsFile = []byte("127.0.0.1 localhost node1\n")
	node.Cgroups = podrunner.Cgroups{SwapAccounting: true, HugePageSizes: []int64{2 << 20}}
	node.CgroupParent = func(pod *corev1.Pod) string { return "/kubepods/pod" + string(pod.UID) }
	node.UnsafeSysctls = []string{"net.core.*"}
	node.RuntimeHandler = func(class string) (string, error) { return "handler-of-" + class, nil }
	node.Handler = func(string) *runtimeapi.RuntimeHandlerFeatures {
		return &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true, RecursiveReadOnlyMounts: true}
	}
	node.Runtime = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	node.UserNamespace = func(types.UID) (podrunner.IDRange, bool) { return podrunner.IDRange{First: 65536, Length: 65536}, true }
	node.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse("10Gi")
	return node
}

func showPod(t *testing.T, pod *corev1.Pod, attempt uint32, node podrunner.Node) string {
	t.Helper()
	var b strings.Builder
	show := func(title string, err error, m proto.Message) {
		fmt.Fprintf(&b, "# %s\n", title)
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			return
		}
		b.WriteString(messageYAML(t, m))
	}
	for _, err := range []error{podrunner.Admit(pod, node), podrunner.CheckSandbox(pod, node)} {
		if err != nil {
			fmt.Fprintf(&b, "refused: %v\n", err)
		}
	}
	show("sandbox", nil, podrunner.SandboxConfig(pod, attempt, node))
	ips := []string{"10.0.0.5", "fd00::5"}
	hosts, err := podrunner.EtcHosts(pod, ips, node)
	require.NoError(t, err)
	fmt.Fprintf(&b, "# hosts: %q\n", hosts)
	for c := range podspec.Containers(&pod.Spec) {
		in := podrunner.Instance{
			Attempt: attempt, PodIPs: ips, Image: &runtimeapi.Image{Id: "sha256:" + c.Image, Username: "www"},
			Volumes: map[string]string{}, ImageVolumes: map[string]*runtimeapi.ImageSpec{},
			EtcHosts: "/pods/etc-hosts", TerminationLog: "/pods/containers/" + c.Name + "/0",
			SubPath: func(m podrunner.SubPathMount) (string, error) {
				return path.Join("/pods/volume-subpaths", m.Volume, m.Container, fmt.Sprint(m.Index)), nil
			},
		}
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				in.ImageVolumes[v.Name] = &runtimeapi.ImageSpec{Image: v.Image.Reference}
				continue
			}
			in.Volumes[v.Name] = "/pods/volumes/" + v.Name
		}
		config, err := podrunner.ContainerConfig(t.Context(), pod, c, in, node)
		show("container "+c.Name, err, config)
	}
	return b.String()
}

// messageYAML shows the fields of a message that are set. The type of
// environment variables and the names of signals depend on the version of
// cri-api.
func messageYAML(t *testing.T, m proto.Message) string {
	t.Helper()
	raw, err := protojson.Marshal(m)
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	if c, ok := m.(*runtimeapi.ContainerConfig); ok && len(c.GetEnvs()) > 0 {
		fields["envs"] = variables(c)
	}
	if s, ok := fields["stopSignal"].(string); ok {
		fields["stopSignal"] = strings.TrimPrefix(s, "SIGNAL_")
	}
	text, err := yaml.Marshal(fields)
	require.NoError(t, err)
	return string(text)
}
