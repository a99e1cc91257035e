package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// object is an object of the API.
type object interface {
	metav1.Object
	runtime.Object
}

// watched has the objects that a watch of the API server returns. client-go's reflector lists
// and watches the objects, and stores them here. The reflector calls Replace only with a
// complete list, so an error or a part of a list deletes nothing.
type watched[T object] struct {
	cfg      Config
	lw       cache.ListerWatcher
	example  T
	selector string
	// trim removes the unneeded fields of a new object. Optional.
	trim func(T)
	// listed is called with all objects of each complete list, before the function changed is
	// called. Optional.
	listed func(objects []T)
	// changed is called after each change. After a complete list, it gets all objects. After
	// any other change, it gets the added or changed object, or no objects if an object was
	// deleted. The function runs in the goroutine of run, in the order of the changes. Optional.
	changed func(objects []T)

	synced chan struct{} // closed after the first complete list

	mu      sync.Mutex
	objects map[string]T // by namespace and name
	seeded  bool         // seed was called before the first complete list
	err     error        // of the last request; nil if it succeeded
}

// kind has the functions that list and watch objects of one kind.
type kind[L runtime.Object] struct {
	list  func(context.Context, metav1.ListOptions) (L, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// newWatched returns a watched without objects. It sends no request until run is called. selector
// is a field selector. An empty selector selects all objects.
func newWatched[T object, L runtime.Object](example T, cfg Config, k kind[L], selector string) *watched[T] {
	w := &watched[T]{
		cfg: cfg, example: example, selector: selector,
		synced: make(chan struct{}), objects: map[string]T{},
	}
	w.lw = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			list, err := k.list(ctx, o)
			w.record(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			events, err := k.watch(ctx, o)
			w.record(ctx, err)
			return events, opaque(err)
		},
	}, cfg.Client)
	return w
}

// The times between two attempts of the reflector are those of client-go.
const (
	minWatchBackoff = 800 * time.Millisecond
	maxWatchBackoff = 30 * time.Second
	// watchBackoffReset is how long an attempt must have lasted to reset the back-off.
	watchBackoffReset = 2 * time.Minute
)

// run lists and watches the objects until ctx is done. After an error it starts again with a
// back-off. It calls the reflector's steps itself, because the reflector's own loop reports errors
// to a handler that all users of client-go in a process share.
func (w *watched[T]) run(ctx context.Context) {
	r := cache.NewReflectorWithOptions(w.lw, w.example, store[T]{w}, cache.ReflectorOptions{
		Name: fmt.Sprintf("%T", w.example), Clock: w.cfg.Clock,
	})
	for backoff := minWatchBackoff; ; backoff = min(2*backoff, maxWatchBackoff) {
		began := w.cfg.Clock.Now()
		err := r.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return
		}
		if w.cfg.Clock.Since(began) >= watchBackoffReset {
			backoff = minWatchBackoff
		}
		wait := backoff + time.Duration(float64(backoff)*w.cfg.Random())
		if err != nil {
			w.cfg.Logger.WarnContext(ctx, "could not list and watch objects at the API server, will retry",
				"type", fmt.Sprintf("%T", w.example), "selector", w.selector, "retryIn", wait.Round(100*time.Millisecond), "err", err)
		}
		sleepUntil(ctx, w.cfg.Clock, w.cfg.Clock.Now().Add(wait))
	}
}

// opaque hides the type of an error after which the reflector itself would wait. The reflector
// would wait up to 30 s, even if its context is done. run waits instead.
func opaque(err error) error {
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		return errors.New(err.Error())
	}
	return err
}

// record records the result of a request.
func (w *watched[T]) record(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
}

// isSynced reports whether a complete list was received.
func (w *watched[T]) isSynced() bool {
	select {
	case <-w.synced:
		return true
	default:
		return false
	}
}

// seed stores the objects to use until the first complete list. After that list, seed does nothing.
func (w *watched[T]) seed(objects []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isSynced() {
		return
	}
	for _, o := range objects {
		w.objects[key(o)] = o
	}
	w.seeded = true
}

// isKnown reports whether a complete list was received or seed was called.
func (w *watched[T]) isKnown() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seeded || w.isSynced()
}

// await waits for the first complete list, at most for the given time. The error contains the error
// of the last request.
func (w *watched[T]) await(ctx context.Context, limit time.Duration) error {
	timer := w.cfg.Clock.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", w.notSynced(), ctx.Err())
	case <-timer.C():
		return w.notSynced()
	}
}

// notSynced returns why there is no complete list yet.
func (w *watched[T]) notSynced() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return fmt.Errorf("could not list and watch at the API server, will retry: %w", w.err)
	}
	return errNotListed
}

// get returns the object with this namespace and name.
func (w *watched[T]) get(namespace, name string) (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.objects[cache.ObjectName{Namespace: namespace, Name: name}.String()]
	return o, ok
}

// all returns the objects for which the given function returns true, in no particular order.
func (w *watched[T]) all(selected func(T) bool) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects := make([]T, 0, len(w.objects))
	for _, o := range w.objects {
		if selected(o) {
			objects = append(objects, o)
		}
	}
	return objects
}

// store is the reflector's view of a watched. It implements [cache.ReflectorStore].
type store[T object] struct{ *watched[T] }

// Add adds an object.
func (s store[T]) Add(obj any) error { return s.Update(obj) }

// Update adds or replaces an object.
func (s store[T]) Update(obj any) error {
	o, err := s.prepare(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.objects[key(o)] = o
	s.mu.Unlock()
	s.notify([]T{o})
	return nil
}

// Delete deletes an object.
func (s store[T]) Delete(obj any) error {
	o, err := s.prepare(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.objects, key(o))
	s.mu.Unlock()
	s.notify(nil)
	return nil
}

// Replace replaces all objects with a complete list.
func (s store[T]) Replace(list []any, _ string) error {
	objects, changed := make(map[string]T, len(list)), make([]T, 0, len(list))
	for _, obj := range list {
		o, err := s.prepare(obj)
		if err != nil {
			return err
		}
		objects[key(o)] = o
		changed = append(changed, o)
	}
	s.mu.Lock()
	s.objects = objects
	if !s.isSynced() {
		close(s.synced)
	}
	s.mu.Unlock()
	if s.listed != nil {
		s.listed(changed)
	}
	s.notify(changed)
	return nil
}

// Resync does nothing: there are no periodic resyncs.
func (s store[T]) Resync() error { return nil }

// prepare returns a copy of an object without the fields that are not needed. The object itself may
// be shared: the watches of client-go's fake clientset deliver the stored objects.
func (s store[T]) prepare(obj any) (T, error) {
	shared, ok := obj.(T)
	if !ok {
		return shared, fmt.Errorf("got an object of type %T, want %T", obj, s.example)
	}
	o := shared.DeepCopyObject().(T)
	o.SetManagedFields(nil)
	if s.trim != nil {
		s.trim(o)
	}
	return o, nil
}

func (s store[T]) notify(objects []T) {
	if s.changed != nil {
		s.changed(objects)
	}
}

func key(o metav1.Object) string {
	return cache.ObjectName{Namespace: o.GetNamespace(), Name: o.GetName()}.String()
}
