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

// A Request is for one image of one container, or of one image volume.
type Request struct {
	// Pod is whose image it is: its imagePullSecrets count, its annotations go to
	// the runtime, and events are about it. Required; it is not modified.
	Pod *corev1.Pod
	// Container is the name of what wants the image, for the lease's owner. Events
	// name it if the pod has a container of that name.
	Container string
	// Image is the reference as the spec has it.
	Image string
	// PullPolicy is when to pull. Empty: Always if the image has the tag latest or
	// neither tag nor digest, otherwise IfNotPresent, as the API server says.
	PullPolicy corev1.PullPolicy
	// Sandbox is passed on to the runtime, and may be nil.
	Sandbox *runtimeapi.PodSandboxConfig
	// Secrets are used beside those that the pod names, after them.
	Secrets []*corev1.Secret
}

// A Result is an image that is there.
type Result struct {
	// ImageRef is its id, which a container's config takes.
	ImageRef string
	// Image is what the runtime says about it, never nil. It is shared and must
	// not be modified.
	Image *runtimeapi.Image
	// Release gives up the lease on the image; call it once the container has been
	// created or given up. It is never nil and may be called twice.
	Release func()
}

// Manager makes images present for those who may use them. Make it with [New];
// all methods are safe for concurrent use. It starts goroutines only within
// [Manager.Ensure].
type Manager struct {
	cfg     Config
	slots   chan struct{} // nil: no limit
	rate    *bucket       // nil: no limit
	records *records

	mu       sync.Mutex
	flights  map[string]*flight
	failures map[backoffKey]failure
}

// backoffKey is what backs off on its own: changed credentials are tried at once.
type backoffKey struct {
	pod         types.UID
	image       string
	credentials string
}

func (k backoffKey) String() string { return string(k.pod) + "_" + k.image + "_" + k.credentials }

// failure is the last pull that failed.
type failure struct {
	at     time.Time
	err    *Error
	flight *flight // several who waited for one count once
}

// New returns a Manager. It does nothing yet. The error reports every problem
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
		cfg: cfg, records: newRecords(cfg.State, cfg.Clock),
		flights: map[string]*flight{}, failures: map[backoffKey]failure{},
	}
	if cfg.MaxParallelPulls > 0 {
		m.slots = make(chan struct{}, cfg.MaxParallelPulls)
	}
	if cfg.QPS > 0 {
		m.rate = newBucket(cfg.QPS, cfg.Burst, cfg.Clock.Now())
	}
	return m, nil
}

// Ensure makes an image present, if the pod may use it, and returns it. It blocks
// while the image is pulled. Who asks for what is being pulled already, with the
// same credentials, waits for that pull; the pull goes on until the last of them
// is cancelled.
//
// A refusal is an [*Error] with the reason that a pod's status shows. Any other
// error means that ctx ended, which is no failure of the image, or that the
// request is none.
func (m *Manager) Ensure(ctx context.Context, req Request) (Result, error) {
	if req.Pod == nil {
		return Result{}, errors.New("images: a request without a pod")
	}
	name, err := imageref.Parse(req.Image)
	if err != nil {
		err = fmt.Errorf("couldn't parse image name %q: %w", req.Image, err)
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err)
		m.event(req, corev1.EventTypeWarning, EventInspectFailed, message)
		return Result{}, &Error{Reason: InvalidImageName, Message: message, Err: err}
	}
	image := req.Image // not completed beyond its tag: a runtime may have another default registry
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
	// Collected under another reference, it would still be gone.
	want.spec.Image = found.GetId()
	again := m.lease(want)
	return Result{ImageRef: found.GetId(), Image: found, Release: func() { again(); release() }}, nil
}

// Forget drops what is remembered of a pod that is gone.
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

// Prune forgets with which credentials images were pulled that are not among
// those present, named by their ids. Call it after image garbage collection. What
// was pulled in the last ten minutes stays: the list may be older.
func (m *Manager) Prune(ctx context.Context, present []string) error {
	return m.records.prune(ctx, present)
}

// wanted is a request on its way.
type wanted struct {
	Request
	spec *runtimeapi.ImageSpec
	name imageref.Ref
	keys []Credential
	// hidden are secrets of providers that are not among keys, and failed is why some
	// returned none.
	hidden []Credential
	failed []error
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

// ensure is Ensure with everything checked and a lease in hand.
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
		m.event(w.Request, corev1.EventTypeNormal, EventPulled, m.presentMessage(w))
		return present, nil
	}
	if present == nil && w.policy() == corev1.PullNever {
		return nil, m.never(w)
	}
	if err := m.findCredentials(ctx, w); err != nil {
		return nil, err
	}
	if verify && m.mayUse(ctx, w, present) {
		return present, nil
	}
	if len(m.cfg.Credentials) > 0 {
		if err := m.askProviders(ctx, w); err != nil {
			return nil, err
		}
		if verify && m.mayUse(ctx, w, present) {
			m.logProviders(ctx, w)
			return present, nil
		}
	}
	if verify && w.policy() == corev1.PullNever {
		m.logProviders(ctx, w)
		return nil, m.never(w)
	}
	return m.pull(ctx, w)
}

// mayUse reports whether the pod has credentials that give access to an image that is
// present.
func (m *Manager) mayUse(ctx context.Context, w *wanted, present *runtimeapi.Image) bool {
	ok, err := m.records.allow(ctx, present.GetId(), w.name.Repository, w.keys)
	if err != nil {
		// The pull that follows proves the same.
		m.cfg.Logger.WarnContext(ctx, "reading the record of an image's pull failed", "image", w.Image, "err", err)
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

// never refuses an image that may not be pulled and is absent, or is not the pod's to
// use: to whom it does not belong it is absent.
func (m *Manager) never(w *wanted) error {
	message := fmt.Sprintf("Container image %q is not present with pull policy of Never", w.Image)
	m.event(w.Request, corev1.EventTypeWarning, ErrImageNeverPull, message)
	return &Error{Reason: ErrImageNeverPull, Message: message}
}

// inspect returns the image, or nil if it is not there.
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

// findCredentials looks up what fits the image. Secrets that are missing may not
// be needed; those that are malformed are a mistake that somebody should see.
func (m *Manager) findCredentials(ctx context.Context, w *wanted) error {
	var secrets []*corev1.Secret
	var missing []string
	for _, ref := range w.Pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		var secret *corev1.Secret
		err := errors.New("no Secrets here")
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

// lease keeps the image for the container.
func (m *Manager) lease(w *wanted) func() {
	if m.cfg.Leases == nil {
		return func() {}
	}
	return m.cfg.Leases.Acquire(w.spec.Image, string(w.Pod.UID)+"/"+w.Container, m.cfg.LeaseTTL)
}

func (m *Manager) event(req Request, kind, reason, message string) {
	if m.cfg.Events != nil {
		m.cfg.Events.Eventf(podspec.ContainerReference(req.Pod, req.Container), kind, reason, "%s", message)
	}
}
