package podspec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSource(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name           string
		annotations    map[string]string
		static, mirror bool
	}{
		{"no annotations", nil, false, false},
		{"from the API server", map[string]string{podspec.SourceAnnotation: "api"}, false, false},
		{"from a file", map[string]string{podspec.SourceAnnotation: "file"}, true, false},
		{"from http", map[string]string{podspec.SourceAnnotation: "http"}, true, false},
		{"a mirror", map[string]string{podspec.SourceAnnotation: "api", podspec.MirrorAnnotation: ""}, false, true},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tt.annotations}}
		require.Equal(t, tt.static, podspec.IsStatic(pod), tt.name)
		require.Equal(t, tt.mirror, podspec.IsMirror(pod), tt.name)
	}
	require.Equal(t, "kubernetes.io/config.mirror", podspec.MirrorAnnotation)
	require.Equal(t, "kubernetes.io/config.hash", podspec.HashAnnotation)
	require.Equal(t, "kubernetes.io/config.seen", podspec.SeenAnnotation)
}

func TestFullName(t *testing.T) {
	t.Parallel()
	require.Equal(t, "web_shop", podspec.FullName(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}))
}

func TestContainerReference(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid", ResourceVersion: "7"},
		Spec: corev1.PodSpec{
			InitContainers:      []corev1.Container{{Name: "init"}},
			Containers:          []corev1.Container{{Name: "app"}},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
	}
	for name, path := range map[string]string{
		"init": "spec.initContainers{init}", "app": "spec.containers{app}", "debug": "spec.ephemeralContainers{debug}", "other": "",
	} {
		require.Equal(t, &corev1.ObjectReference{
			Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web", UID: "uid", ResourceVersion: "7", FieldPath: path,
		}, podspec.ContainerReference(pod, name))
	}
}

func TestIsTerminal(t *testing.T) {
	t.Parallel()
	for phase, want := range map[corev1.PodPhase]bool{
		"": false, corev1.PodPending: false, corev1.PodRunning: false, corev1.PodUnknown: false,
		corev1.PodSucceeded: true, corev1.PodFailed: true,
	} {
		require.Equal(t, want, podspec.IsTerminal(phase), phase)
	}
}

func TestContainers_InOrderAndByReference(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i1"}, {Name: "i2", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "c1"}, {Name: "c2"}},
	}
	var got []string
	for c, init := range podspec.Containers(spec) {
		got = append(got, fmt.Sprint(c.Name, " ", init, " ", podspec.IsSidecar(c)))
	}
	require.Equal(t, []string{"i1 true false", "i2 true true", "c1 false false", "c2 false false"}, got)

	for stop := 1; stop <= 4; stop++ { // a caller may stop the iteration at any container
		seen := 0
		for c := range podspec.Containers(spec) {
			c.Image = "seen"
			if seen++; seen == stop {
				break
			}
		}
		require.Equal(t, stop, seen)
	}
	require.Equal(t, "seen", spec.Containers[1].Image)
}

func TestContainer(t *testing.T) {
	t.Parallel()
	spec := &corev1.PodSpec{
		InitContainers:      []corev1.Container{{Name: "i"}},
		Containers:          []corev1.Container{{Name: "a"}, {Name: "b"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}}},
	}
	require.Same(t, &spec.InitContainers[0], podspec.Container(spec, "i"))
	require.Same(t, &spec.Containers[1], podspec.Container(spec, "b"))
	require.Nil(t, podspec.Container(spec, "e"))
}

