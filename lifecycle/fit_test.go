package lifecycle_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	extended  corev1.ResourceName = "foo.com/bar"
	draBacked corev1.ResourceName = "deviceclass.resource.kubernetes.io/bar"
	huge      corev1.ResourceName = "hugepages-2Mi"
)

// res builds a resource list from names and quantities.
func res(kv ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func podAsking(kv ...string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Name: "c", Resources: corev1.ResourceRequirements{Requests: res(kv...)}},
	}}}
}

// machine returns the node of upstream's tests: 10m of CPU, 20 bytes, 32 pods.
func machine(labels map[string]string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "machine1", Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: res("cpu", "10m", "memory", "20", "pods", "32")},
	}
}

func static(pod *corev1.Pod) *corev1.Pod {
	pod.Annotations = map[string]string{podspec.SourceAnnotation: "file"}
	return pod
}

func podOnPorts(ports ...corev1.ContainerPort) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: ports}}}}
}

// podWantingFoo runs only on nodes that have the label foo.
func podWantingFoo() *corev1.Pod {
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "foo", Operator: corev1.NodeSelectorOpExists},
	}}}
	return static(&corev1.Pod{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}}})
}

func reasons(failures []lifecycle.AdmissionFailure) (all []string) {
	for _, m := range failures {
		all = append(all, m.Reason+": "+m.Message)
	}
	return all
}

const (
	wrongAffinity = "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
	wrongName     = "NodeName: Predicate NodeName failed: node(s) didn't match the requested node name"
	wrongPorts    = "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
	wrongTaints   = "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
)

// Upstream's TestGeneralPredicates, except the cases that read the node again:
// those are in TestNodeHandler_ReadsTheNodeAgain.
func TestGeneralPredicates(t *testing.T) {
	t.Parallel()
	foo := corev1.Taint{Key: "foo", Effect: corev1.TaintEffectNoSchedule}
	bar := corev1.Taint{Key: "bar", Effect: corev1.TaintEffectNoExecute}
	named := podWantingFoo()
	named.Spec.NodeName = "some-node-name"
	for _, tt := range []struct {
		name   string
		pod    *corev1.Pod
		others []*corev1.Pod
		node   *corev1.Node
		want   []string
	}{
		{
			"no resources, port or host requested always fits",
			&corev1.Pod{},
			[]*corev1.Pod{podAsking("cpu", "9m", "memory", "19"), nil},
			machine(nil), nil,
		},
		{
			"not enough cpu and memory", podAsking("cpu", "8m", "memory", "10"),
			[]*corev1.Pod{podAsking("cpu", "5m", "memory", "19")},
			machine(nil),
			[]string{
				"OutOfcpu: Node didn't have enough resource: cpu, requested: 8, used: 5, capacity: 10",
				"OutOfmemory: Node didn't have enough resource: memory, requested: 10, used: 19, capacity: 20",
			},
		},
		{"host does not match", &corev1.Pod{Spec: corev1.PodSpec{NodeName: "machine2"}}, nil, machine(nil), []string{wrongName}},
		{"host matches", &corev1.Pod{Spec: corev1.PodSpec{NodeName: "machine1"}}, nil, machine(nil), nil},
		{
			"host port conflict", podOnPorts(corev1.ContainerPort{HostPort: 123}),
			[]*corev1.Pod{podOnPorts(corev1.ContainerPort{HostPort: 123})},
			machine(nil),
			[]string{wrongPorts},
		},
		{
			"taints are tolerated", &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "foo"}, {Key: "bar"}}}},
			nil, machine(nil, foo, bar), nil,
		},
		{"NoSchedule is not tolerated", &corev1.Pod{}, nil, machine(nil, foo), nil},
		{"NoExecute is not tolerated", &corev1.Pod{}, nil, machine(nil, foo, bar), []string{wrongTaints}},
		{"PreferNoSchedule is not tolerated", &corev1.Pod{}, nil, machine(nil, corev1.Taint{Key: "baz", Effect: corev1.TaintEffectPreferNoSchedule}), nil},
		{"static pods ignore taints", static(&corev1.Pod{}), nil, machine(nil, foo, bar), nil},
		{"node affinity does not match", podWantingFoo(), nil, machine(nil), []string{wrongAffinity}},
		{"node affinity matches", podWantingFoo(), nil, machine(map[string]string{"foo": "bar"}), nil},
		{"neither affinity nor name match", named, nil, machine(nil), []string{wrongAffinity, wrongName}},
		{
			"the node selector does not match", &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}}},
			nil, machine(map[string]string{"disk": "hdd"}),
			[]string{wrongAffinity},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, reasons(lifecycle.FitsAll(tt.pod, tt.others, tt.node)))
		})
	}
	require.Nil(t, lifecycle.FitsNode(&corev1.Pod{}, machine(nil)))
	require.Equal(t, lifecycle.NodeAffinity, lifecycle.FitsNode(named, machine(nil)).Reason)
	named = &corev1.Pod{Spec: corev1.PodSpec{NodeName: "some-node-name"}}
	require.Equal(t, lifecycle.NodeName, lifecycle.FitsNode(named, machine(nil)).Reason)
}

