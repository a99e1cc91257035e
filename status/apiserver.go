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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// PodClient is a client of an API server for the pods of one namespace. The pod client of
// client-go implements it.
type PodClient interface {
	// Get returns the pod of that name.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	// Patch patches the pod of that name and returns the patched pod.
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
	// Mirror returns the mirror pod of a static pod, or false if the mirror pod does not exist
	// yet. The status of the static pod is published in the mirror pod. Default: there are no
	// mirror pods, and no status of a static pod is published.
	Mirror func(static *corev1.Pod) (*corev1.Pod, bool)
	// MayRun reports whether a pod may still have running containers or other resources
	// that must not be given to another pod yet. While it returns true, the terminal phase
	// of the pod is not published. Default: false.
	MayRun func(types.UID) bool
	// Clock is the time source. Default the system clock.
	Clock clock.PassiveClock
	// Called is called after every request to the API server. It must not block. Optional.
	Called func(Call)
}

// Call describes one request to the API server.
type Call struct {
	// Verb is "get", "patch" or "delete".
	Verb string
	// Namespace and Name identify the pod.
	Namespace, Name string
	// Bytes is the size of the patch.
	Bytes int
	// Duration is how long the request took.
	Duration time.Duration
	// Err is the error of the request, or nil if the request succeeded.
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

// APIServer is a [Sink] that publishes to an API server. It publishes a change with one PATCH of
// the status subresource, computed from the last known object. It sends a GET only if that object
// is unknown or may be outdated. It deletes the object of a pod with a deletion timestamp
// after [Change].Finished has become true and the API server has stored the terminal phase.
// Create it with [NewAPIServer]. Its methods are safe for concurrent use, except that calls of
// Publish and Forget for one pod must not overlap.
type APIServer struct {
	cfg APIServerConfig

	mu    sync.Mutex
	known map[types.UID]known // by the UID of the pod on the node
}

// known is the last known object of a pod.
type known struct {
	object    *corev1.Pod
	uncertain bool // the object may be outdated, so the next publication must get it
	deleted   bool // the API server has accepted the deletion of the object

	version   uint64    // version of the last status that the API server has stored in full; 0 if none
	corrected time.Time // when a change by another client was last corrected
}

// The method with returns the record of object, a newer version of k.object or a different
// object, such as a new mirror pod. In it, uncertain and deleted are false. A different object
// has no stored version and no correction yet.
func (k known) with(object *corev1.Pod) known {
	if k.object == nil || k.object.UID != object.UID {
		return known{object: object}
	}
	return known{object: object, version: k.version, corrected: k.corrected}
}

// NewAPIServer returns a sink, or an error if cfg is invalid. It sends no request.
func NewAPIServer(cfg APIServerConfig) (*APIServer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("status: invalid API server config: %w", err)
	}
	return &APIServer{cfg: cfg.withDefaults(), known: map[types.UID]known{}}, nil
}

// RecordObject records a pod object received from a watch of the API server, so that the next
// patch needs no GET. Then call [Publisher.Trigger]: the APIServer compares the object with the
// status that the node reports, and sends a request only if they differ. RecordObject ignores pod
// if it is not newer than the known object. It also ignores pods that were never published or are
// forgotten. pod is retained and must not be modified afterwards. For a mirror pod, uid is the
// UID of the static pod.
//
// RecordObject returns true if it recorded pod, and the status in pod differs from the status in
// the known object. A difference usually means that another client has changed the status.
func (a *APIServer) RecordObject(uid types.UID, pod *corev1.Pod) (changed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, ok := a.known[uid]
	if !ok || !isNewer(pod, k.object) {
		return false
	}
	a.known[uid] = k.with(pod)
	return !equality.Semantic.DeepEqual(pod.Status, k.object.Status)
}

// RecordList records that the API server has listed these objects. If an object is older than the
// known object, the API server may have been restored from an older state, so the next publication
// gets the object. The list may contain mirror pods, and pods that were never published.
func (a *APIServer) RecordList(pods []*corev1.Pod) {
	listed := make(map[types.UID]*corev1.Pod, len(pods))
	for _, pod := range pods {
		listed[pod.UID] = pod
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, k := range a.known {
		if pod, ok := listed[k.object.UID]; ok && isNewer(k.object, pod) {
			k.uncertain, k.deleted = true, false // the object exists again
			a.known[uid] = k
		}
	}
}

// Forget makes the APIServer forget the last known object of a pod. It sends no request.
func (a *APIServer) Forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.known, uid)
}

const (
	// attempts is the maximum number of attempts of one publication if there are conflicts.
	attempts = 3
	// correctionPeriod is the shortest time between two corrections of a status that another client
	// changes again and again. It is the period of the kubelet's corrections.
	correctionPeriod = 10 * time.Second
)

