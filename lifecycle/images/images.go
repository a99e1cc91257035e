package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/internal/imageref"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// A Request is for one image of a container, or for one image volume.
type Request struct {
	// Pod is the pod that uses the image. Its imagePullSecrets are used, its
	// annotations are passed to the runtime, and events refer to it. If it has no
	// name, no events are recorded. Required; the Manager does not modify the
	// pod.
	Pod *corev1.Pod
	// Container is the name of the container or volume. It is part of the
	// lease's owner. If the pod has a container of this name, events refer to
	// the container.
	Container string
	// Image is the reference as in the spec.
	Image string
	// PullPolicy determines when the image is pulled. Empty means Always if the
	// image has no digest, and has the tag latest or no tag; otherwise, empty
	// means IfNotPresent.
	PullPolicy corev1.PullPolicy
	// Sandbox is passed to the runtime, and may be nil.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are additional pull secrets. They come after the pod's
	// imagePullSecrets.
	Secrets []*corev1.Secret
}

// A Result is an image that is present.
type Result struct {
	// ImageRef is the image's ID, for a container's configuration.
	ImageRef string
	// Image is the runtime's description of the image, never nil. It is shared
	// and must not be modified.
	Image *runtimeapi.Image
	// Release releases the lease on the image. Call it when the container has
	// been created or will not be created. It is never nil and may be called
	// twice.
	Release func()
}

// Manager pulls images for pods, and decides which pods may use a present
// image. Create it with [New]; all methods are safe for concurrent use. A
// Manager starts goroutines only during [Manager.Ensure].
type Manager struct {
	cfg     Config
	slots   chan struct{} // nil: no limit
	rate    *bucket       // nil: no limit
	records *records

	mu       sync.Mutex
	inFlight map[string]*inFlightPull
	failures map[backoffKey]failure
}

// backoffKey identifies a pull that backs off. It contains a fingerprint of the
// credentials, so that the back-off does not delay a pull with changed Secrets.
type backoffKey struct {
	pod         types.UID
	image       string
	credentials string
}

func (k backoffKey) String() string { return string(k.pod) + "_" + k.image + "_" + k.credentials }

// failure is the last failed pull.
type failure struct {
	at   time.Time
	err  *Error
	pull *inFlightPull // so that several callers that waited for the same pull count as one failure
}

// New returns a Manager. It makes no calls yet. The error reports every problem
// with cfg.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("images: invalid config: %w", err)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("images: %w", err)
	}
	m := &Manager{
		cfg: cfg, records: newRecords(cfg.State, cfg.Clock, cfg.Observer.RecordsChanged),
		inFlight: map[string]*inFlightPull{}, failures: map[backoffKey]failure{},
	}
	if cfg.MaxParallelPulls > 0 {
		m.slots = make(chan struct{}, cfg.MaxParallelPulls)
	}
	if cfg.QPS > 0 {
		m.rate = newBucket(cfg.QPS, cfg.Burst, cfg.Clock.Now())
	}
	return m, nil
}

// Ensure returns an image that the pod may use. It pulls the image if the image
// is missing, if the pull policy is Always, or if the pod must prove its access
// at the registry (see [Policy].Verify). If the pull policy is Never, it does
// not pull. Ensure blocks during the pull. If the same image is already being
// pulled with the same credentials, the call waits for that pull. The pull is
// cancelled only if the contexts of all waiting callers are done.
//
// A failure is an [*Error] with the reason for the pod's status. Any other
// error means that ctx is done, which is not a failure of the image, or that
// the request is invalid.
func (m *Manager) Ensure(ctx context.Context, req Request) (Result, error) {
	if req.Pod == nil {
		return Result{}, errors.New("images: the request has no pod")
	}
	name, err := imageref.Parse(req.Image)
	if err != nil {
		err = fmt.Errorf("couldn't parse image name %q: %w", req.Image, err)
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)
		m.event(req, corev1.EventTypeWarning, EventInspectFailed, message)
		return Result{}, &Error{Reason: InvalidImageName, Message: message, Err: err}
	}
	image := req.Image // add only the default tag: the runtime may have another default registry
	if name.Tag == "" && name.Digest == "" {
		name = name.WithDefaultTag()
		image += ":" + name.Tag
	}
	want := &wanted{
		Request: req,
		name:    name,
		spec:    &runtimeapi.ImageSpec{Image: image, Annotations: maps.Clone(req.Pod.Annotations)},
	}
	release := m.lease(want)
	found, err := m.ensure(ctx, want)
	if err != nil {
		release()
		return Result{}, err
	}
	// Garbage collection may know the image by its ID, so protect the ID too.
	want.spec.Image = found.GetId()
	again := m.lease(want)
	return Result{ImageRef: found.GetId(), Image: found, Release: func() { again(); release() }}, nil
}

