package podrunner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// objects are ConfigMaps and Secrets of namespace ns. The object "broken" can't
// be read, and the object "nil" is nil.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
}

func (o objects) ConfigMap(_ context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	switch data, ok := o.configMaps[name]; {
	case name == "broken":
		return nil, errors.New("disk is gone")
	case name == "nil":
		return nil, nil
	case ok && pod.Namespace == "ns":
		return &corev1.ConfigMap{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("configmap"), name)
}

func (o objects) Secret(_ context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	switch data, ok := o.secrets[name]; {
	case name == "broken":
		return nil, errors.New("disk is gone")
	case name == "nil":
		return nil, nil
	case ok && pod.Namespace == "ns":
		return &corev1.Secret{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("secret"), name)
}

func (objects) Release(types.UID) {}

func envNode() podrunner.Node {
	node := testNode()
	node.Objects = objects{
		configMaps: map[string]map[string]string{"conf": {"b": "2", "a": "1", "A": "over"}},
		secrets:    map[string]map[string][]byte{"pass": {"word": []byte("s3cret$(A)")}},
	}
	node.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")}
	return node
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	configMap := func(name string, optional *bool) corev1.EnvFromSource {
		return corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
	}
	secret := func(name string, optional *bool) corev1.EnvFromSource {
		return corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Optional: optional}}
	}
	mapKey := func(name, key string, optional *bool) corev1.EnvVar {
		return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional,
		}}}
	}
	secretKey := func(name, key string, optional *bool) corev1.EnvVar {
		return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional,
		}}}
	}
	prefixed := configMap("conf", nil)
	prefixed.Prefix = "P_"
	plain := func(name, value string) corev1.EnvVar { return corev1.EnvVar{Name: name, Value: value} }
	for name, c := range map[string]struct {
		from []corev1.EnvFromSource
		env  []corev1.EnvVar
		want string
		err  string
	}{
		"nothing":                           {},
		"all of a map, by name":             {from: []corev1.EnvFromSource{configMap("conf", nil)}, want: "A=over a=1 b=2"},
		"with a prefix":                     {from: []corev1.EnvFromSource{prefixed}, want: "P_A=over P_a=1 P_b=2"},
		"all of a secret, not expanded":     {from: []corev1.EnvFromSource{secret("pass", nil)}, want: "word=s3cret$(A)"},
		"env replaces, in its place":        {from: []corev1.EnvFromSource{configMap("conf", nil)}, env: []corev1.EnvVar{plain("a", "new $(b)")}, want: "A=over a=new 2 b=2"},
		"the later map wins":                {from: []corev1.EnvFromSource{configMap("conf", nil), prefixed, configMap("conf", nil)}, want: "A=over a=1 b=2 P_A=over P_a=1 P_b=2"},
		"a name twice":                      {env: []corev1.EnvVar{plain("X", "1"), plain("Y", "$(X)"), plain("X", "2$(X)")}, want: "X=21 Y=1"},
		"a variable that is defined later":  {env: []corev1.EnvVar{plain("Y", "$(X)"), plain("X", "1")}, want: "Y=$(X) X=1"},
		"a key":                             {env: []corev1.EnvVar{mapKey("conf", "a", nil)}, want: "V=1"},
		"a key of a secret":                 {env: []corev1.EnvVar{secretKey("pass", "word", nil)}, want: "V=s3cret$(A)"},
		"an optional map that is absent":    {from: []corev1.EnvFromSource{configMap("no", new(true))}},
		"an optional Secret that is absent": {from: []corev1.EnvFromSource{secret("no", new(true))}},
		"an optional key, absent":           {env: []corev1.EnvVar{mapKey("conf", "no", new(true)), secretKey("pass", "no", new(true))}},
		"an optional key of an absent map":  {env: []corev1.EnvVar{mapKey("no", "a", new(true)), secretKey("no", "a", new(true))}},
		"a value wins over its source":      {env: []corev1.EnvVar{{Name: "V", Value: "x", ValueFrom: mapKey("no", "a", nil).ValueFrom}}, want: "V=x"},
		"a source without a reference":      {from: []corev1.EnvFromSource{{}}},

		"a map that is absent":              {from: []corev1.EnvFromSource{configMap("no", nil)}, err: `configmap "no" not found`},
		"not optional":                      {from: []corev1.EnvFromSource{configMap("no", new(false))}, err: `configmap "no" not found`},
		"a secret that is absent":           {from: []corev1.EnvFromSource{secret("no", nil)}, err: `secret "no" not found`},
		"a map that is nil":                 {from: []corev1.EnvFromSource{configMap("nil", nil)}, err: `configmap "nil" not found`},
		"a secret that is nil":              {from: []corev1.EnvFromSource{secret("nil", nil)}, err: `secret "nil" not found`},
		"a key that is absent":              {env: []corev1.EnvVar{mapKey("conf", "k", nil)}, err: `couldn't find key k in ConfigMap ns/conf`},
		"a key that a secret does not have": {env: []corev1.EnvVar{secretKey("pass", "k", nil)}, err: `couldn't find key k in Secret ns/pass`},
		"a key of a map that is absent":     {env: []corev1.EnvVar{mapKey("no", "k", nil)}, err: `configmap "no" not found`},
		"a key of a secret that is absent":  {env: []corev1.EnvVar{secretKey("no", "k", nil)}, err: `secret "no" not found`},
		"optional, but broken":              {env: []corev1.EnvVar{mapKey("broken", "k", new(true))}, err: `disk is gone`},
		"optional, but broken, a secret":    {from: []corev1.EnvFromSource{secret("broken", new(true))}, err: `disk is gone`},
		"no source":                         {env: []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{}}}, err: "valueFrom has no supported source"},
		"a zero byte in a value":            {env: []corev1.EnvVar{plain("V", "a\x00b")}, err: `environment variable "V": the value must not contain a zero byte`},
		"a zero byte in a name":             {env: []corev1.EnvVar{plain("V\x00", "")}, err: `environment variable "V\x00": the name must not contain '=' or a zero byte`},
		"a name that is two":                {env: []corev1.EnvVar{plain("V=1", "")}, err: `environment variable "V=1": the name must not contain '=' or a zero byte`},
	} {
		got, err := podrunner.ContainerConfig(t.Context(), testPod(), &corev1.Container{EnvFrom: c.from, Env: c.env}, podrunner.Instance{}, envNode())
		if c.err != "" {
			require.EqualError(t, err, c.err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, strings.Join(variables(got), " "), name)
	}
	for _, from := range []corev1.EnvFromSource{configMap("conf", nil), secret("conf", nil)} {
		_, err := podrunner.ContainerConfig(t.Context(), testPod(), &corev1.Container{EnvFrom: []corev1.EnvFromSource{from}}, podrunner.Instance{}, testNode())
		require.ErrorContains(t, err, `"conf" not found`, "a node without lookups must report the object as not found")
	}
}

