package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestMetadataField_ReturnsWhatThePathSelects(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Namespace: "shop", UID: "u1", Labels: map[string]string{"app": "web", "it's": "odd"}, Annotations: map[string]string{"a": "b"},
	}}
	for path, want := range map[string]string{
		"metadata.name": "web", "metadata.namespace": "shop", "metadata.uid": "u1",
		"metadata.labels['app']": "web", "metadata.labels['it's']": "odd", "metadata.labels['missing']": "", "metadata.annotations['a']": "b",
	} {
		got, err := podspec.MetadataField(pod, path)
		require.NoError(t, err, path)
		require.Equal(t, want, got, path)
	}
	for path, want := range map[string]string{
		"metadata.labels":      "unsupported fieldPath: metadata.labels",
		"metadata.labels['app": "unsupported fieldPath: metadata.labels['app",
		"metadata.name['x']":   `fieldPath "metadata.name['x']" does not support subscript`,
		"":                     "unsupported fieldPath: ",
	} {
		_, err := podspec.MetadataField(pod, path)
		require.EqualError(t, err, want)
	}
}

func TestResourceField_ReturnsUnitsOfTheDivisor(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("1250m"), "memory": resource.MustParse("1000001"), "hugepages-2Mi": resource.MustParse("4Mi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("0"), "hugepages-2Mi": resource.MustParse("4Mi")},
	}}
	defaults := corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "hugepages-1Gi": resource.MustParse("1Gi")}
	for _, test := range []struct{ resource, divisor, want, err string }{
		{resource: "requests.cpu", want: "2"},
		{resource: "requests.cpu", divisor: "1m", want: "1250"},
		{resource: "requests.memory", divisor: "1M", want: "2"},
		{resource: "limits.cpu", want: "2"},
		{resource: "limits.memory", divisor: "1Gi", want: "8"}, // a limit of zero is no limit
		{resource: "limits.ephemeral-storage", want: "0"},      // neither a limit nor a default
		{resource: "requests.ephemeral-storage", want: "0"},
		{resource: "limits.hugepages-2Mi", divisor: "1Mi", want: "4"},
		{resource: "limits.hugepages-1Gi", want: "0"}, // huge pages have no default
		{resource: "limits.gpu", err: "unsupported container resource : limits.gpu"},
		{resource: "uses.cpu", err: "unsupported container resource : uses.cpu"},
		{resource: "", err: "unsupported container resource : "},
		{resource: "requests.cpu", divisor: "-1", err: "divisor -1 is not positive"},
	} {
		ref := &corev1.ResourceFieldSelector{Resource: test.resource}
		if test.divisor != "" {
			ref.Divisor = resource.MustParse(test.divisor)
		}
		got, err := podspec.ResourceField(ref, c, defaults)
		if test.err != "" {
			require.EqualError(t, err, test.err)
			continue
		}
		require.NoError(t, err, test.resource)
		require.Equal(t, test.want, got, test.resource)
	}
}
