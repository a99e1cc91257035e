package status

import (
	"context"
	"crypto/sha256"
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

// Store stores values by key. Put replaces a value atomically, and the value is durable
// when Put has returned. Delete of an unknown key is not an error. Keys returns the keys
// with the given prefix. Package agent/state contains two implementations.
//
// A store may also have a method PutUnsynced with the signature of Put. A value that
// PutUnsynced has stored may be lost or damaged if the machine loses power.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// Saved is a [Sink] that stores the status of each pod in a [Store], for a node without an API
// server. The value is a Pod in JSON with its name, UID and status; the key is
// "statuses/<UID>.json". [Saved.Load] reads the statuses of an earlier process, and
// [Saved.Status] returns them. Create a Saved with [NewSaved]. Its methods are safe for
// concurrent use, except that calls of Publish and Forget for one pod must not overlap.
//
// A status with a terminal phase is durable when Publish returns. Any other status is stored
// with PutUnsynced if the store has this method, because after a power failure the pod no
// longer runs. The stored value may then be outdated or empty. Load ignores an empty value
// and names its key in the error. If every status were synced, a node with 50 starting pods
// would spend a twentieth of its time on these syncs.
type Saved struct {
	store Store

	mu        sync.Mutex // also held while statuses are deleted
	found     map[types.UID]corev1.PodStatus
	forgotten map[types.UID]bool              // the store may still contain their statuses
	stored    map[types.UID][sha256.Size]byte // the hashes of the values that Publish has stored
}

// NewSaved returns a sink for a store. It does not call the store.
func NewSaved(store Store) *Saved {
	return &Saved{store: store, found: map[types.UID]corev1.PodStatus{}, forgotten: map[types.UID]bool{}, stored: map[types.UID][sha256.Size]byte{}}
}

// Load reads the statuses in the store. It returns the joined errors of the statuses that it
// could not read, and loads all other statuses.
func (s *Saved) Load(ctx context.Context) error {
	keys, err := s.store.Keys(ctx, savedPrefix)
	if err != nil {
		err = fmt.Errorf("list saved statuses: %w", err)
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
		return fmt.Errorf("read saved status: %w", err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(body, &pod); err != nil {
		return fmt.Errorf("decode saved status %s: %w", key, err)
	}
	if pod.APIVersion != podVersion || pod.Kind != podKind {
		return fmt.Errorf("saved status %s: contains kind %q of version %q, want a Pod of version %s", key, pod.Kind, pod.APIVersion, podVersion)
	}
	if key != savedKey(pod.UID) {
		return fmt.Errorf("saved status %s: contains the status of another pod, with UID %q", key, pod.UID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found[pod.UID] = pod.Status
	return nil
}

// Status returns the status of a pod that Load has read, until a newer status of the pod is
// published. Use it as [Config.Saved]. The status is shared and must not be modified.
func (s *Saved) Status(uid types.UID) (corev1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.found[uid]
	return found, ok
}

// RemoveOrphans deletes the statuses of forgotten pods, and the loaded statuses of pods for which
// keep returns false. keep should return false for pods that were removed while no agent was
// running. RemoveOrphans returns all errors, joined. The next call retries failed deletions.
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
		if _, ok := s.found[uid]; ok { // no newer status was published
			delete(s.found, uid)
			s.forgotten[uid] = true
		}
	}
	return s.deleteForgotten(ctx)
}

// deleteForgotten deletes the statuses of forgotten pods. The caller holds mu, so that no
// new status of such a pod is published at the same time. Status and Forget wait until it
// has returned.
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

// Publish stores the pod's status. It stores nothing if the status equals the status that it
// stored last.
func (s *Saved) Publish(ctx context.Context, change Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := json.Marshal(&corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: podVersion, Kind: podKind},
		ObjectMeta: metav1.ObjectMeta{Namespace: change.Pod.Namespace, Name: change.Pod.Name, UID: change.Pod.UID},
		Status:     change.New,
	})
	if err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	body = append(body, '\n')
	hash := sha256.Sum256(body)
	s.mu.Lock()
	delete(s.found, change.Pod.UID) // the new status replaces the loaded status
	delete(s.forgotten, change.Pod.UID)
	_ = s.deleteForgotten(ctx) // failures are retried, and RemoveOrphans returns them
	before, known := s.stored[change.Pod.UID]
	unchanged := known && before == hash
	if !unchanged {
		delete(s.stored, change.Pod.UID) // if Put fails, the stored value is unknown
	}
	s.mu.Unlock()
	if unchanged {
		return nil
	}
	put := s.store.Put
	if !podspec.IsTerminal(change.New.Phase) {
		if unsynced, ok := s.store.(unsyncedStore); ok {
			put = unsynced.PutUnsynced
		}
	}
	if err := put(ctx, savedKey(change.Pod.UID), body); err != nil {
		return fmt.Errorf("save status: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[change.Pod.UID] = hash
	return nil
}

// unsyncedStore is an optional interface of a [Store].
type unsyncedStore interface {
	PutUnsynced(ctx context.Context, key string, value []byte) error
}

// Forget marks the pod's status for deletion by the next Publish or RemoveOrphans. If the
// process ends before that, the next process deletes it as an orphan.
func (s *Saved) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.found, uid)
	delete(s.stored, uid)
	s.forgotten[uid] = true
}

// savedKey returns the key of a pod's status. It escapes the UID, because a UID with slashes would
// make the key a path to another folder.
func savedKey(uid types.UID) string {
	return savedPrefix + url.PathEscape(string(uid)) + savedSuffix
}