// Forget deletes the state of a pod that no longer exists.
func (m *Manager) Forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.failures, func(k backoffKey, _ failure) bool {
		if k.pod == pod {
			m.cfg.Backoff.Reset(k.String())
		}
		return k.pod == pod
	})
}

// Prune deletes the records of images that are no longer present. The list
// present contains the IDs of the present images. Call Prune after image
// garbage collection. Prune does not delete records that were written in the
// last ten minutes, because the list may be older than these records.
func (m *Manager) Prune(ctx context.Context, present []string) error {
	return m.records.prune(ctx, present)
}

// wanted is a request in progress.
type wanted struct {
	Request
	spec *runtimeapi.ImageSpec
	name imageref.Ref
	keys []Credential
	// hidden are all credentials and tokens of providers. They are removed from
	// errors, even if they are not in keys. failed are the errors that
	// providers returned.
	hidden []Credential
	failed []error
	// recordUnknown reports whether the record of the image could not be read.
	recordUnknown bool
}

func (w *wanted) policy() corev1.PullPolicy {
	switch {
	case w.PullPolicy != "":
		return w.PullPolicy
	case w.name.Digest == "" && w.name.Tag == imageref.DefaultTag:
		return corev1.PullAlways
	default:
		return corev1.PullIfNotPresent
	}
}

// ensure does the work of Ensure for a valid request, while the caller holds a
// lease.
func (m *Manager) ensure(ctx context.Context, w *wanted) (*runtimeapi.Image, error) {
	var present *runtimeapi.Image
	if w.policy() != corev1.PullAlways {
		var err error
		if present, err = m.inspect(ctx, w); err != nil {
			return nil, err
		}
	}
	verify := present != nil && m.mustVerify(ctx, w, present)
	if present != nil && !verify {
		m.cfg.Observer.Verified(PolicyAllowed)
		m.event(w.Request, corev1.EventTypeNormal, EventPulled, m.presentMessage(w))
		return present, nil
	}
	if present == nil && w.policy() == corev1.PullNever {
		return nil, m.neverPullError(w)
	}
	if !verify {
		present = nil
	}
	ok, err := m.hasAccess(ctx, w, present)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return present, nil
	case verify && w.policy() == corev1.PullNever:
		m.logProviders(ctx, w)
		return nil, m.neverPullError(w)
	default:
		return m.pull(ctx, w)
	}
}

// hasAccess finds the credentials of the request, and reports whether they give
// access to the present image. If present is nil, the result is false.
func (m *Manager) hasAccess(ctx context.Context, w *wanted, present *runtimeapi.Image) (ok bool, err error) {
	verdict := VerificationFailed
	if present != nil {
		defer func() { m.cfg.Observer.Verified(verdict) }()
	}
	if err := m.findCredentials(ctx, w); err != nil {
		return false, err
	}
	if present != nil && m.mayUse(ctx, w, present) {
		verdict = RecordFound
		return true, nil
	}
	if len(m.cfg.Credentials) > 0 {
		if err := m.askProviders(ctx, w); err != nil {
			return false, err
		}
		if present != nil && m.mayUse(ctx, w, present) {
			m.logProviders(ctx, w)
			verdict = RecordFound
			return true, nil
		}
	}
	if !w.recordUnknown {
		verdict = MustAuthenticate
	}
	return false, nil
}

