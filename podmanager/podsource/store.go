package podsource

import (
	"context"
	"errors"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

// ErrNotRead is returned by a [Store] whose source has not been read yet. The objects are
// then unknown. Do not treat ErrNotRead as NotFound: an optional object may exist.
var ErrNotRead = errors.New("the source has not been read yet")

// Store holds the ConfigMaps and Secrets among the manifests of a source. Create it with
// [NewStore], or use the zero value, and set it in the config of one source; all methods
// are safe for concurrent use. The objects are shared and must not be modified.
//
// Errors and logs never contain the data of the objects. The Store keeps the data in
// memory. It does not check the permissions of the manifests.
type Store struct {
	mu      sync.RWMutex
	claimed bool
	read    bool
	objects Objects
	changes coalesce.Signal
}

// Objects are ConfigMaps and Secrets by namespace and name. Neither the maps nor the
// objects may be modified.
type Objects struct {
	ConfigMaps map[types.NamespacedName]*corev1.ConfigMap
	Secrets    map[types.NamespacedName]*corev1.Secret
}

// NewStore returns an empty Store whose source has not been read yet. It starts nothing.
func NewStore() *Store { return new(Store) }

// ConfigMap returns a ConfigMap of the pod's namespace. If the ConfigMap does not exist,
// the error is a NotFound error like that of the API server. Until the source has been
// read, the error is [ErrNotRead].
func (s *Store) ConfigMap(_ context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return find(s.objects.ConfigMaps, s.read, "configmaps", pod.Namespace, name)
}

// Secret returns a Secret of the pod's namespace. If the Secret does not exist, the error
// is a NotFound error like that of the API server. Until the source has been read, the
// error is [ErrNotRead].
func (s *Store) Secret(_ context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return find(s.objects.Secrets, s.read, "secrets", pod.Namespace, name)
}

// Release does nothing, because a Store watches no objects for a pod.
func (s *Store) Release(types.UID) {}

func find[T any](all map[types.NamespacedName]*T, read bool, resource, namespace, name string) (*T, error) {
	if !read {
		return nil, ErrNotRead
	}
	if found := all[types.NamespacedName{Namespace: namespace, Name: name}]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(resource), namespace+"/"+name)
}

// Snapshot returns a consistent snapshot of all objects, and reports whether the source has
// been read. The maps are shared and never change.
func (s *Store) Snapshot() (objects Objects, read bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects, s.read
}

// Subscribe returns a channel that receives a message after a change. The channel already
// has a first message when Subscribe returns. A message does not contain the change;
// changes in quick succession may cause a single message. A slow reader delays no other
// caller. The channel is closed soon after ctx is done.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.changes.Subscribe(ctx) }

// claim reserves the Store for one source, because two sources would overwrite each other's
// objects.
func (s *Store) claim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed {
		return errors.New("field Store: another source uses it")
	}
	s.claimed = true
	return nil
}

// set replaces all objects. An object with unchanged content keeps its pointer.
func (s *Store) set(objects []metav1.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := Objects{
		ConfigMaps: make(map[types.NamespacedName]*corev1.ConfigMap),
		Secrets:    make(map[types.NamespacedName]*corev1.Secret),
	}
	for _, object := range objects {
		name := types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
		switch o := object.(type) {
		case *corev1.ConfigMap:
			fresh.ConfigMaps[name] = keepEqual(s.objects.ConfigMaps[name], o)
		case *corev1.Secret:
			fresh.Secrets[name] = keepEqual(s.objects.Secrets[name], o)
		}
	}
	if s.read && maps.Equal(fresh.ConfigMaps, s.objects.ConfigMaps) && maps.Equal(fresh.Secrets, s.objects.Secrets) {
		return
	}
	s.objects, s.read = fresh, true
	s.changes.Notify()
}

func keepEqual[T any](old, fresh *T) *T {
	if equality.Semantic.DeepEqual(old, fresh) {
		return old
	}
	return fresh
}
