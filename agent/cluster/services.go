package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// services are all services of the cluster, for the environment variables of containers.
type services struct{ watched *watched[*corev1.Service] }

func newServices(cfg Config) *services {
	api := cfg.Client.CoreV1().Services(corev1.NamespaceAll)
	w := newWatched(&corev1.Service{}, cfg, kind[*corev1.ServiceList]{api.List, api.Watch}, "")
	w.trim = trimService
	return &services{w}
}

// trimService removes the fields that environment variables do not need. A cluster may have
// thousands of services.
func trimService(s *corev1.Service) {
	s.Labels, s.Annotations, s.OwnerReferences, s.Finalizers = nil, nil, nil, nil
	s.Spec = corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports}
	s.Status = corev1.ServiceStatus{}
}

func (s *services) run(ctx context.Context) { s.watched.run(ctx) }

// list returns the services of a namespace. It returns an error until the services are known.
func (s *services) list(namespace string) ([]*corev1.Service, error) {
	if !s.watched.isKnown() {
		return nil, fmt.Errorf("the services are not known yet: %w", s.watched.notSynced())
	}
	return s.watched.all(func(service *corev1.Service) bool { return service.Namespace == namespace }), nil
}

// of returns the services of the pods' namespaces and of the namespace default, sorted by namespace
// and name. The containers of the pods may have environment variables for these services.
func (s *services) of(pods []*corev1.Pod) []*corev1.Service {
	namespaces := map[string]bool{metav1.NamespaceDefault: true} // has the service of the API server
	for _, p := range pods {
		namespaces[p.Namespace] = true
	}
	found := s.watched.all(func(service *corev1.Service) bool { return namespaces[service.Namespace] })
	slices.SortFunc(found, func(a, b *corev1.Service) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return found
}

// runtimeClasses are all runtime classes of the cluster.
type runtimeClasses struct {
	watched *watched[*nodev1.RuntimeClass]
}

func newRuntimeClasses(cfg Config) *runtimeClasses {
	api := cfg.Client.NodeV1().RuntimeClasses()
	return &runtimeClasses{newWatched(&nodev1.RuntimeClass{}, cfg, kind[*nodev1.RuntimeClassList]{api.List, api.Watch}, "")}
}

func (r *runtimeClasses) run(ctx context.Context) { r.watched.run(ctx) }

// all returns all runtime classes, sorted by name.
func (r *runtimeClasses) all() []*nodev1.RuntimeClass {
	found := r.watched.all(func(*nodev1.RuntimeClass) bool { return true })
	slices.SortFunc(found, func(a, b *nodev1.RuntimeClass) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// handler returns the runtime handler of a runtime class. The empty class has the empty handler,
// which is the runtime's default.
func (r *runtimeClasses) handler(class string) (string, error) {
	if class == "" {
		return "", nil
	}
	if !r.watched.isKnown() {
		return "", fmt.Errorf("the runtime classes are not known yet: %w", r.watched.notSynced())
	}
	found, ok := r.watched.get("", class)
	if !ok {
		return "", fmt.Errorf("RuntimeClass %q does not exist", class)
	}
	return found.Handler, nil
}
