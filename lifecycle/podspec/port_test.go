package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

func TestPortNumber(t *testing.T) {
	t.Parallel()
	c := &corev1.Container{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "81", ContainerPort: 8081}, {Name: "off"}, {ContainerPort: 8082}}}
	for _, tt := range []struct {
		port intstr.IntOrString
		want int
		err  string
	}{
		{intstr.FromInt32(80), 80, ""},
		{intstr.FromInt32(65535), 65535, ""},
		{intstr.FromInt32(65536), 0, "invalid port number: 65536"},
		{intstr.FromInt32(0), 0, "invalid port number: 0"},
		{intstr.FromInt32(-1), 0, "invalid port number: -1"},
		{intstr.FromString("http"), 8080, ""},
		{intstr.FromString("81"), 8081, ""},
		{intstr.FromString("82"), 82, ""},
		{intstr.FromString("-1"), 0, "invalid port number: -1"},
		{intstr.FromString("off"), 0, "invalid port number: 0"},
		{intstr.FromString("nope"), 0, `strconv.Atoi: parsing "nope": invalid syntax`},
		{intstr.FromString(""), 8082, ""}, // the first port without a name
	} {
		got, err := podspec.PortNumber(tt.port, c)
		require.Equal(t, tt.want, got, tt.port)
		if tt.err == "" {
			require.NoError(t, err, tt.port)
		} else {
			require.EqualError(t, err, tt.err, tt.port)
		}
	}
}
