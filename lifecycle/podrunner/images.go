package podrunner

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
)

// ensureImage makes the container's image present and returns it as the runtime
// shows it.
func (r *Runner) ensureImage(ctx context.Context, pod *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	if c.Image == "" || strings.TrimSpace(c.Image) != c.Image {
		return nil, &startError{reason: InvalidImageName, message: fmt.Sprintf("Failed to apply default image tag %q", c.Image)}
	}
	spec := &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image}
	image, err := r.inspect(ctx, pod, spec)
	if err != nil {
		return nil, err
	}
	switch {
	case image.GetId() != "" && c.ImagePullPolicy != corev1.PullAlways:
		r.event(pod, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", c.Image)
		return image, nil
	case c.ImagePullPolicy == corev1.PullNever:
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", c.Image)
		r.event(pod, corev1.EventTypeWarning, ErrImageNeverPull, "%s", message)
		return nil, &startError{reason: ErrImageNeverPull, message: message}
	}
	id, err := r.pull(ctx, pod, spec, sandbox)
	if err != nil {
		return nil, err
	}
	image, err = r.inspect(ctx, pod, &runtimeapi.ImageSpec{Image: cmp.Or(id, c.Image), UserSpecifiedImage: c.Image})
	if err == nil && image.GetId() == "" {
		err = &startError{reason: ImageInspectError, message: fmt.Sprintf("Image %q is gone after its pull", c.Image)}
	}
	return image, err
}

// inspect returns an image, or nil if it is not there.
func (r *Runner) inspect(ctx context.Context, pod *corev1.Pod, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	answer, err := r.cfg.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q", spec.GetUserSpecifiedImage())
		r.event(pod, corev1.EventTypeWarning, "InspectFailed", "%s: %v", message, err)
		return nil, &startError{reason: ImageInspectError, message: message, err: err}
	}
	return answer.GetImage(), nil
}

// pull pulls the image unless its last pull for this pod failed a moment ago.
func (r *Runner) pull(ctx context.Context, pod *corev1.Pod, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	key := pullKey{pod.UID, spec.GetImage()}
	if failed, ok := r.lastPullFailure(key); ok {
		if until, _, waiting := r.cfg.ImageBackoff.Until(key.String(), failed.at); waiting {
			message := fmt.Sprintf("Back-off pulling image %q", spec.GetImage())
			r.event(pod, corev1.EventTypeNormal, "BackOff", "%s", message)
			return "", &startError{reason: lifecycle.ImagePullBackOff, message: message, err: failed.err, retryAt: until}
		}
	}
	r.event(pod, corev1.EventTypeNormal, "Pulling", "Pulling image %q", spec.GetImage())
	pullCtx, cancel := context.WithTimeout(ctx, r.cfg.PullTimeout)
	defer cancel()
	start := r.cfg.Clock.Now()
	id, err := r.cfg.Images.PullImage(pullCtx, spec, nil, sandbox)
	took := r.cfg.Clock.Since(start)
	r.cfg.Observer.Pulled(spec.GetImage(), took, err)
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("pull image %s: %w", spec.GetImage(), ctx.Err()) // stopped by us: no failure of the image
		}
		now := r.cfg.Clock.Now()
		r.cfg.ImageBackoff.Next(key.String(), now)
		r.setPullFailure(key, &pullFailure{at: now, err: err})
		message := fmt.Sprintf("Failed to pull image %q", spec.GetImage())
		r.event(pod, corev1.EventTypeWarning, "Failed", "%s: %v", message, err)
		return "", &startError{reason: ErrImagePull, message: message, err: err}
	}
	r.cfg.ImageBackoff.Reset(key.String())
	r.setPullFailure(key, nil)
	r.event(pod, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v", spec.GetImage(), took)
	return id, nil
}
