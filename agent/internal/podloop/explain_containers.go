package podloop

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle"
	"github.com/kubeparts/kubeparts/lifecycle/images"
	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// containers explains the containers of an admitted pod, and adds the next steps for each
// container.
func (x *explainer) containers() {
	for _, c := range containersOf(x.out.Pod.Spec) {
		x.container(c)
		x.retries(c.name)
		if s := c.status; s == nil || s.State.Running == nil {
			continue // probe results belong to an earlier container
		}
		for _, p := range x.probes {
			if p.Container == c.name {
				x.probe(probeSince(p, c.status.State.Running.StartedAt.Time))
			}
		}
	}
}

// container explains why a container does not run, or is not ready.
func (x *explainer) container(c containerOf) {
	s := cmp.Or(c.status, &corev1.ContainerStatus{})
	_, waits := x.waiting[c.name]
	switch {
	case s.State.Running != nil && c.kind == initContainer:
		x.because("%s is running; the following containers start when it has ended", c.title())
	case s.State.Running != nil:
		if c.kind == regularContainer && !s.Ready {
			x.because("%s is running but not ready", c.title())
		}
	case s.State.Terminated != nil && !waits:
		x.containerEnd(c, s.State.Terminated)
	default:
		x.waits(c, s)
	}
}

// waits explains a container that is not started. It prefers the result of the last sync,
// because this result is newer than the status.
func (x *explainer) waits(c containerOf, s *corev1.ContainerStatus) {
	why, ok := x.waiting[c.name]
	if !ok && s.State.Waiting != nil {
		why = *s.State.Waiting
	}
	x.because("%s waits: %s", c.title(), cmp.Or(reasonText(why.Reason, why.Message), "it was not started yet"))
	if last := cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated); last != nil {
		x.because("%s last %s", c.title(), endText(last))
	}
}

// retries adds the next attempt to start a waiting container or to pull its image.
func (x *explainer) retries(name string) {
	restart, restarts := x.restarts[name]
	if restarts {
		x.then(restart, "container %s is restarted", name)
	}
	pull, pulls := x.pulls[name]
	if pulls {
		x.then(pull, "the image of container %s is pulled again", name)
	}
	if restarts || pulls {
		return
	}
	switch x.waiting[name].Reason {
	case images.ErrImageNeverPull:
		x.then(time.Time{}, "the image of container %s is looked up again in the next sync; its pull policy is Never", name)
	case images.InvalidImageName:
		x.then(time.Time{}, "container %s is started when the pod is defined with a valid image name", name)
	case images.ErrImagePull, images.ImagePullBackOff, images.ImageInspectError,
		images.RegistryUnavailable, images.SignatureValidationFailed:
		x.then(time.Time{}, "the image of container %s is tried again in the next sync", name)
	case podrunner.CreateContainerConfigError, podrunner.CreateContainerError, podrunner.RunContainerError, lifecycle.PostStartHookError:
		x.then(time.Time{}, "the start of container %s is tried again in the next sync", name)
	}
}

// containerOf is a container of a pod with its status. The status is nil if the container does
// not exist yet.
type containerOf struct {
	name   string
	kind   containerKind
	status *corev1.ContainerStatus
}

type containerKind string

const (
	initContainer      containerKind = "init container"
	regularContainer   containerKind = "container" // or a sidecar: expected to run and to be ready
	ephemeralContainer containerKind = "ephemeral container"
)

func (c containerOf) title() string { return string(c.kind) + " " + c.name }

// containersOf returns the containers of a pod in the order of its spec, ephemeral containers
// last.
func containersOf(p *corev1.Pod) (all []containerOf) {
	s := &p.Status
	add := func(name string, kind containerKind, lists ...[]corev1.ContainerStatus) {
		c := containerOf{name: name, kind: kind}
		for _, list := range lists {
			for i := range list {
				if list[i].Name == name {
					c.status = &list[i]
				}
			}
		}
		all = append(all, c)
	}
	for c, isInit := range podspec.Containers(&p.Spec) {
		kind := regularContainer
		if isInit && !podspec.IsSidecar(c) {
			kind = initContainer
		}
		add(c.Name, kind, s.InitContainerStatuses, s.ContainerStatuses)
	}
	for i := range p.Spec.EphemeralContainers {
		add(p.Spec.EphemeralContainers[i].Name, ephemeralContainer, s.EphemeralContainerStatuses)
	}
	return all
}
