package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inFlightPull is a pull in progress.
type inFlightPull struct {
	done    chan struct{}
	cancel  context.CancelCauseFunc
	waiters int // guarded by Manager.mu
	result  pulled
}

// pulled is the result of a pull.
type pulled struct {
	image *runtimeapi.Image
	took  time.Duration
	err   *Error
}

// pull pulls the image, or waits for a running pull of the same image with the
// same credentials. It returns an error at once if the pull is backing off.
func (m *Manager) pull(ctx context.Context, w *wanted) (*runtimeapi.Image, error) {
	key := backoffKey{w.Pod.UID, w.spec.GetImage(), fingerprint(w.keys)}
	if err := m.backedOff(key, w.Image); err != nil {
		m.event(w.Request, corev1.EventTypeNormal, EventBackOff, fmt.Sprintf("Back-off pulling image %q", w.Image))
		return nil, err
	}
	m.event(w.Request, corev1.EventTypeNormal, EventPulling, fmt.Sprintf("Pulling image %q", w.Image))
	start := m.cfg.Clock.Now()
	f := m.join(ctx, w, w.spec.GetImage()+"\x00"+key.credentials)
	err := m.await(ctx, f)
	m.cfg.Observer.Awaited(PullWait{PodUID: w.Pod.UID, Began: start, Ended: m.cfg.Clock.Now()})
	if err != nil {
		return nil, fmt.Errorf("images: pull %s: %w", w.Image, err)
	}
	if f.result.err != nil {
		err := *f.result.err
		err.Message += w.providerText()
		m.event(w.Request, corev1.EventTypeWarning, EventFailed,
			fmt.Sprintf("Failed to pull image %q: %s%s", w.Image, f.result.err.runtimeText(), w.providerText()))
		m.failed(key, f, &err)
		return nil, &err
	}
	m.succeeded(key)
	m.logProviders(ctx, w)
	m.event(w.Request, corev1.EventTypeNormal, EventPulled, fmt.Sprintf(
		"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.", w.Image,
		f.result.took.Truncate(time.Millisecond), m.cfg.Clock.Since(start).Truncate(time.Millisecond), f.result.image.GetSize()))
	return f.result.image, nil
}

// fingerprint returns a key that distinguishes lists of credentials.
func fingerprint(keys []Credential) string {
	ids := make([]string, len(keys))
	for i, c := range keys {
		ids[i] = c.identity()
	}
	return strings.Join(ids, ",")
}

// backedOff returns an error if the back-off of the pull is not over.
func (m *Manager) backedOff(key backoffKey, image string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, ok := m.failures[key]
	if !ok {
		return nil
	}
	until, _, waiting := m.cfg.Backoff.Until(key.String(), last.at)
	if !waiting {
		return nil
	}
	message := fmt.Sprintf("Back-off pulling image %q: %s", image, last.err)
	return &Error{Reason: ImagePullBackOff, Message: message, Err: last.err, RetryAt: until}
}

// failed records a failure, so that the next pull backs off.
func (m *Manager) failed(key backoffKey, f *inFlightPull, err *Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failures[key].pull == f {
		return
	}
	for other, last := range m.failures {
		if _, _, waiting := m.cfg.Backoff.Until(other.String(), last.at); !waiting {
			delete(m.failures, other)
		}
	}
	now := m.cfg.Clock.Now()
	m.cfg.Backoff.Next(key.String(), now)
	m.failures[key] = failure{at: now, err: err, pull: f}
}

func (m *Manager) succeeded(key backoffKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cfg.Backoff.Reset(key.String())
	delete(m.failures, key)
}

// join returns the running pull of a key. If the pull is not running, join
// starts it. The caller must call [Manager.await].
func (m *Manager) join(ctx context.Context, w *wanted, key string) *inFlightPull {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.inFlight[key]
	if f == nil {
		// The pull may outlive the caller that started it, but not the last
		// waiting caller.
		pullCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
		f = &inFlightPull{done: make(chan struct{}), cancel: cancel}
		m.inFlight[key] = f
		go func() {
			defer close(f.done)
			defer cancel(nil)
			f.result = m.runPull(pullCtx, w)
			m.leave(key, f)
		}()
	}
	f.waiters++
	return f
}

func (m *Manager) leave(key string, f *inFlightPull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inFlight[key] == f {
		delete(m.inFlight, key)
	}
}

// await waits until f is done. If ctx is done and no other caller waits, it
// cancels f.
func (m *Manager) await(ctx context.Context, f *inFlightPull) error {
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
	}
	m.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last {
		for key, other := range m.inFlight {
			if other == f { // later callers start a new pull
				delete(m.inFlight, key)
			}
		}
	}
	m.mu.Unlock()
	if last {
		f.cancel(ctx.Err())
		<-f.done
	}
	return ctx.Err()
}

