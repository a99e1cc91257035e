package podrunner

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// fetched is an image that a sync needs for a container or an image volume. Its
// pull may still be in progress.
type fetched struct {
	done   chan struct{} // closed when the other fields are set
	result images.Result
	err    error
}

// fetchImages starts to pull the images of the containers that will start, and
// returns. The caller creates the sandbox meanwhile. Different images are
// pulled concurrently. Requests for the same image run one after the other. The
// returned function cancels the pulls that have not ended, and waits until all
// pulls have returned.
func (t *podSync) fetchImages(ctx context.Context, starts []Start) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	type user struct {
		c *corev1.Container
		f *fetched // kept here: methods image and imageVolumes write t.images while the goroutines run
	}
	users := map[string][]user{}
	for _, s := range starts {
		c := specContainer(t.pod, s)
		if c == nil || s.ID != "" || t.prepared[s.Name] != nil {
			continue
		}
		f := &fetched{done: make(chan struct{})}
		t.images[s.Name] = f
		users[c.Image] = append(users[c.Image], user{c, f})
	}
	var wg sync.WaitGroup
	for _, image := range sortedKeys(users) {
		wg.Go(func() {
			for _, u := range users[image] {
				u.f.fetch(ctx, t, imageRequest(u.c))
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

func imageRequest(c *corev1.Container) images.Request {
	return images.Request{Container: c.Name, Image: c.Image, PullPolicy: c.ImagePullPolicy}
}

// fetch pulls an image if its pull policy requires that. The lease of the image is released
// after the creation of the container, or by releaseImages at the end of the sync.
func (f *fetched) fetch(ctx context.Context, t *podSync, req images.Request) {
	defer close(f.done)
	req.Pod, req.Sandbox = t.pod, t.sandbox.config
	f.result, f.err = t.cfg.Images.Ensure(ctx, req)
}

// image waits for the container's image and returns it.
func (t *podSync) image(ctx context.Context, c *corev1.Container) (images.Result, error) {
	f := t.images[c.Name]
	if f == nil {
		f = &fetched{done: make(chan struct{})}
		t.images[c.Name] = f
		f.fetch(ctx, t, imageRequest(c))
	}
	<-f.done // closed at the latest when the sync's context is done
	return f.result, f.err
}

// imageVolumes pulls the images of the image volumes that the container mounts, if the pull
// policies of the volumes require this (KEP-4639).
func (t *podSync) imageVolumes(ctx context.Context, c *corev1.Container) (map[string]*runtimeapi.ImageSpec, error) {
	var specs map[string]*runtimeapi.ImageSpec
	for _, m := range c.VolumeMounts {
		v := volumeNamed(t.pod, m.Name)
		if v == nil || v.Image == nil || specs[m.Name] != nil {
			continue
		}
		key := "volume/" + m.Name // container names contain no slash
		f := t.images[key]
		if f == nil {
			f = &fetched{done: make(chan struct{})}
			t.images[key] = f
			f.fetch(ctx, t, images.Request{Container: key, Image: v.Image.Reference, PullPolicy: v.Image.PullPolicy})
		}
		if f.err != nil {
			return nil, f.err
		}
		if specs == nil {
			specs = map[string]*runtimeapi.ImageSpec{}
		}
		specs[m.Name] = &runtimeapi.ImageSpec{
			Image: f.result.ImageRef, UserSpecifiedImage: v.Image.Reference, Annotations: maps.Clone(t.pod.Annotations),
		}
	}
	return specs, nil
}

// releaseImages releases the leases of all images of the sync. The containers
// of these images have been created, or will not be created in this sync.
func (t *podSync) releaseImages() {
	for _, f := range t.images {
		if f.result.Release != nil {
			f.result.Release()
		}
	}
}
