package nodeloop

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/imagegc"
)

// newImageGC creates the manager that deletes unused images. Unless Config.TakeOver is set, the
// manager deletes only images that this agent has pulled.
func (l *Loop) newImageGC() (err error) {
	observer := l.cfg.Observers.ImageGC
	observer.Collected = chain2(func(_ imagegc.Result, err error) { l.parts.record(partImages, err) }, observer.Collected)
	cfg := imagegc.Config{
		Images:        l.puller,
		Runtime:       imageUsers{l},
		FS:            l.cfg.Host.ImageFS,
		Policy:        l.cfg.ImageGC,
		MaxNodeImages: l.cfg.MaxNodeImages,
		State:         l.cfg.State,
		Clock:         l.cfg.Clock,
		Logger:        l.cfg.Logger,
		Observer:      observer,
	}
	if !l.cfg.TakeOver {
		cfg.Preference = l.puller.preference
	}
	if l.cfg.Events != nil {
		cfg.Node, cfg.Events = l.reference, l.cfg.Events
	}
	l.imageGC, err = imagegc.New(cfg)
	return err
}

// Images returns the image service for pulls. The service records which images the agent has
// pulled.
func (l *Loop) Images() *Puller { return l.puller }

// Leases returns the image garbage collector. The collector does not delete images with a lease.
func (l *Loop) Leases() *imagegc.Manager { return l.imageGC }

// imageUsers lists the containers that use images: all containers of the runtime, including
// containers of other agents.
type imageUsers struct{ loop *Loop }

// ListContainers lists containers in the runtime.
func (u imageUsers) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return u.loop.cfg.Runtime.ListContainers(ctx, filter)
}

// ContainerStatus returns the status of a container. If the pod loop has observed the container,
// ContainerStatus does not call the runtime, because the image of a container never changes.
func (u imageUsers) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	for _, pod := range u.loop.cfg.Pods.Observed() {
		for _, c := range pod.Containers {
			if c.GetId() == id {
				return &runtimeapi.ContainerStatusResponse{Status: c}, nil
			}
		}
	}
	return u.loop.cfg.Runtime.ContainerStatus(ctx, id, verbose)
}