// Publish publishes the status in change to the API server. It returns these errors, among
// others:
//
//   - [ErrGone]: the pod does not exist, or this call has deleted it. For a static pod whose
//     mirror pod does not exist, Publish returns nil instead.
//   - [ErrTerminalPhaseDeferred]: the pod may still have running containers, so Publish has
//     published the status without its terminal phase.
//   - [ErrCorrectionDeferred]: another client has changed the status again, less than ten seconds
//     after the last correction.
func (a *APIServer) Publish(ctx context.Context, change Change) error {
	if podspec.IsMirror(change.Pod) {
		return nil // its status is published with the static pod
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
	return nil // a new mirror pod will be created
}

// publish publishes the status in change. The last argument is the object in which publish
// publishes the status: change.Pod or, for a static pod, its mirror pod.
func (a *APIServer) publish(ctx context.Context, change Change, given *corev1.Pod) error {
	object, uncertain, deleted := a.base(change.Pod.UID, given)
	if deleted {
		return ErrGone
	}
	for range attempts {
		if uncertain {
			var err error
			if object, err = a.get(ctx, change.Pod.UID, object); err != nil {
				return err
			}
		}
		stored, held, err := a.patch(ctx, change, object)
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			uncertain = true // deleted, replaced or changed: get the object
			continue
		case err != nil:
			return err
		case held:
			return ErrTerminalPhaseDeferred
		}
		return a.finish(ctx, change, stored)
	}
	return fmt.Errorf("pod %s/%s: conflict with other writers in each of %d attempts", given.Namespace, given.Name, attempts)
}

// base returns the newest known object of a pod, and reports whether this object may be outdated
// and whether it was deleted. The last argument is the object that the caller knows.
func (a *APIServer) base(uid types.UID, given *corev1.Pod) (object *corev1.Pod, uncertain, deleted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[uid]
	if k.object == nil || k.object.UID != given.UID || isNewer(given, k.object) {
		k = k.with(given)
	}
	k.uncertain = k.uncertain || k.object.ResourceVersion == ""
	a.known[uid] = k
	return k.object, k.uncertain, k.deleted
}

// setKnown records the object of a pod. If change is not nil, setKnown calls it to set
// other fields of the record.
func (a *APIServer) setKnown(uid types.UID, object *corev1.Pod, change func(*known)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[uid].with(object)
	if change != nil {
		change(&k)
	}
	a.known[uid] = k
}

// corrections reports whether a publication of this version would correct a change by another
// client, and whether it is too early for this correction.
func (a *APIServer) corrections(uid types.UID, version uint64) (isCorrection, isEarly bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.known[uid]
	isCorrection = version != 0 && version == k.version
	return isCorrection, isCorrection && !k.corrected.IsZero() && a.cfg.Clock.Since(k.corrected) < correctionPeriod
}

// get gets the current version of an object from the API server; old is an earlier version.
// get returns ErrGone if the object does not exist.
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
		return nil, fmt.Errorf("%w: a new pod of the same name has UID %s", ErrGone, object.UID)
	}
	a.setKnown(uid, object, nil)
	return object, nil
}

// patch publishes the status in change and returns the stored object. The second result is
// true if the terminal phase was omitted.
func (a *APIServer) patch(ctx context.Context, change Change, object *corev1.Pod) (stored *corev1.Pod, held bool, err error) {
	merged, held := Merge(object, &change.New, a.cfg.MayRun(change.Pod.UID), a.cfg.Clock.Now())
	body, err := Patch(object, &merged)
	if err != nil || body == nil {
		return object, held, err
	}
	isCorrection, isEarly := a.corrections(change.Pod.UID, change.Version)
	if isEarly {
		return nil, held, ErrCorrectionDeferred
	}
	start := a.cfg.Clock.Now()
	stored, err = a.cfg.Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	a.called(Call{Verb: "patch", Bytes: len(body), Err: err}, object, start)
	if err != nil {
		a.setKnown(change.Pod.UID, object, func(k *known) { k.uncertain = !refused(err) })
		return nil, held, fmt.Errorf("patch status of pod %s/%s: %w", object.Namespace, object.Name, err)
	}
	a.setKnown(change.Pod.UID, stored, func(k *known) {
		if !held { // a later publication of the terminal phase is not a correction
			k.version = change.Version
		}
		if isCorrection {
			k.corrected = start
		}
	})
	return stored, held, nil
}

// finish deletes the pod object if the object has a deletion timestamp, the pod is finished
// on the node, and the API server has stored its terminal phase. It deletes no mirror pod.
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
		// A conflict means that another pod has the name. The next GET returns that pod.
		a.setKnown(change.Pod.UID, stored, func(k *known) { k.uncertain = true })
		return fmt.Errorf("delete pod %s/%s: %w", stored.Namespace, stored.Name, err)
	}
	// The watch may still deliver our last patch. That must not cause another deletion.
	a.setKnown(change.Pod.UID, stored, func(k *known) { k.deleted = true })
	return ErrGone
}

func (a *APIServer) called(c Call, object *corev1.Pod, start time.Time) {
	c.Namespace, c.Name, c.Duration = object.Namespace, object.Name, a.cfg.Clock.Since(start)
	a.cfg.Called(c)
}

// isNewer reports whether object a is a newer version of object b, or a different object.
// Resource versions of one object are ordered as numbers (KEP-5504). If a has no resource
// version, isNewer returns false. If only b has none, it returns true. If both are versions of
// one object and a version is not a number, it returns false.
func isNewer(a, b *corev1.Pod) bool {
	if a.ResourceVersion != "" && (a.UID != b.UID || b.ResourceVersion == "") {
		return true
	}
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX == nil && errY == nil && x > y
}

// isNotFound reports whether err means that the object does not exist in the API server. A
// 404 from another server in between, such as a load balancer, does not count: client-go
// marks a response that is not from an API server.
func isNotFound(err error) bool {
	return apierrors.ReasonForError(err) == metav1.StatusReasonNotFound &&
		!apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// refused reports whether err means that the API server rejected the request and that the
// last known object is still current. An error without a response, such as a broken
// connection, does not show whether the object has changed. NotFound and Conflict show that
// the last known object is not current.
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