// mayUse reports whether the record of a present image gives the pod access to
// the image.
func (m *Manager) mayUse(ctx context.Context, w *wanted, present *runtimeapi.Image) bool {
	ok, err := m.records.allow(ctx, present.GetId(), w.name.Repository, w.keys)
	if err != nil {
		// Report no access. Unless the pull policy is Never, the image is then
		// pulled, which verifies the credentials.
		w.recordUnknown = true
		m.cfg.Logger.WarnContext(ctx, "could not read the record of an image pull, credentials must be verified at the registry", "image", w.Image, "err", err)
		return false
	}
	if ok {
		m.event(w.Request, corev1.EventTypeNormal, EventPulled, m.presentMessage(w))
	}
	return ok
}

func (m *Manager) presentMessage(w *wanted) string {
	message := fmt.Sprintf("Container image %q already present on machine", w.Image)
	if m.cfg.Verify != NeverVerify {
		message += " and can be accessed by the pod"
	}
	return message
}

// neverPullError returns the error for an image with the pull policy Never. The
// image is missing, or the pod has no access to it. Both cases have the same
// message, so that the message does not reveal whether the image is present.
func (m *Manager) neverPullError(w *wanted) error {
	message := fmt.Sprintf("Container image %q is not present with pull policy of Never", w.Image)
	m.event(w.Request, corev1.EventTypeWarning, ErrImageNeverPull, message)
	return &Error{Reason: ErrImageNeverPull, Message: message}
}

// inspect returns the image, or nil if it is not present.
func (m *Manager) inspect(ctx context.Context, w *wanted) (*runtimeapi.Image, error) {
	answer, err := m.cfg.Images.ImageStatus(ctx, w.spec, false)
	switch {
	case err == nil && answer.GetImage().GetId() == "":
		return nil, nil
	case err == nil:
		return answer.GetImage(), nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("images: inspect %s: %w", w.Image, ctx.Err())
	}
	message := fmt.Sprintf("Failed to inspect image %q: %v", w.Image, err)
	m.event(w.Request, corev1.EventTypeWarning, EventInspectFailed, message)
	return nil, &Error{Reason: ImageInspectError, Message: message, Err: err}
}

// findCredentials reads the credentials for the image from Secrets. A missing
// Secret is not an error, because it may not be needed. A malformed Secret is
// an error.
func (m *Manager) findCredentials(ctx context.Context, w *wanted) error {
	var secrets []*corev1.Secret
	var missing []string
	for _, ref := range w.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		var secret *corev1.Secret
		err := errors.New("secrets are not available on this node")
		if m.cfg.Objects != nil {
			secret, err = m.cfg.Objects.Secret(ctx, w.Pod, ref.Name)
		}
		if err != nil || secret == nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, secret)
	}
	if len(missing) > 0 {
		m.event(w.Request, corev1.EventTypeWarning, EventFailedToRetrieveImagePullSecret, fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	keyring, err := NewKeyring(append(secrets, w.Secrets...)...)
	if err != nil {
		message := "Failed to read the image pull secrets: " + strings.ReplaceAll(err.Error(), "\n", "; ")
		m.event(w.Request, corev1.EventTypeWarning, EventFailed, message)
		return &Error{Reason: ErrImagePull, Message: message, Err: err}
	}
	w.keys = slices.Clip(keyring.Lookup(w.name.Repository))
	return nil
}

// lease protects the image for the container.
func (m *Manager) lease(w *wanted) func() {
	if m.cfg.Leases == nil {
		return func() {}
	}
	return m.cfg.Leases.Acquire(w.spec.Image, string(w.Pod.UID)+"/"+w.Container, m.cfg.LeaseTTL)
}

func (m *Manager) event(req Request, kind, reason, message string) {
	if m.cfg.Events != nil && req.Pod.Name != "" {
		m.cfg.Events.Eventf(podspec.ContainerReference(req.Pod, req.Container), kind, reason, "%s", message)
	}
}
