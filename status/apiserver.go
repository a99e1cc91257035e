package status

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// PodClient is what is asked of an API server, for one namespace. client-go's
// client is one.
type PodClient interface {
	// Get returns the pod of that name.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	// Patch changes the pod of that name and returns it as it is then.
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte,
		opts metav1.PatchOptions, subresources ...string) (*corev1.Pod, error)
	// Delete deletes the pod of that name.
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// APIServerConfig configures an [APIServer].
type APIServerConfig struct {
	// Pods returns the client for a namespace. Required. With client-go:
	//
	//	func(ns string) status.PodClient { return clientset.CoreV1().Pods(ns) }
	Pods func(namespace string) PodClient
	// Mirror returns the mirror of a static pod, by which the API server knows it,
	// and false if there is none yet. Default: static pods have none, and nothing of
	// them is published.
	Mirror func(static *corev1.Pod) (*corev1.Pod, bool)
	// MayRun says whether a pod may still have running containers or anything else
	// that others must not be given yet; while it says so the pod's end is held back.
	// Default: no.
	MayRun func(types.UID) bool
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Called is told of every call that was made. It must not block. Optional.
	Called func(Call)
}

// Call is one call of an API server.
type Call struct {
	// Verb is "get", "patch" or "delete".
	Verb string
	// Namespace and Name are those of the pod.
	Namespace, Name string
	// Bytes is the size of the patch.
	Bytes int
	// Duration is how long the call took.
	Duration time.Duration
	// Err is what came of it, nil if it succeeded.
	Err error
}

// Validate reports every problem with c, joined.
func (c APIServerConfig) Validate() error {
	if c.Pods == nil {
		return errors.New("field Pods is required")
	}
	return nil
}

func (c APIServerConfig) withDefaults() APIServerConfig {
	if c.Mirror == nil {
		c.Mirror = func(*corev1.Pod) (*corev1.Pod, bool) { return nil, false }
	}
	if c.MayRun == nil {
		c.MayRun = func(types.UID) bool { return false }
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Called == nil {
		c.Called = func(Call) {}
	}
	return c
}

// APIServer is a [Sink] that publishes to an API server: one PATCH of the status
// subresource a change, against the object as it was last acknowledged; a GET only
// where that is not known or has moved on. A pod that is being deleted and has
// finished is deleted once its end is stored. Make it with [NewAPIServer]; its
// methods are safe for concurrent use, those of one pod one at a time.
type APIServer struct {
	cfg APIServerConfig

	mu    sync.Mutex
	known map[types.UID]known // by the UID of the pod on the node
}

// known is what is known of a pod's object.
type known struct {
	object *corev1.Pod
	doubt  bool // a call had no clear answer: the object may have moved on
}

// NewAPIServer returns a sink that has called nobody yet.
func NewAPIServer(cfg APIServerConfig) (*APIServer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid API server config: %w", err)
	}
	return &APIServer{cfg: cfg.withDefaults(), known: map[types.UID]known{}}, nil
}

// Seen takes note of a pod's object as a watch of the API server shows it, so that
// the next patch need not find out what has changed; follow it by
// [Publisher.Trigger], which compares it with what the node says and calls only if
// they differ. An older object than the one known changes nothing, and nor does one of
// a pod that was never to be published, or is forgotten: nothing is kept of it. pod is retained
// and must not be modified afterwards. Of a mirror, uid is the static pod's.
func (a *APIServer) Seen(uid types.UID, pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if k, ok := a.known[uid]; ok && isNewer(pod, k.object) {
		a.known[uid] = known{object: pod}
	}
}

// Forget drops what is known of a pod.
func (a *APIServer) Forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, uid)
}

// attempts is how often one publication is tried because others wrote first.
const attempts = 3

// Publish makes the API server show what change says. It returns [ErrGone] if the
// pod is not there, or was deleted by this call, and [ErrHeld] if its end is held
// back.
func (a *APIServer) Publish(ctx context.Context, change Change) error {
	if podspec.IsMirror(change.Pod) {
		return nil // the static pod speaks for it
	}
	if !podspec.IsStatic(change.Pod) {
		return a.publish(ctx, change, change.Pod)
	}
	mirror, ok := a.cfg.Mirror(change.Pod)
	if !ok {
		return nil
	}
	if err := a.publish(ctx, change, mirror); !errors.Is(err, ErrGone) {
		return err
	}
	return nil // there will be another mirror
}