func TestFitsResources_ChecksEveryKindOfResource(t *testing.T) {
	t.Parallel()
	node := machine(nil)
	node.Status.Allocatable = res("cpu", "1", "memory", "1Gi", "ephemeral-storage", "10", "pods", "1",
		string(extended), "1", "a.com/x", "0")
	pod := podAsking("cpu", "1001m", "ephemeral-storage", "11", string(extended), "2", string(huge), "2Mi",
		"attachable-volumes-aws", "1", "a.com/x", "1", "other", "5", "memory", "0")
	failures := lifecycle.FitsResources(pod, []*corev1.Pod{{}}, node)
	var got []string
	for _, m := range failures {
		require.Equal(t, lifecycle.InsufficientResourcePrefix+string(m.Resource), m.Reason)
		got = append(got, m.Reason)
	}
	require.Equal(t, []string{
		lifecycle.OutOfPods, lifecycle.OutOfCPU, lifecycle.OutOfEphemeralStorage,
		"OutOfa.com/x", "OutOfattachable-volumes-aws", "OutOffoo.com/bar", "OutOfhugepages-2Mi",
	}, got)
	require.Equal(t, "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1", failures[0].Message)
	require.EqualValues(t, 1, failures[0].Missing())
	require.EqualValues(t, 1, failures[1].Missing(), "missing CPU in milli-units")
	require.Equal(t, "OutOfmemory", lifecycle.OutOfMemory)
}