func TestShouldRestart(t *testing.T) {
	t.Parallel()
	always, onFailure, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever
	rule := func(action corev1.ContainerRestartRuleAction, op corev1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: op, Values: codes}}
	}
	const (
		restart = corev1.ContainerRestartRuleActionRestart
		in      = corev1.ContainerRestartRuleOnExitCodesOpIn
		notIn   = corev1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	for _, tt := range []struct {
		name  string
		pod   corev1.RestartPolicy
		own   *corev1.ContainerRestartPolicy
		rules []corev1.ContainerRestartRule
		// want is the result for exit codes 0, 1 and 42.
		want [3]bool
	}{
		{"pod says Always", corev1.RestartPolicyAlways, nil, nil, [3]bool{true, true, true}},
		{"pod says OnFailure", corev1.RestartPolicyOnFailure, nil, nil, [3]bool{false, true, true}},
		{"pod says Never", corev1.RestartPolicyNever, nil, nil, [3]bool{}},
		{"pod has no policy", "", nil, nil, [3]bool{true, true, true}},
		{"an unknown policy", "Sometimes", nil, nil, [3]bool{true, true, true}},
		{"own Always beats Never", corev1.RestartPolicyNever, &always, nil, [3]bool{true, true, true}},
		{"own OnFailure beats Never", corev1.RestartPolicyNever, &onFailure, nil, [3]bool{false, true, true}},
		{"own Never beats Always", corev1.RestartPolicyAlways, &never, nil, [3]bool{}},
		{"a rule beats the own policy", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule(restart, in, 42)}, [3]bool{false, false, true}},
		{"a rule that excludes", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule(restart, notIn, 0, 1)}, [3]bool{false, false, true}},
		{"restart of all containers", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule(corev1.ContainerRestartRuleActionRestartAllContainers, in, 1)}, [3]bool{false, true, false}},
		{"any of several rules", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule(restart, in, 1), rule(restart, in, 42)}, [3]bool{false, true, true}},
		{"no rule matches", corev1.RestartPolicyAlways, &onFailure, []corev1.ContainerRestartRule{rule(restart, in, 7)}, [3]bool{false, true, true}},
		{"rules without an own policy", corev1.RestartPolicyNever, nil, []corev1.ContainerRestartRule{rule(restart, in, 42)}, [3]bool{}},
		{"a rule without exit codes", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{{Action: restart}}, [3]bool{}},
		{"a rule with an unknown action", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule("Explode", in, 1)}, [3]bool{}},
		{"a rule with an unknown operator", corev1.RestartPolicyNever, &never, []corev1.ContainerRestartRule{rule(restart, "Near", 1)}, [3]bool{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: tt.pod}}
			c := &corev1.Container{RestartPolicy: tt.own, RestartPolicyRules: tt.rules}
			for i, code := range []int32{0, 1, 42} {
				require.Equal(t, tt.want[i], podspec.ShouldRestart(pod, c, code), "exit code %d", code)
			}
		})
	}
}

func TestContainerHash(t *testing.T) {
	t.Parallel()
	c := corev1.Container{Name: "main", Image: "a:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}
	// The hash is a literal, because containers outlive the process that
	// computed their hashes.
	require.Equal(t, "8da78d3bceecc0ce", podspec.ContainerHash(&c))

	resized := c
	resized.Resources = resources("cpu=1", "cpu=1")
	resized.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceCPU}}
	require.Equal(t, podspec.ContainerHash(&c), podspec.ContainerHash(&resized), "a change of resources must not change the hash, because resources change in place")
	require.NotEmpty(t, resized.ResizePolicy, "the argument must not be modified")

	for name, edit := range map[string]func(*corev1.Container){
		"image":   func(c *corev1.Container) { c.Image = "a:2" },
		"command": func(c *corev1.Container) { c.Command = []string{"sh"} },
		"env":     func(c *corev1.Container) { c.Env = nil },
	} {
		other := c
		edit(&other)
		require.NotEqual(t, podspec.ContainerHash(&c), podspec.ContainerHash(&other), name)
	}
}

func TestHash_ValueWithoutJSONForm(t *testing.T) {
	t.Parallel()
	require.Empty(t, podspec.Hash(func() {}))
	require.Len(t, podspec.Hash(nil), 16)
}

