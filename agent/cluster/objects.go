package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// objectTimeout is how long a pod waits for an object that is not known yet. It is long enough
// for a second request, because the Node authorizer permits access only some time after the pod
// was bound to the node.
const objectTimeout = 3 * time.Second

// objects has the ConfigMaps and Secrets to which pods of the node refer. Each object has one
// watch. The watch starts at the first use of the object, and stops when the last pod that used the
// object is released, or when the object is immutable. So only the objects that the pods of the
// node use are in memory, and other objects of the namespace are never requested. objects
// implements podspec.Objects.
type objects struct {
	cfg Config
	// changed is called when an object has changed, with the pods that use it.
	changed func(pods ...types.UID)
	// released is called when a pod is released.
	released func(types.UID)

	wake chan struct{} // capacity 1; a message means that starting is not empty

	mu       sync.Mutex
	entries  map[objectKey]*entry
	starting []*entry // run starts their watches
}

// objectKey identifies a ConfigMap or a Secret.
type objectKey struct {
	resource, namespace, name string
}

// entry is an object that pods use.
type entry struct {
	watched interface{ run(ctx context.Context) } // a watched ConfigMap or Secret

	// The mutex of objects guards these fields.
	users   map[types.UID]struct{}
	known   bool               // a complete list was received
	missed  bool               // a pod did not get the object in time
	stopped bool               // the watch must not run
	cancel  context.CancelFunc // stops the watch; nil before it runs
}

func newObjects(cfg Config) *objects {
	return &objects{cfg: cfg, wake: make(chan struct{}, 1), entries: map[objectKey]*entry{}}
}

// ConfigMap implements podspec.Objects.
func (o *objects) ConfigMap(ctx context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error) {
	return lookup(ctx, o, pod, objectKey{"configmaps", pod.Namespace, name}, func(e *entry) *watched[*corev1.ConfigMap] {
		api := o.cfg.Client.CoreV1().ConfigMaps(pod.Namespace)
		w := newWatched(&corev1.ConfigMap{}, o.cfg, kind[*corev1.ConfigMapList]{api.List, api.Watch}, byName(name))
		w.changed = func(changed []*corev1.ConfigMap) {
			o.notify(e, slices.ContainsFunc(changed, func(c *corev1.ConfigMap) bool { return c.Immutable != nil && *c.Immutable }))
		}
		return w
	})
}

// Secret implements podspec.Objects.
func (o *objects) Secret(ctx context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error) {
	return lookup(ctx, o, pod, objectKey{"secrets", pod.Namespace, name}, func(e *entry) *watched[*corev1.Secret] {
		api := o.cfg.Client.CoreV1().Secrets(pod.Namespace)
		w := newWatched(&corev1.Secret{}, o.cfg, kind[*corev1.SecretList]{api.List, api.Watch}, byName(name))
		w.changed = func(changed []*corev1.Secret) {
			o.notify(e, slices.ContainsFunc(changed, func(s *corev1.Secret) bool { return s.Immutable != nil && *s.Immutable }))
		}
		return w
	})
}

func byName(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// lookup returns one object. The first pod that uses the object starts its watch.
func lookup[T object](ctx context.Context, o *objects, pod *corev1.Pod, k objectKey, newWatched func(*entry) *watched[T]) (T, error) {
	var none T
	o.mu.Lock()
	e := o.entries[k]
	if e == nil {
		e = &entry{users: map[types.UID]struct{}{}}
		e.watched = newWatched(e)
		o.entries[k] = e
		o.starting = append(o.starting, e)
		select {
		case o.wake <- struct{}{}:
		default: // run will see the entry
		}
	}
	e.users[pod.UID] = struct{}{}
	o.mu.Unlock()

	w := e.watched.(*watched[T])
	if err := w.await(ctx, objectTimeout); err != nil {
		o.mu.Lock()
		e.missed = true
		o.mu.Unlock()
		return none, fmt.Errorf("get %s %s/%s: %w", k.resource, k.namespace, k.name, err)
	}
	found, ok := w.get(k.namespace, k.name)
	if !ok {
		return none, apierrors.NewNotFound(corev1.Resource(k.resource), k.name)
	}
	return found, nil
}

// Release implements podspec.Objects. It stops the watches of objects that no other pod uses.
func (o *objects) Release(pod types.UID) {
	o.mu.Lock()
	for k, e := range o.entries {
		delete(e.users, pod)
		if len(e.users) == 0 {
			e.stopWatch()
			delete(o.entries, k)
		}
	}
	o.mu.Unlock()
	o.released(pod)
}

// stopWatch stops the watch of an object. The caller holds the mutex of objects.
func (e *entry) stopWatch() {
	e.stopped = true
	if e.cancel != nil {
		e.cancel()
	}
}

// notify informs the pods of a change of an object. It stops the watch of an immutable object.
func (o *objects) notify(e *entry, immutable bool) {
	o.mu.Lock()
	if immutable {
		e.stopWatch()
	}
	// The first list needs no notification if all pods still wait for the object.
	var users []types.UID
	if e.known || e.missed {
		for uid := range e.users {
			users = append(users, uid)
		}
	}
	e.known, e.missed = true, false
	o.mu.Unlock()
	if len(users) > 0 {
		o.changed(users...)
	}
}

// run runs the watches until ctx is done.
func (o *objects) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		o.mu.Lock()
		starting := o.starting
		o.starting = nil
		o.mu.Unlock()
		for _, e := range starting {
			wg.Go(func() { o.watch(ctx, e) })
		}
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}
	}
}

// watch watches one object until ctx is done or stopWatch is called.
func (o *objects) watch(ctx context.Context, e *entry) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	o.mu.Lock()
	stopped := e.stopped
	e.cancel = cancel
	o.mu.Unlock()
	if !stopped {
		e.watched.run(ctx)
	}
}