func TestNodeAffinity_EveryOperator(t *testing.T) {
	t.Parallel()
	node := machine(map[string]string{"zone": "a", "cpus": "8", "word": "many"})
	expr := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	field := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	both := func(a, b corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{
			MatchExpressions: append(a.MatchExpressions, b.MatchExpressions...), MatchFields: append(a.MatchFields, b.MatchFields...),
		}
	}
	for _, tt := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		fits  bool
	}{
		{"in", []corev1.NodeSelectorTerm{expr("zone", "In", "b", "a")}, true},
		{"in others", []corev1.NodeSelectorTerm{expr("zone", "In", "b")}, false},
		{"not in", []corev1.NodeSelectorTerm{expr("zone", "NotIn", "a")}, false},
		{"not in, without the label", []corev1.NodeSelectorTerm{expr("rack", "NotIn", "a")}, true},
		{"exists", []corev1.NodeSelectorTerm{expr("zone", "Exists")}, true},
		{"does not exist", []corev1.NodeSelectorTerm{expr("zone", "DoesNotExist")}, false},
		{"greater", []corev1.NodeSelectorTerm{expr("cpus", "Gt", "7")}, true},
		{"not greater", []corev1.NodeSelectorTerm{expr("cpus", "Gt", "8")}, false},
		{"less", []corev1.NodeSelectorTerm{expr("cpus", "Lt", "9")}, true},
		{"not less", []corev1.NodeSelectorTerm{expr("cpus", "Lt", "8")}, false},
		{"greater than no number", []corev1.NodeSelectorTerm{expr("cpus", "Gt", "x")}, false},
		{"no number, greater", []corev1.NodeSelectorTerm{expr("word", "Gt", "1")}, false},
		{"the node by name", []corev1.NodeSelectorTerm{field("metadata.name", "In", "machine1")}, true},
		{"another node by name", []corev1.NodeSelectorTerm{field("metadata.name", "In", "machine2")}, false},
		{"any node except this node", []corev1.NodeSelectorTerm{field("metadata.name", "NotIn", "machine1")}, false},
		{"another field", []corev1.NodeSelectorTerm{field("metadata.uid", "In", "machine1")}, false},
		{"an unknown operator", []corev1.NodeSelectorTerm{expr("zone", "Like", "a")}, false},
		{"all of a term", []corev1.NodeSelectorTerm{both(expr("zone", "Exists"), field("metadata.name", "In", "machine2"))}, false},
		{"one of the terms", []corev1.NodeSelectorTerm{expr("zone", "In", "b"), expr("cpus", "Exists")}, true},
		{"one of the terms, and another term is invalid", []corev1.NodeSelectorTerm{expr("cpus", "Gt", "x"), expr("cpus", "Exists")}, true},
		{"an empty term", []corev1.NodeSelectorTerm{{}}, false},
		{"no terms", nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := podWantingFoo()
			pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = tt.terms
			require.Equal(t, tt.fits, lifecycle.FitsNode(pod, node) == nil)
		})
	}
	none := podWantingFoo()
	none.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
	require.Nil(t, lifecycle.FitsNode(none, node))
}

// Amounts beyond int64 must not overflow and look small.
func TestFitsResources_AmountsBeyondInt64(t *testing.T) {
	t.Parallel()
	const most = "9223372036854775807"
	node := machine(nil)
	giant := podAsking("cpu", most, "memory", most)
	giant.Spec.Containers = append(giant.Spec.Containers, giant.Spec.Containers[0])
	for _, others := range [][]*corev1.Pod{nil, {giant}, {giant, giant, giant}} {
		failures := lifecycle.FitsResources(giant, others, node)
		require.Len(t, failures, 2)
		for i, m := range failures {
			require.Equal(t, []string{lifecycle.OutOfCPU, lifecycle.OutOfMemory}[i], m.Reason)
			require.EqualValues(t, math.MaxInt64, m.Requested)
			require.Positive(t, m.Missing())
		}
		if len(others) > 0 {
			require.Len(t, lifecycle.FitsResources(podAsking("cpu", "1m"), others, node), 1)
		}
	}
	owing := podAsking("memory", "-100")
	require.Len(t, lifecycle.FitsResources(podAsking("memory", "21"), []*corev1.Pod{owing}, node), 1, "negative requests must count as zero")
}

func TestFitsResources_SidecarsOverheadAndPodLevelResources(t *testing.T) {
	t.Parallel()
	node := machine(nil)
	node.Status.Allocatable = res("cpu", "4", "pods", "10")
	one := podAsking("cpu", "1").Spec.Containers[0]
	side := one
	side.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	held := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{side}, Containers: []corev1.Container{one}, Overhead: res("cpu", "1"),
	}}
	require.Empty(t, lifecycle.FitsResources(podAsking("cpu", "1"), []*corev1.Pod{held}, node))
	require.Len(t, lifecycle.FitsResources(podAsking("cpu", "1001m"), []*corev1.Pod{held}, node), 1)
	whole := podAsking("cpu", "100m")
	whole.Spec.Resources = &corev1.ResourceRequirements{Requests: res("cpu", "2")}
	require.Len(t, lifecycle.FitsResources(whole, []*corev1.Pod{held}, node), 1)
}