func TestContainerConfig_ThousandVariables(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{}
	var want []string
	for i := range 1000 {
		name, value := fmt.Sprintf("VAR_%04d", i), fmt.Sprintf("line one\nline \"%d\" ü=$x", i)
		if i > 0 {
			value += fmt.Sprintf(" $(VAR_%04d)", 0)
		}
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		want = append(want, name+"="+strings.ReplaceAll(value, "$(VAR_0000)", "line one\nline \"0\" ü=$x"))
	}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Equal(t, want, variables(got))
}

// No shell interprets the arguments in a manifest: the program receives every character.
func TestContainerConfig_SpecialCharactersInArgumentsAreUnchanged(t *testing.T) {
	t.Parallel()
	var special strings.Builder
	for r := rune(1); r < 0x180; r++ {
		if r != '$' {
			special.WriteRune(r)
		}
	}
	words := []string{
		special.String(), "", " ", "\n", "'\"`\\", "$HOME ${HOME} $( ) $(", "日本語 🚀 \u202e", "-c", "--a=b c", "*?[]{}~!#&|;<>()", "\xff\xfe",
	}
	c := &corev1.Container{Command: words, Args: words}
	got, err := podrunner.ContainerConfig(t.Context(), testPod(), c, podrunner.Instance{}, testNode())
	require.NoError(t, err)
	require.Equal(t, words, got.GetCommand())
	require.Equal(t, words, got.GetArgs())
}

