package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/internal/imageref"
)

// Verification is a policy for present images. It determines whether a pod
// needs credentials with which the image was pulled. It is KEP-2535's
// imagePullCredentialsVerificationPolicy. If an image must be verified and none
// of the pod's credentials gives access, the image is pulled again with the
// pod's credentials.
type Verification string

// The policies. The default, here and in the kubelet, is
// NeverVerifyPreloadedImages.
const (
	// NeverVerify lets every pod use every image.
	NeverVerify Verification = "NeverVerify"
	// NeverVerifyPreloadedImages lets every pod use images for which
	// [Config].State has no record and no intent of a pull.
	NeverVerifyPreloadedImages Verification = "NeverVerifyPreloadedImages"
	// NeverVerifyAllowlistedImages lets every pod use the images of
	// [Policy.VerifyAllowlist].
	NeverVerifyAllowlistedImages Verification = "NeverVerifyAllowlistedImages"
	// AlwaysVerify verifies all images.
	AlwaysVerify Verification = "AlwaysVerify"
)

func (c Config) validateRecords() error {
	var errs []error
	switch c.Verify {
	case "", NeverVerify, NeverVerifyPreloadedImages, AlwaysVerify, NeverVerifyAllowlistedImages:
	default:
		errs = append(errs, fmt.Errorf("field Verify: %q is not a policy", c.Verify))
	}
	if len(c.VerifyAllowlist) > 0 && c.Verify != NeverVerifyAllowlistedImages {
		errs = append(errs, fmt.Errorf("field VerifyAllowlist: requires Verify to be %s", NeverVerifyAllowlistedImages))
	}
	for _, pattern := range c.VerifyAllowlist {
		if !IsAllowlistPattern(pattern) {
			errs = append(errs, fmt.Errorf("field VerifyAllowlist: %q is neither a repository nor a prefix of repositories that ends in /*", pattern))
		}
	}
	return errors.Join(errs...)
}

// IsAllowlistPattern reports whether pattern is a valid item of
// [Policy.VerifyAllowlist]: a repository, or a prefix of repositories that ends
// in /*.
func IsAllowlistPattern(pattern string) bool {
	n, err := imageref.Parse(strings.TrimSuffix(pattern, "/*"))
	return err == nil && n.Tag == "" && n.Digest == ""
}

// mustVerify reports whether the pod needs credentials for a present image.
func (m *Manager) mustVerify(ctx context.Context, w *wanted, present *runtimeapi.Image) bool {
	switch m.cfg.Verify {
	case NeverVerify:
		return false
	case NeverVerifyPreloadedImages:
		return m.records.known(ctx, present.GetId(), namesOf(w.name, present))
	case NeverVerifyAllowlistedImages:
		return !allowlisted(m.cfg.VerifyAllowlist, w.name.Repository)
	default:
		return true
	}
}

// namesOf returns all names of an image, because the image may have been pulled
// under a name other than the requested name.
func namesOf(wanted imageref.Ref, present *runtimeapi.Image) []string {
	keys := []string{wanted.String()}
	for _, text := range slices.Concat(present.GetRepoTags(), present.GetRepoDigests()) {
		if n, err := imageref.Parse(text); err == nil {
			keys = append(keys, n.String())
		}
	}
	return keys
}

// allowlisted reports whether a pattern of the list matches the repository.
func allowlisted(list []string, repository string) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		below, ok := strings.CutSuffix(pattern, "*")
		return pattern == repository || ok && strings.HasPrefix(repository, below)
	})
}

// A record identifies the credentials with which an image was pulled. It
// contains references and hashes, and no secrets. The credentials are stored by
// repository, because the same image may be private in one repository and
// public in another. The format of a record is the format of the kubelet's
// ImagePulledRecord.
type record struct {
	Kind        string            `json:"kind"`
	APIVersion  string            `json:"apiVersion"`
	ImageRef    string            `json:"imageRef"`
	Credentials map[string]access `json:"credentialMapping"`
}

// access describes which pods may use an image of one repository.
type access struct {
	AllPods  bool        `json:"nodePodsAccessible,omitempty"`
	Secrets  []secretUse `json:"kubernetesSecrets,omitempty"`
	Accounts []objectRef `json:"kubernetesServiceAccounts,omitempty"`
}

// secretUse identifies a credential with which a pull succeeded.
type secretUse struct {
	objectRef
	Hash string `json:"credentialHash"`
}

