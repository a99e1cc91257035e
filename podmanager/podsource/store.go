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

// ErrNotRead says that a [Store] does not know yet what there is: its source has not
// been read. It is no reason to take an optional reference for one to nothing.
var ErrNotRead = errors.New("the source has not been read yet")

// Store holds the ConfigMaps and Secrets that a node has beside its pods' manifests.
// Make it with [NewStore], or use the zero value, and give it to one source; all methods
// are safe for concurrent use. The objects are shared and must not be modified.
//
// What they hold is in no error and in no log. The Store keeps it in memory, and the
// files are as safe as their permissions: nothing here checks those.
type Store struct {
	mu      sync.RWMutex
	claimed bool
	read    bool
	objects Objects
	changes coalesce.Signal
}

// Objects are ConfigMaps and Secrets by namespace and name. Neither the maps nor what
// is in them may be modified.
type Objects struct {
	ConfigMaps map[types.NamespacedName]*corev1.ConfigMap
	Secrets    map[types.NamespacedName]*corev1.Secret
}

// NewStore returns a Store that knows nothing yet. It starts nothing.
func NewStore() *Store { return new(Store) }

// ConfigMap returns a ConfigMap of the pod's namespace. If there is none the error is a
// NotFound as the API server's would be, and [ErrNotRead] before anybody can know.
func (s *Store) ConfigMap(_ context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return lookUp(s.objects.ConfigMaps, s.read, "configmaps", pod.Namespace, name)
}

// Secret returns a Secret of the pod's namespace. If there is none the error is a NotFound
// as the API server's would be, and [ErrNotRead] before anybody can know.
func (s *Store) Secret(_ context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return lookUp(s.objects.Secrets, s.read, "secrets", pod.Namespace, name)
}

// Release does nothing: a Store watches nothing for a pod.
func (s *Store) Release(types.UID) {}

func lookUp[T any](all map[types.NamespacedName]*T, read bool, resource, namespace, name string) (*T, error) {
	if !read {
		return nil, ErrNotRead
	}
	if found := all[types.NamespacedName{Namespace: namespace, Name: name}]; found != nil {
		return found, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(resource), namespace+"/"+name)
}

// Snapshot returns all objects as of one moment, and whether the source has been
// read. The maps are shared and do not change any more.
func (s *Store) Snapshot() (objects Objects, read bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.objects, s.read
}

// Subscribe returns a channel that holds a message whenever something has changed
// since the last one was taken from it, and one at the beginning. It says not what;
// changes that come quickly are one message. A slow reader delays nobody. The channel
// is closed when ctx is done, or soon after.
func (s *Store) Subscribe(ctx context.Context) <-chan struct{} { return s.changes.Subscribe(ctx) }

// claim makes the Store one source's: two would take turns in it.
func (s *Store) claim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claimed {
		return errors.New("field Store: it belongs to another source")
	}
	s.claimed = true
	return nil
}

// set replaces everything. An object that says what it said before stays the same
// pointer, however its file was written.
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
			fresh.ConfigMaps[name] = orOld(s.objects.ConfigMaps[name], o)
		case *corev1.Secret:
			fresh.Secrets[name] = orOld(s.objects.Secrets[name], o)
		}
	}
	if s.read && maps.Equal(fresh.ConfigMaps, s.objects.ConfigMaps) && maps.Equal(fresh.Secrets, s.objects.Secrets) {
		return
	}
	s.objects, s.read = fresh, true
	s.changes.Notify()
}

func orOld[T any](old, fresh *T) *T {
	if equality.Semantic.DeepEqual(old, fresh) {
		return old
	}
	return fresh
}
