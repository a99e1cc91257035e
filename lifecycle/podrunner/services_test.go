package podrunner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

func serviceOf(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func serviceNode(services ...*corev1.Service) podrunner.Node {
	node := envNode()
	node.Services = func(namespace string) (all []*corev1.Service, err error) {
		for _, s := range services {
			if s.Namespace == namespace {
				all = append(all, s)
			}
		}
		return all, nil
	}
	return node
}

func TestVariablesOfServices(t *testing.T) {
	t.Parallel()
	https := corev1.ServicePort{Name: "https", Port: 443}
	api := serviceOf("default", "kubernetes", "10.96.0.1", https)
	ofAPI := map[string]string{
		"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBERNETES_SERVICE_PORT_HTTPS": "443",
		"KUBERNETES_PORT": "tcp://10.96.0.1:443", "KUBERNETES_PORT_443_TCP": "tcp://10.96.0.1:443",
		"KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": "443", "KUBERNETES_PORT_443_TCP_ADDR": "10.96.0.1",
	}
	for name, tt := range map[string]struct {
		services []*corev1.Service
		links    *bool
		env      []corev1.EnvVar
		want     map[string]string
	}{
		"the API server's in every pod": {[]*corev1.Service{api, serviceOf("default", "web", "10.96.0.2"), serviceOf("ns", "web", "10.96.0.3")}, new(false), nil, ofAPI},
		"two protocols and IPv6": {[]*corev1.Service{serviceOf("ns", "data-base", "fd00::1", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}, corev1.ServicePort{Name: "a-b", Port: 53})}, nil, nil, map[string]string{
			"DATA_BASE_SERVICE_HOST": "fd00::1", "DATA_BASE_SERVICE_PORT": "53", "DATA_BASE_SERVICE_PORT_A_B": "53",
			"DATA_BASE_PORT": "udp://[fd00::1]:53", "DATA_BASE_PORT_53_UDP": "udp://[fd00::1]:53", "DATA_BASE_PORT_53_UDP_PROTO": "udp",
			"DATA_BASE_PORT_53_UDP_PORT": "53", "DATA_BASE_PORT_53_UDP_ADDR": "fd00::1", "DATA_BASE_PORT_53_TCP": "tcp://[fd00::1]:53",
			"DATA_BASE_PORT_53_TCP_PROTO": "tcp", "DATA_BASE_PORT_53_TCP_PORT": "53", "DATA_BASE_PORT_53_TCP_ADDR": "fd00::1",
		}},
		"without an address": {[]*corev1.Service{serviceOf("ns", "a", ""), serviceOf("ns", "b", "None")}, new(true), nil, map[string]string{}},
		"the pod's own come after": {
			[]*corev1.Service{serviceOf("ns", "web", "10.96.0.3")},
			new(true),
			[]corev1.EnvVar{{Name: "AT", Value: "$(WEB_SERVICE_HOST)"}, {Name: "WEB_SERVICE_HOST", Value: "own"}},
			map[string]string{"AT": "10.96.0.3", "WEB_SERVICE_HOST": "own"},
		},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}, Spec: corev1.PodSpec{EnableServiceLinks: tt.links}}
		config, err := podrunner.ContainerConfig(t.Context(), pod, &corev1.Container{Name: "app", Env: tt.env}, podrunner.Instance{}, serviceNode(tt.services...))
		require.NoError(t, err, name)
		got := map[string]string{}
		for _, e := range config.GetEnvs() {
			got[e.GetKey()] = string(fmt.Appendf(nil, "%s", e.GetValue())) // bytes since Kubernetes v0.37
		}
		require.Equal(t, tt.want, got, name)
	}
}

func TestServices_Unknown(t *testing.T) {
	t.Parallel()
	node := envNode()
	node.Services = func(string) ([]*corev1.Service, error) { return nil, errors.New("not synced") }
	_, err := podrunner.ContainerConfig(t.Context(), &corev1.Pod{}, &corev1.Container{Name: "app"}, podrunner.Instance{}, node)
	require.EqualError(t, err, "list services of namespace default for environment variables: not synced")

	static := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"kubernetes.io/config.source": "file"}}}
	config, err := podrunner.ContainerConfig(t.Context(), static, &corev1.Container{Name: "app"}, podrunner.Instance{}, node)
	require.NoError(t, err, "it may run the API server")
	require.Empty(t, config.GetEnvs())
}