// resources parses lists such as "cpu=1 memory=2Gi".
func resources(requests, limits string) corev1.ResourceRequirements {
	parse := func(s string) corev1.ResourceList {
		list := corev1.ResourceList{}
		for field := range strings.FieldsSeq(s) {
			name, value, _ := strings.Cut(field, "=")
			list[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		return list
	}
	return corev1.ResourceRequirements{Requests: parse(requests), Limits: parse(limits)}
}

func TestQOSClass(t *testing.T) {
	t.Parallel()
	const best, burst, sure = corev1.PodQOSBestEffort, corev1.PodQOSBurstable, corev1.PodQOSGuaranteed
	full := resources("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")
	for _, tt := range []struct {
		name string
		want corev1.PodQOSClass
		all  []corev1.ResourceRequirements
	}{
		{"nothing asked", best, []corev1.ResourceRequirements{{}, {}}},
		{"no containers", best, nil},
		{"zero requests are no requests", best, []corev1.ResourceRequirements{resources("cpu=0", "memory=0")}},
		{"other resources do not count", best, []corev1.ResourceRequirements{resources("ephemeral-storage=1Gi", "hugepages-2Mi=4Mi")}},
		{"limits equal requests", sure, []corev1.ResourceRequirements{full, full}},
		{"limits alone", sure, []corev1.ResourceRequirements{resources("", "cpu=1 memory=1Gi")}},
		{"equal in other words", sure, []corev1.ResourceRequirements{resources("cpu=1000m memory=1024Mi", "cpu=1 memory=1Gi")}},
		{"an explicit zero request", burst, []corev1.ResourceRequirements{resources("cpu=0", "cpu=1 memory=1Gi")}},
		{"a smaller request", burst, []corev1.ResourceRequirements{resources("cpu=500m memory=1Gi", "cpu=1 memory=1Gi")}},
		{"requests alone", burst, []corev1.ResourceRequirements{resources("cpu=1 memory=1Gi", "")}},
		{"one resource of two", burst, []corev1.ResourceRequirements{resources("cpu=1", "cpu=1")}},
		{"one container of two", burst, []corev1.ResourceRequirements{full, {}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{}
			for _, r := range tt.all {
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Resources: r})
			}
			require.Equal(t, tt.want, podspec.QOSClass(pod))
		})
	}
}

func TestQOSClass_CountsInitContainers(t *testing.T) {
	t.Parallel()
	full := resources("", "cpu=1 memory=1Gi")
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{}},
		Containers:     []corev1.Container{{Resources: full}},
	}}
	require.Equal(t, corev1.PodQOSBurstable, podspec.QOSClass(pod))
}

func TestQOSClass_PrecedenceOfStatusAndPodLevelResources(t *testing.T) {
	t.Parallel()
	level, own := resources("", "cpu=1 memory=1Gi"), resources("cpu=1", "")
	pod := &corev1.Pod{Spec: corev1.PodSpec{Resources: &level, Containers: []corev1.Container{{Resources: own}}}}
	require.Equal(t, corev1.PodQOSGuaranteed, podspec.QOSClass(pod), "the pod-level resources must replace the containers'")
	pod.Spec.Resources = &corev1.ResourceRequirements{}
	require.Equal(t, corev1.PodQOSBestEffort, podspec.QOSClass(pod), "an empty field must not change the class")
	pod.Status.QOSClass = corev1.PodQOSBurstable
	require.Equal(t, corev1.PodQOSBurstable, podspec.QOSClass(pod), "the class in the status must have precedence")
}

// Computed by HashContainer of k8s.io/kubernetes v1.36.3.
func TestKubeletHash(t *testing.T) {
	t.Parallel()
	require.Equal(t, "f8890d80", podspec.KubeletHash(&corev1.Container{Name: "web", Image: "registry.example/web:1"}))
	require.Equal(t, "cf9d861", podspec.KubeletHash(&corev1.Container{Name: "<&>", Image: "é"}))
}

func TestRuntimeID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{"containerd://4f5e": "4f5e", "4f5e": "4f5e", "": "", "cri-o://": ""} {
		require.Equal(t, want, podspec.RuntimeID(id), id)
	}
}
