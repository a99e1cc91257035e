package podloop

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
)

// ErrNotRestartable is returned by [Loop.Restart] for a pod that can't be restarted in its
// current state.
var ErrNotRestartable = errors.New("the pod can't be restarted")

// ErrInvalidImageName is returned by [Loop.Pull] for a name that is not the name of an image.
var ErrInvalidImageName = errors.New("the name of the image is invalid")

// Restart requests that a pod's containers are stopped within their grace periods and started
// again in a new sandbox. It does not wait for the restart: the pod's worker carries it out in
// its next sync. The pod needs no admission, because it keeps its definition and its
// allocations. Restart waits for the current state of the pod in the runtime, so that it does not
// mistake the sandbox of an earlier restart for the current sandbox.
func (l *Loop) Restart(ctx context.Context, uid types.UID) error {
	r, known := l.record(uid)
	switch {
	case !known:
		return fmt.Errorf("restart pod %s: %w", uid, ErrUnknownPod)
	case r.state != Admitted || l.stopping.Load():
		return fmt.Errorf("restart pod %s/%s: %w: it is %s (%s)", r.pod.Namespace, r.pod.Name, ErrNotRestartable, r.state, r.why)
	}
	l.pleg.RequestRelist(uid)
	observed, err := l.Await(ctx, uid, l.cfg.Clock.Now())
	if err != nil {
		return fmt.Errorf("restart pod %s/%s: read its state in the runtime: %w", r.pod.Namespace, r.pod.Name, err)
	}
	if err := l.runner.Restart(ctx, l.allocated(r.pod), observed); errors.Is(err, podrunner.ErrNoSandbox) {
		return fmt.Errorf("restart pod %s/%s: %w: it has not started yet", r.pod.Namespace, r.pod.Name, ErrNotRestartable)
	} else if err != nil {
		return err
	}
	l.wake(uid)
	return nil
}

// Pull pulls an image with the credentials of the node's providers, even if the image is already
// present. It returns the image when the pull is complete. It records no events, and a failure sets
// no back-off for later pulls.
func (l *Loop) Pull(ctx context.Context, image string) (*runtimeapi.Image, error) {
	// A pod without a name. Its UID is unique, so that a failure sets no back-off of another pull.
	uid := types.UID("pull-" + strconv.FormatUint(l.manualPulls.Add(1), 10))
	defer l.images.Forget(uid)
	found, err := l.images.Ensure(ctx, images.Request{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, Image: image, PullPolicy: corev1.PullAlways,
	})
	if e, ok := errors.AsType[*images.Error](err); ok && e.Reason == images.InvalidImageName {
		return nil, fmt.Errorf("%w: %w", ErrInvalidImageName, e.Err)
	}
	if err != nil {
		return nil, err
	}
	found.Release()
	return found.Image, nil
}