func TestFieldValue_MoreFields(t *testing.T) {
	t.Parallel()
	pod := testPod()
	pod.ObjectMeta = metav1.ObjectMeta{Name: "pod", Namespace: "ns", Labels: map[string]string{"it's": "odd", "": "empty"}}
	for path, want := range map[string]string{
		"spec.host": "node1", "metadata.labels['it's']": "odd", "metadata.labels['']": "empty", "metadata.annotations['x']": "",
	} {
		got, err := podrunner.FieldValue(&corev1.ObjectFieldSelector{FieldPath: path, APIVersion: "v1"}, pod, nil, testNode())
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	for path, want := range map[string]string{
		"spec.restartPolicy": "unsupported fieldPath: spec.restartPolicy", "metadata.name['x']": `fieldPath "metadata.name['x']" does not support subscript`,
		"metadata.labels[x]": "unsupported fieldPath: metadata.labels[x]",
	} {
		_, err := podrunner.FieldValue(&corev1.ObjectFieldSelector{FieldPath: path}, pod, nil, testNode())
		require.EqualError(t, err, want)
	}
	_, err := podrunner.FieldValue(&corev1.ObjectFieldSelector{FieldPath: "metadata.name", APIVersion: "v2"}, pod, nil, testNode())
	require.EqualError(t, err, "unsupported pod version: v2")
}

func TestResourceFields(t *testing.T) {
	t.Parallel()
	list := func(all ...string) corev1.ResourceList {
		l := corev1.ResourceList{}
		for _, a := range all {
			name, quantity, _ := strings.Cut(a, "=")
			l[corev1.ResourceName(name)] = resource.MustParse(quantity)
		}
		return l
	}
	pod := testPod()
	pod.Spec.Containers = []corev1.Container{
		{Name: "app", Resources: corev1.ResourceRequirements{
			Requests: list("cpu=1250m", "memory=1000001", "hugepages-2Mi=4Mi"), Limits: list("cpu=2", "hugepages-2Mi=4Mi"),
		}},
		{Name: "bare"},
	}
	allocatable := list("cpu=4", "memory=8Gi", "ephemeral-storage=10G")
	for name, c := range map[string]struct {
		container, resource, divisor string
		whole                        *corev1.ResourceRequirements
		want                         string
	}{
		"rounded up":                {resource: "requests.cpu", want: "2"},
		"in thousandths":            {resource: "requests.cpu", divisor: "1m", want: "1250"},
		"a limit":                   {resource: "limits.cpu", want: "2"},
		"memory":                    {resource: "requests.memory", want: "1000001"},
		"memory, rounded up":        {resource: "requests.memory", divisor: "1M", want: "2"},
		"no limit: the node's":      {resource: "limits.memory", divisor: "1Gi", want: "8"},
		"no limit: the pod's":       {resource: "limits.memory", divisor: "1Gi", whole: &corev1.ResourceRequirements{Limits: list("memory=2Gi")}, want: "2"},
		"no limit on storage":       {resource: "limits.ephemeral-storage", want: "10000000000"},
		"no request":                {container: "bare", resource: "requests.cpu", want: "0"},
		"another container's":       {container: "bare", resource: "limits.cpu", want: "4"},
		"huge pages":                {resource: "limits.hugepages-2Mi", divisor: "1Mi", want: "4"},
		"no huge pages":             {container: "bare", resource: "requests.hugepages-2Mi", want: "0"},
		"no huge pages, no limit":   {container: "bare", resource: "limits.hugepages-2Mi", want: "0"},
		"a container that is not":   {container: "no", resource: "limits.cpu", want: "error container no not found"},
		"a resource that is not":    {resource: "limits.gpu", want: "error unsupported container resource : limits.gpu"},
		"a kind that is not":        {resource: "uses.cpu", want: "error unsupported container resource : uses.cpu"},
		"nothing":                   {resource: "", want: "error unsupported container resource : "},
		"a divisor that divides by": {resource: "requests.cpu", divisor: "-1", want: "error divisor -1 is not positive"},
	} {
		ref := &corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource}
		if c.divisor != "" {
			ref.Divisor = resource.MustParse(c.divisor)
		}
		pod.Spec.Resources = c.whole
		got, err := podrunner.ResourceValue(ref, pod, &pod.Spec.Containers[0], allocatable)
		if err != nil {
			got = "error " + err.Error()
		}
		require.Equal(t, c.want, got, name)
	}
	got, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{Env: []corev1.EnvVar{{
		Name: "V", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}},
	}}}, podrunner.Instance{}, envNode())
	require.NoError(t, err)
	require.Equal(t, []string{"V=4"}, variables(got))
}