// allows reports whether all pods have access, or one of the credentials gives
// access. A credential gives access if a pull succeeded with the same
// credential, with an earlier content of the same Secret, or with another
// credential of the same service account.
func (a access) allows(credentials []Credential) bool {
	return a.AllPods || slices.ContainsFunc(credentials, func(c Credential) bool {
		return c.account.UID != "" && slices.Contains(a.Accounts, c.account) || slices.ContainsFunc(a.Secrets, func(s secretUse) bool {
			return s.Hash == c.contents().hash || s.UID != "" && s.objectRef == c.source
		})
	})
}

// with returns the access after a pull that succeeded with c. If no credential
// was needed, or if c belongs to the node, all pods have access. A service
// account without a UID is not recorded, because a later account of the same
// name must not get the access of this account.
func (a access) with(c Credential) access {
	switch {
	case c.belongsToNode():
		return access{AllPods: true}
	case a.AllPods, c.provider != "" && (c.account.UID == "" || slices.Contains(a.Accounts, c.account)):
		return a
	case c.provider != "":
		accounts := append(slices.Clone(a.Accounts), c.account)
		slices.SortFunc(accounts, objectRef.compare)
		return access{Secrets: a.Secrets, Accounts: accounts}
	}
	kept := slices.DeleteFunc(slices.Clone(a.Secrets), func(s secretUse) bool { return s.objectRef == c.source })
	kept = append(kept, secretUse{objectRef: c.source, Hash: c.contents().hash})
	slices.SortFunc(kept, func(x, y secretUse) int { return x.compare(y.objectRef) })
	return access{Secrets: kept, Accounts: a.Accounts}
}

// Store stores values by key. Package agent/state has two implementations.
//
//   - Get of an unknown key returns an error that is fs.ErrNotExist.
//   - Put replaces a value atomically.
//   - Delete of an unknown key returns nil.
//   - Keys returns the keys that begin with prefix.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
	Delete(ctx context.Context, key string) error
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// records stores the results of pulls. While a pull runs, the store contains an
// intent of the pull. If the result of the pull is unknown, the intent is not
// deleted, so that the image does not count as preloaded.
type records struct {
	store Store
	clock clock.PassiveClock

	mu      sync.Mutex
	written map[string]time.Time // write times of records that are too young to be pruned, by key
	intents map[string]int       // number of running pulls of each image; pulls with different credentials run at the same time

	// unknownResults are the images that a pull with an unknown result may have
	// pulled.
	unknownResults map[string]bool
	changed        func(intents, pulled int) // see Observer.RecordsChanged; may be nil
}

// pruneGrace is how long prune keeps a new record whose image is not in the
// list of present images. This list may be older than the pull.
const pruneGrace = 10 * time.Minute

// The keys are the paths that the kubelet uses for its records.
const (
	pulledPrefix  = "image_manager/pulled/"
	pullingPrefix = "image_manager/pulling/"
)

func newRecords(store Store, c clock.PassiveClock, changed func(intents, pulled int)) *records {
	if store == nil {
		store = memory{}
	}
	return &records{store: store, clock: c, written: map[string]time.Time{}, intents: map[string]int{}, unknownResults: map[string]bool{}, changed: changed}
}

// report passes the numbers of stored intents and records to r.changed. It does
// nothing if r.changed is nil or if the store can't be read. Callers hold mu.
func (r *records) report(ctx context.Context) {
	if r.changed == nil {
		return
	}
	intents, err := r.store.Keys(ctx, pullingPrefix)
	pulled, errPulled := r.store.Keys(ctx, pulledPrefix)
	if errors.Join(err, errPulled) == nil {
		r.changed(len(intents), len(pulled))
	}
}

// known reports whether a Manager with this store has pulled the image, or may
// have pulled it: a record of the image exists, or an intent for one of the
// image's names.
func (r *records) known(ctx context.Context, id string, names []string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.has(ctx, keyOf(pulledPrefix, id)) || slices.ContainsFunc(names, func(name string) bool {
		return r.has(ctx, keyOf(pullingPrefix, name))
	})
}

// has reports whether a key exists. If the store can't be read, has returns
// true, so that the image does not count as preloaded.
func (r *records) has(ctx context.Context, key string) bool {
	_, err := r.store.Get(ctx, key)
	return !errors.Is(err, fs.ErrNotExist)
}

// allow reports whether all pods have access to an image, or one of the
// credentials gives access.
func (r *records) allow(ctx context.Context, id, repository string, credentials []Credential) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, err := r.load(ctx, id)
	return rec.Credentials[repository].allows(credentials), err
}

