package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

const (
	savedPrefix = "statuses/"
	savedSuffix = ".json"

	podVersion = "v1"
	podKind    = "Pod"
)

// Store keeps values by key. Put replaces a value whole or not at all, and it is durable
// when Put has returned. Delete of an unknown key is no error. Keys returns the keys that
// begin with prefix. The stores of package agent/state are two.
//
// A store may have a method PutUnsynced with the signature of Put, whose value may be lost
// or damaged if the machine loses power.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Saved is a [Sink] that keeps the status of each pod in a [Store], for a node without an
// API server: a Pod in JSON with its name, UID and status, by the key
// "statuses/<UID>.json". [Saved.Status] returns what an earlier process left, after
// [Saved.Load]. Make it with [NewSaved]. Its methods are safe for concurrent use, those of
// one pod one at a time.
//
// How a pod ended is durable when Publish returns. The status of a pod that lives is stored
// with PutUnsynced if the store has it: a machine that loses power ends the pod as well. In
// a folder, such a status may then be old, or empty, which Load names in its error and
// ignores. To sync each of them would cost a node of 50 starting pods a twentieth of its
// time.
type Saved struct {
	store Store

	mu        sync.Mutex // also held while statuses are deleted
	found     map[types.UID]corev1.PodStatus
	forgotten map[types.UID]bool // which the store may still have
}

// NewSaved returns a sink into a store, which it does not call yet.
func NewSaved(store Store) *Saved {
	return &Saved{store: store, found: map[types.UID]corev1.PodStatus{}, forgotten: map[types.UID]bool{}}
}

// Load reads the statuses in the store. The error joins those that cannot be read; the
// others count all the same.
func (s *Saved) Load(ctx context.Context) error {
	keys, err := s.store.Keys(ctx, savedPrefix)
	if err != nil {
		err = fmt.Errorf("saved statuses: %w", err)
	}
	errs := []error{err}
	for _, key := range keys {
		if strings.HasSuffix(key, savedSuffix) {
			errs = append(errs, s.load(ctx, key))
		}
	}
	return errors.Join(errs...)
}

func (s *Saved) load(ctx context.Context, key string) error {
	body, err := s.store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("saved status: %w", err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return fmt.Errorf("saved status %s: %w", key, err)
	}
	if pod.APIVersion != podVersion || pod.Kind != podKind {
		return fmt.Errorf("saved status %s: holds %q of version %q, not a pod of version %s", key, pod.Kind, pod.APIVersion, podVersion)
	}
	if key != savedKey(pod.UID) {
		return fmt.Errorf("saved status %s: holds the status of pod %q", key, pod.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[pod.UID] = pod.Status
	return nil
}

// Status returns what Load found of a pod, for [Config.Saved], until something newer is
// published. It is shared and must not be modified.
func (s *Saved) Status(uid types.UID) (corev1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.found[uid]
	return found, ok
}

// RemoveOrphans deletes the statuses of forgotten pods, and those that Load found of pods
// for which keep returns false: pods that were removed while no agent ran. It returns all
// failures, joined. The next call tries them again.
func (s *Saved) RemoveOrphans(ctx context.Context, keep func(types.UID) bool) error {
	s.mu.Lock()
	var found []types.UID
	for uid := range s.found {
		found = append(found, uid)
	}
	s.mu.Unlock()
	orphans := slices.DeleteFunc(found, keep)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, uid := range orphans {
		if _, ok := s.found[uid]; ok { // nothing newer was published
			delete(s.found, uid)
			s.forgotten[uid] = true
		}
	}
	return s.deleteForgotten(ctx)
}

// deleteForgotten deletes the statuses of forgotten pods. The caller holds mu, so that a
// pod that comes back is not published meanwhile: Status and Forget wait for the store.
func (s *Saved) deleteForgotten(ctx context.Context) error {
	var errs []error
	for uid := range s.forgotten {
		if err := s.store.Delete(ctx, savedKey(uid)); err != nil {
			errs = append(errs, fmt.Errorf("delete saved status: %w", err))
			continue
		}
		delete(s.forgotten, uid)
	}
	return errors.Join(errs...)
}

// Publish stores the pod's status.
func (s *Saved) Publish(ctx context.Context, change Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := json.MarshalIndent(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: podVersion, Kind: podKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: change.Pod.Namespace, Name: change.Pod.Name, UID: change.Pod.UID},
		Status:     change.New,
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	s.mu.Lock()
	delete(s.found, change.Pod.UID) // the new one counts from now on
	delete(s.forgotten, change.Pod.UID)
	_ = s.deleteForgotten(ctx) // what fails is tried again, and RemoveOrphans returns it
	s.mu.Unlock()
	put := s.store.Put
	if !podspec.IsTerminal(change.New.Phase) {
		if quick, ok := s.store.(unsynced); ok {
			put = quick.PutUnsynced
		}
	}
	if err := put(ctx, savedKey(change.Pod.UID), append(body, '\n')); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	return nil
}

// unsynced is what a [Store] may have besides.
type unsynced interface {
	PutUnsynced(ctx context.Context, key string, value []byte) error
}

// Forget has the next Publish or RemoveOrphans delete the pod's status. If the process ends
// before that, it is an orphan of the next process.
func (s *Saved) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found, uid)
	s.forgotten[uid] = true
}

// savedKey returns the key of a pod's status. No UID makes another path of it.
func savedKey(uid types.UID) string {
	return savedPrefix + url.PathEscape(string(uid)) + savedSuffix
}
