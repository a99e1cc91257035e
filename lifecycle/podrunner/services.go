package podrunner

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// apiServerService is the service of the API server. Every container gets the
// variables of this service.
const apiServerService = "kubernetes"

// setServices sets the variables of the API server's service. With enableServiceLinks, it also sets
// the variables of all services of the pod's namespace that have a cluster IP. If the services are
// not known yet, setServices returns no error for a static pod, because this pod may run the API
// server.
func (v *variables) setServices(pod *corev1.Pod, list func(namespace string) ([]*corev1.Service, error)) error {
	if list == nil {
		return nil
	}
	services := map[string]*corev1.Service{}
	add := func(namespace string, wanted func(*corev1.Service) bool) error {
		all, err := list(namespace)
		if err != nil && !podspec.IsStatic(pod) {
			return fmt.Errorf("list services of namespace %s for environment variables: %w", namespace, err)
		}
		for _, s := range all {
			if s.Spec.ClusterIP != "" && s.Spec.ClusterIP != corev1.ClusterIPNone && wanted(s) {
				services[s.Name] = s
			}
		}
		return nil
	}
	if err := add(metav1.NamespaceDefault, func(s *corev1.Service) bool { return s.Name == apiServerService }); err != nil {
		return err
	}
	if links := pod.Spec.EnableServiceLinks; links == nil || *links {
		if err := add(pod.Namespace, func(*corev1.Service) bool { return true }); err != nil {
			return err
		}
	}
	for _, name := range sortedKeys(services) {
		v.setService(services[name])
	}
	return nil
}

// setService sets the variables of one service: its address and ports, and the
// variables that Docker sets for linked containers.
func (v *variables) setService(s *corev1.Service) {
	name, ip := variableName(s.Name), s.Spec.ClusterIP
	v.set(name+"_SERVICE_HOST", ip)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		port, protocol := strconv.Itoa(int(p.Port)), string(cmp.Or(p.Protocol, corev1.ProtocolTCP))
		scheme := strings.ToLower(protocol)
		url := scheme + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			v.set(name+"_SERVICE_PORT", port)
			v.set(name+"_PORT", url)
		}
		if p.Name != "" {
			v.set(name+"_SERVICE_PORT_"+variableName(p.Name), port)
		}
		prefix := name + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		v.set(prefix, url)
		v.set(prefix+"_PROTO", scheme)
		v.set(prefix+"_PORT", port)
		v.set(prefix+"_ADDR", ip)
	}
}

// variableName converts the name of a service or port to a part of a variable's
// name.
func variableName(s string) string { return strings.ToUpper(strings.ReplaceAll(s, "-", "_")) }