// intend records that a pull begins.
func (r *records) intend(ctx context.Context, image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.report(ctx)
	data, err := json.Marshal(map[string]string{"kind": "ImagePullIntent", "apiVersion": recordVersion, "image": image})
	if err != nil {
		return err
	}
	if r.intents[image] == 0 && r.has(ctx, keyOf(pullingPrefix, image)) {
		// The stored intent is from an earlier pull, which a crash may have
		// interrupted.
		r.unknownResults[image] = true
	}
	if err := r.store.Put(ctx, keyOf(pullingPrefix, image), data); err != nil {
		return err
	}
	r.intents[image]++
	return nil
}

// resultUnknown records that the result of a pull is unknown.
func (r *records) resultUnknown(image string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unknownResults[image] = true
}

// failed records that a pull has ended without an image.
func (r *records) failed(ctx context.Context, image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.report(ctx)
	return r.end(ctx, image)
}

// end deletes a pull's intent. It keeps the intent if another pull of the image
// is running, or if the result of a pull is unknown.
func (r *records) end(ctx context.Context, image string) error {
	if r.intents[image]--; r.intents[image] > 0 {
		return nil
	}
	delete(r.intents, image)
	if r.unknownResults[image] {
		return nil
	}
	return r.store.Delete(ctx, keyOf(pullingPrefix, image))
}

// pulled records that a pull has ended, with the ID of the image and the
// credential that was used.
func (r *records) pulled(ctx context.Context, image, id, repository string, used Credential) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.report(ctx)
	if err := r.add(ctx, id, repository, used); err != nil {
		r.unknownResults[image] = true
		return errors.Join(err, r.end(ctx, image))
	}
	delete(r.unknownResults, image)
	return r.end(ctx, image)
}

// add records that an image was pulled with a credential.
func (r *records) add(ctx context.Context, id, repository string, used Credential) error {
	rec, err := r.load(ctx, id)
	if err != nil {
		rec = record{} // damaged or unreadable: start with an empty record
	}
	if rec.Credentials == nil {
		rec.Credentials = map[string]access{}
	}
	rec.Kind, rec.APIVersion, rec.ImageRef = "ImagePulledRecord", recordVersion, id
	rec.Credentials[repository] = rec.Credentials[repository].with(used)
	data, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	key := keyOf(pulledPrefix, id)
	r.written[key] = r.clock.Now()
	return r.store.Put(ctx, key, data)
}

// prune deletes the records of images that are not present.
func (r *records) prune(ctx context.Context, present []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.report(ctx)
	keep := map[string]bool{}
	for _, id := range present {
		keep[keyOf(pulledPrefix, id)] = true
	}
	for key, at := range r.written {
		if r.clock.Since(at) < pruneGrace {
			keep[key] = true
		} else {
			delete(r.written, key)
		}
	}
	// Also list the intents: when a store lists a prefix, it deletes the
	// incomplete files below the prefix that a killed agent has left.
	_, errPulling := r.store.Keys(ctx, pullingPrefix)
	keys, err := r.store.Keys(ctx, pulledPrefix)
	errs := []error{errPulling, err}
	for _, key := range keys {
		if !keep[key] {
			errs = append(errs, r.store.Delete(ctx, key))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("images: prune records: %w", err)
	}
	return nil
}

const recordVersion = "kubelet.config.k8s.io/v1beta1"

// load returns the record of an image. It returns an empty record if the image
// has no record.
func (r *records) load(ctx context.Context, id string) (rec record, err error) {
	data, err := r.store.Get(ctx, keyOf(pulledPrefix, id))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &rec)
	}
	if err == nil && rec.ImageRef != id {
		err = fmt.Errorf("the record is for image %q", rec.ImageRef)
	}
	if err != nil {
		return record{}, err
	}
	return rec, nil
}

// keyOf returns the key of a name. It hashes the name, because image names are
// not valid keys.
func keyOf(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	return prefix + "sha256-" + hex.EncodeToString(sum[:])
}

// memory is a Store in memory. The lock of records guards it.
type memory map[string][]byte

// Get returns a value.
func (m memory) Get(_ context.Context, key string) ([]byte, error) {
	if value, ok := m[key]; ok {
		return value, nil
	}
	return nil, fs.ErrNotExist
}

// Put replaces a value. It retains the slice.
func (m memory) Put(_ context.Context, key string, value []byte) error {
	m[key] = value
	return nil
}

// Delete deletes a value.
func (m memory) Delete(_ context.Context, key string) error {
	delete(m, key)
	return nil
}

// Keys returns the keys with the prefix, in any order.
func (m memory) Keys(_ context.Context, prefix string) (keys []string, err error) {
	for key := range m {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}