// publish makes the API server show what change says. given is the object as others
// have seen it.
func (a *APIServer) publish(ctx context.Context, change Change, given *corev1.Pod) error {
	object, doubt := a.base(change.Pod.UID, given)
	for range attempts {
		if doubt {
			var err error
			if object, err = a.get(ctx, change.Pod.UID, object); err != nil {
				return err
			}
		}
		stored, held, err := a.patch(ctx, change, object)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			doubt = true // gone, replaced or merely changed: a look tells
			continue
		case err != nil:
			return err
		case held:
			return ErrHeld
		}
		return a.finish(ctx, change, stored)
	}
	return fmt.Errorf("pod %s/%s: changed by others at each of %d attempts", given.Namespace, given.Name, attempts)
}

// base returns the newest object known of a pod, which may be the one given, and
// whether that needs a look first.
func (a *APIServer) base(uid types.UID, given *corev1.Pod) (object *corev1.Pod, doubt bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[uid]
	if k.object == nil || k.object.UID != given.UID || isNewer(given, k.object) {
		k = known{object: given}
	}
	k.doubt = k.doubt || k.object.ResourceVersion == ""
	a.known[uid] = k
	return k.object, k.doubt
}

func (a *APIServer) learn(uid types.UID, k known) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.known[uid] = k
}

// get looks at the object that old was. ErrGone means that it is no more.
func (a *APIServer) get(ctx context.Context, uid types.UID, old *corev1.Pod) (*corev1.Pod, error) {
	start := a.cfg.Clock.Now()
	object, err := a.cfg.Pods(old.Namespace).Get(ctx, old.Name, metav1.GetOptions{})
	a.called(Call{Verb: "get", Err: err}, old, start)
	switch {
	case isNotFound(err):
		return nil, ErrGone
	case err != nil:
		return nil, fmt.Errorf("get pod %s/%s: %w", old.Namespace, old.Name, err)
	case object.UID != old.UID:
		return nil, fmt.Errorf("%w: deleted and made again as %s", ErrGone, object.UID)
	}
	a.learn(uid, known{object: object})
	return object, nil
}

// patch makes object's status what change says, and returns it as stored. held says
// that the pod's end is missing from it.
func (a *APIServer) patch(ctx context.Context, change Change, object *corev1.Pod) (stored *corev1.Pod, held bool, err error) {
	merged, held := Merge(object, &change.New, a.cfg.MayRun(change.Pod.UID), a.cfg.Clock.Now())
	body, err := Patch(object, &merged)
	if err != nil || body == nil {
		return object, held, err
	}
	start := a.cfg.Clock.Now()
	stored, err = a.cfg.Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	a.called(Call{Verb: "patch", Bytes: len(body), Err: err}, object, start)
	if err != nil {
		a.learn(change.Pod.UID, known{object: object, doubt: !refused(err)})
		return nil, held, fmt.Errorf("patch status of pod %s/%s: %w", object.Namespace, object.Name, err)
	}
	a.learn(change.Pod.UID, known{object: stored})
	return stored, held, nil
}

// finish deletes a pod that is being deleted, of which nothing is left on the node
// and whose end the API server has stored.
func (a *APIServer) finish(ctx context.Context, change Change, stored *corev1.Pod) error {
	if !change.Finished || stored.DeletionTimestamp == nil || podspec.IsMirror(stored) || !podspec.IsTerminal(stored.Status.Phase) {
		return nil
	}
	start := a.cfg.Clock.Now()
	err := a.cfg.Pods(stored.Namespace).Delete(ctx, stored.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &stored.UID},
	})
	a.called(Call{Verb: "delete", Err: err}, stored, start)
	if err != nil && !isNotFound(err) {
		// A conflict is another pod of that name, which the next look shows.
		a.learn(change.Pod.UID, known{object: stored, doubt: true})
		return fmt.Errorf("delete pod %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	return ErrGone
}

func (a *APIServer) called(c Call, object *corev1.Pod, start time.Time) {
	c.Namespace, c.Name, c.Duration = object.Namespace, object.Name, a.cfg.Clock.Since(start)
	a.cfg.Called(c)
}

// isNewer reports whether a is a newer version than b or another object, false if that
// is unknown. Resource versions of one object are ordered as numbers (KEP-5504).
func isNewer(a, b *corev1.Pod) bool {
	if a.ResourceVersion != "" && (a.UID != b.UID || b.ResourceVersion == "") {
		return true
	}
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x > y
}

// isNotFound reports whether err means that the API server does not have the object. A
// 404 of something between, such as a load balancer, does not: client-go marks an
// answer that it could not read as one of an API server.
func isNotFound(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonNotFound &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refused reports whether err means that nothing was done and that the object is as it
// was. Anything but a clear refusal, such as a cut connection, leaves that open, and
// one because of what the object is says that it is not.
func refused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return false
	}
	switch code := answer.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusRequestTimeout:
		return false
	default:
		return code >= 400 && code < 500
	}
}