// Upstream's TestRemoveMissingExtendedResources.
func TestRemoveMissingExtendedResources(t *testing.T) {
	t.Parallel()
	podWith := func(requests, limits corev1.ResourceList) *corev1.Pod {
		c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{c}, InitContainers: []corev1.Container{c}}}
	}
	byDriver := func(name corev1.ResourceName) *corev1.Pod {
		pod := podWith(res(string(name), "1"), res(string(name), "1"))
		pod.Spec.InitContainers = nil
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
			RequestMappings: []corev1.ContainerExtendedResourceRequest{
				{ContainerName: "other", ResourceName: string(name)}, {ContainerName: "c", ResourceName: string(name)},
			},
		}
		return pod
	}
	mine := res(string(extended), "1")
	for _, tt := range []struct {
		name        string
		pod         *corev1.Pod
		allocatable corev1.ResourceList
		want        []string
	}{
		{"a limit of a resource that the node does not have is ignored", podWith(nil, mine), res("foo.com/baz", "1"), nil},
		{"a request of a resource that the node has is counted", podWith(mine, nil), mine, nil},
		{"a request that exceeds the allocatable amount is refused", podWith(res(string(extended), "2"), nil), mine, []string{"OutOffoo.com/bar"}},
		{"a request of a resource that the node does not have is ignored", podWith(mine, nil), res("foo.com/baz", "1"), nil},
		{"a resource of which the node has 0 is counted", podWith(mine, mine), res(string(extended), "0"), []string{"OutOffoo.com/bar"}},
		{"a resource that is missing in the node is ignored, with a limit too", podWith(mine, mine), nil, nil},
		{"a resource that a DRA driver serves is ignored if the node has 0", byDriver(extended), res(string(extended), "0"), nil},
		{"a resource that a DRA driver serves is ignored if it is missing in the node", byDriver(extended), nil, nil},
		{"a device class that a DRA driver serves is ignored", byDriver(draBacked), nil, nil},
		{"a device class without a resource claim is counted", podAsking(string(draBacked), "1"), nil, []string{"OutOf" + string(draBacked)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			node := machine(nil)
			node.Status.Allocatable = tt.allocatable.DeepCopy()
			if node.Status.Allocatable == nil {
				node.Status.Allocatable = res()
			}
			node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("9")
			before := tt.pod.DeepCopy()
			var got []string
			for _, m := range lifecycle.FitsResources(tt.pod, nil, node) {
				got = append(got, m.Reason)
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, before, tt.pod, "the pod must not be modified")
		})
	}
}

func TestHostPorts(t *testing.T) {
	t.Parallel()
	init := podOnPorts()
	init.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	side := init.DeepCopy()
	side.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	port := func(ip string, protocol corev1.Protocol) *corev1.Pod {
		return podOnPorts(corev1.ContainerPort{ContainerPort: 1}, corev1.ContainerPort{HostPort: 80, HostIP: ip, Protocol: protocol})
	}
	for _, tt := range []struct {
		name  string
		a, b  *corev1.Pod
		clash bool
	}{
		{"the same", port("", ""), port("0.0.0.0", corev1.ProtocolTCP), true},
		{"another protocol", port("", ""), port("", corev1.ProtocolUDP), false},
		{"two addresses", port("10.0.0.1", ""), port("10.0.0.2", ""), false},
		{"one address", port("10.0.0.1", ""), port("10.0.0.1", ""), true},
		{"one address and all", port("10.0.0.1", ""), port("", ""), true},
		{"another port", port("", ""), podOnPorts(corev1.ContainerPort{HostPort: 81}), false},
		{"no host port", port("", ""), podOnPorts(corev1.ContainerPort{ContainerPort: 80}), false},
		{"a sidecar's", port("", ""), side, true},
		{"an init container's", port("", ""), init, false},
	} {
		require.Equal(t, tt.clash, lifecycle.FitsHostPorts(tt.a, []*corev1.Pod{nil, tt.b}) != nil, tt.name)
		require.Equal(t, tt.clash, lifecycle.FitsHostPorts(tt.b, []*corev1.Pod{tt.a}) != nil, tt.name+", with exchanged arguments")
	}
}

