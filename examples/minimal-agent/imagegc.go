package main

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// newImageGC wires what removes images. On a runtime that is somebody else's too it
// leaves alone what this agent has not pulled, unless --take-over says otherwise.
func (a *agent) newImageGC(ctx context.Context) (err error) {
	a.pulls = newPuller(ctx, a.node.cri, a.store, a.log)
	cfg := imagegc.Config{
		Images:  a.node.cri,
		Runtime: imageUsers{a},
		FS:      imagegc.RuntimeFS{Runtime: a.node.cri},
		Policy:  a.opts.policies.ImageGC,
		State:   a.store,
		Events:  a.events,
		Node:    a.reference(),
		Logger:  a.log,

		Observer: a.node.metrics.ImageGC(imagegc.Observer{Collected: func(_ imagegc.Result, err error) { a.passes.ended("images", err) }}),
	}
	if !a.opts.takeOver {
		cfg.Preference = a.pulls.preference
	}
	if a.embedded() {
		cfg.FS = fakeFS{a.node.fake}
	}
	a.imageGC, err = imagegc.New(cfg)
	return err
}

// imageUsers are the containers of the whole runtime. What the cache has of this
// agent's own need not be asked for again.
type imageUsers struct{ *agent }

func (u imageUsers) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return u.node.cri.ListContainers(ctx, filter)
}

func (u imageUsers) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	for _, pod := range u.cache.Statuses() {
		for _, c := range pod.Containers {
			if c.GetId() == id {
				return &runtimeapi.ContainerStatusResponse{Status: c}, nil
			}
		}
	}
	return u.node.cri.ContainerStatus(ctx, id, verbose)
}

// fakeFS is the embedded runtime's disk.
type fakeFS struct{ node *fakecri.Node }

func (f fakeFS) Usage(context.Context) (imagegc.Usage, error) {
	u := f.node.DiskUsage()
	return imagegc.Usage{CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes}, nil
}