// runPull waits for a slot, pulls, and reads the image's status.
func (m *Manager) runPull(ctx context.Context, w *wanted) (p pulled) {
	start := m.cfg.Clock.Now()
	waited := time.Duration(0)
	defer func() {
		info := PullInfo{Image: w.spec.GetImage(), Took: p.took, Waited: waited, SizeBytes: p.image.GetSize()}
		if p.err != nil {
			info.Err = p.err
		}
		m.cfg.Observer.Pulled(info)
	}()
	release, err := m.acquireSlot(ctx)
	waited = m.cfg.Clock.Since(start)
	if err != nil {
		return pulled{err: pullError(w.Image, err)}
	}
	defer release()
	if err := m.records.intend(ctx, w.name.String()); err != nil {
		return pulled{err: &Error{Reason: ErrImagePull, Err: err, Message: fmt.Sprintf("Failed to record image pull intent for container image %q: %v", w.Image, err)}}
	}
	id, used, err := m.tryEach(ctx, w)
	after := context.WithoutCancel(ctx) // record the result of a cancelled pull too
	p.took = m.cfg.Clock.Since(start) - waited
	if err != nil {
		p.err = pullError(w.Image, err)
		m.logRecordError(ctx, w, m.records.failed(after, w.name.String()))
		return p
	}
	p.image, p.err = m.pulledImage(ctx, w, id)
	m.logRecordError(ctx, w, m.records.pulled(after, w.name.String(), cmp.Or(p.image.GetId(), id), w.name.Repository, used))
	return p
}

// logRecordError logs that the result of a pull could not be recorded. Without
// a record, the Manager verifies credentials again at the registry.
func (m *Manager) logRecordError(ctx context.Context, w *wanted, err error) {
	if err != nil {
		m.cfg.Logger.WarnContext(ctx, "could not record the result of an image pull, credentials will be verified again at the registry", "image", w.Image, "err", err)
	}
}

// cutShort reports whether the runtime may still be pulling the image after the
// failed call. If so, the runtime may still store the image.
func cutShort(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, errNoProgress) {
		return true
	}
	code := grpcstatus.Code(err)
	return code == codes.Unavailable || code == codes.Canceled || code == codes.DeadlineExceeded
}

// pulledImage returns the runtime's description of the pulled image.
func (m *Manager) pulledImage(ctx context.Context, w *wanted, id string) (*runtimeapi.Image, *Error) {
	spec := &runtimeapi.ImageSpec{Image: cmp.Or(id, w.spec.Image), Annotations: w.spec.Annotations}
	answer, err := m.cfg.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, &Error{Reason: ImageInspectError, Message: fmt.Sprintf("Failed to inspect image %q: %v", w.Image, err), Err: err}
	}
	if answer.GetImage().GetId() == "" {
		return nil, &Error{Reason: ImageInspectError, Message: fmt.Sprintf("Image %q is missing in the runtime after its pull", w.Image)}
	}
	return answer.GetImage(), nil
}

// tryEach pulls with one credential after the other, or anonymously if there
// are no credentials, and returns the credential with which the pull succeeded.
func (m *Manager) tryEach(ctx context.Context, w *wanted) (id string, used Credential, err error) {
	keys := w.keys
	if len(keys) == 0 {
		keys = []Credential{{}}
	}
	var errs []error
	for _, c := range keys {
		id, err := m.pullWith(ctx, w, c)
		if err == nil {
			return id, c, nil
		}
		if cutShort(ctx, err) {
			m.records.resultUnknown(w.name.String())
		}
		err = scrubbed(err, w.secrets())
		if s, ok := grpcstatus.FromError(err); ok && s.Code() == codes.Unknown {
			err = errors.New(s.Message()) // the code adds no information
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(errs) == 1 {
		return "", Credential{}, errs[0]
	}
	return "", Credential{}, utilerrors.NewAggregate(errs)
}

// pullWith makes one PullImage call, and cancels the call if the pull makes no
// progress.
func (m *Manager) pullWith(ctx context.Context, w *wanted, c Credential) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { m.watch(ctx, cancel) })
	defer watchers.Wait()
	defer cancel(nil)
	id, err := m.cfg.Images.PullImage(ctx, w.spec, c.Auth(), w.Sandbox)
	if err != nil && ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return id, err
}

// errNoProgress is the cause of the cancellation of a pull that made no
// progress.
var errNoProgress = errors.New("the pull made no progress")

// watch watches a pull until ctx is done, and cancels the pull if it makes no
// progress.
func (m *Manager) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	deadline := m.cfg.ProgressDeadline
	step, seen := deadline, uint64(0)
	if m.cfg.Progress != nil {
		step = max(deadline/4, time.Nanosecond)
		seen, _ = m.cfg.Progress(ctx) // ignore the error: a later call may succeed
	}
	moved := m.cfg.Clock.Now()
	timer := m.cfg.Clock.NewTimer(step)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		if m.cfg.Progress != nil {
			if now, err := m.cfg.Progress(ctx); err == nil && now != seen {
				seen, moved = now, m.cfg.Clock.Now()
			}
		}
		if m.cfg.Clock.Since(moved) >= deadline {
			cancel(fmt.Errorf("%w in %v", errNoProgress, deadline))
			return
		}
		timer.Reset(step)
	}
}