func TestTolerations(t *testing.T) {
	t.Parallel()
	taint := corev1.Taint{Key: "cpu", Value: "8", Effect: corev1.TaintEffectNoExecute}
	for _, tt := range []struct {
		name       string
		toleration corev1.Toleration
		want       bool
	}{
		{"everything", corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{"the key", corev1.Toleration{Key: "cpu", Operator: corev1.TolerationOpExists}, true},
		{"another key", corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}, false},
		{"the value", corev1.Toleration{Key: "cpu", Value: "8"}, true},
		{"another value", corev1.Toleration{Key: "cpu", Operator: corev1.TolerationOpEqual, Value: "9"}, false},
		{"the effect", corev1.Toleration{Key: "cpu", Value: "8", Effect: taint.Effect}, true},
		{"another effect", corev1.Toleration{Key: "cpu", Value: "8", Effect: corev1.TaintEffectNoSchedule}, false},
		{"less than", corev1.Toleration{Key: "cpu", Operator: corev1.TolerationOpLt, Value: "9"}, false},
		{"greater than", corev1.Toleration{Key: "cpu", Operator: corev1.TolerationOpGt, Value: "-7"}, false},
		{"an unknown operator", corev1.Toleration{Key: "cpu", Operator: "Near", Value: "8"}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "x"}, tt.toleration}}}
		require.Equal(t, tt.want, lifecycle.Tolerates(pod, &taint), tt.name)
	}
}

// Upstream's TestRejectPodAdmissionBasedOnOSSelector and ...OSField.
func TestOperatingSystem(t *testing.T) {
	t.Parallel()
	label := func(os string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: os}}}
	}
	field := func(os corev1.OSName) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{OS: &corev1.PodOS{Name: os}}}
	}
	require.Nil(t, lifecycle.FitsOS(&corev1.Pod{}, "linux"))
	require.Nil(t, lifecycle.FitsOS(label("linux"), "linux"))
	require.Nil(t, lifecycle.FitsOS(field("windows"), "windows"))
	require.Equal(t, &lifecycle.AdmissionFailure{
		Reason:  "PodOSSelectorNodeLabelDoesNotMatch",
		Message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
	}, lifecycle.FitsOS(label("dummyOS"), "linux"))
	require.Equal(t, &lifecycle.AdmissionFailure{
		Reason: "PodOSNotSupported", Message: "Failed to admit pod as the OS field doesn't match node OS",
	}, lifecycle.FitsOS(field("dummyOS"), "linux"))
}

// Upstream's TestPodAdmissionBasedOnSupplementalGroupsPolicy, restricted to the cases with
// the feature.
func TestSupplementalGroupsPolicy(t *testing.T) {
	t.Parallel()
	with := &corev1.Node{Status: corev1.NodeStatus{Features: &corev1.NodeFeatures{SupplementalGroupsPolicy: new(true)}}}
	without := []*corev1.Node{
		{},
		{Status: corev1.NodeStatus{Features: &corev1.NodeFeatures{}}},
		{Status: corev1.NodeStatus{Features: &corev1.NodeFeatures{SupplementalGroupsPolicy: new(false)}}},
	}
	policy := func(p *corev1.SupplementalGroupsPolicy) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{SecurityContext: &corev1.PodSecurityContext{SupplementalGroupsPolicy: p}}}
	}
	strict := policy(new(corev1.SupplementalGroupsPolicyStrict))
	require.Nil(t, lifecycle.FitsGroupsPolicy(strict, with))
	for _, node := range without {
		for _, pod := range []*corev1.Pod{{}, policy(nil), policy(new(corev1.SupplementalGroupsPolicyMerge))} {
			require.Nil(t, lifecycle.FitsGroupsPolicy(pod, node))
		}
		require.Equal(t, &lifecycle.AdmissionFailure{
			Reason:  "SupplementalGroupsPolicyNotSupported",
			Message: "SupplementalGroupsPolicy=Strict is not supported in this node",
		}, lifecycle.FitsGroupsPolicy(strict, node))
	}
}
