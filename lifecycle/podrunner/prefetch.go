package podrunner

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// fetched is the image of a container that is about to be made: there, or being
// fetched.
type fetched struct {
	done   chan struct{} // closed when the rest is set
	result images.Result
	err    error
}

// fetchImages begins to make the images of what is to start present, all at the
// same time but those of one name one after the other; the sandbox comes up
// meanwhile. The returned func ends what is still going on and waits for it.
func (t *turn) fetchImages(ctx context.Context, starts []Start) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	type user struct {
		c *corev1.Container
		f *fetched // not looked up below: the map goes on to be written
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

// fetch makes an image present. The lease that keeps it is given up by
// releaseImages, at the latest.
func (f *fetched) fetch(ctx context.Context, t *turn, req images.Request) {
	defer close(f.done)
	req.Pod, req.Sandbox = t.pod, t.sandbox.config
	f.result, f.err = t.cfg.Images.Ensure(ctx, req)
}

// image returns the container's image when it is there.
func (t *turn) image(ctx context.Context, c *corev1.Container) (images.Result, error) {
	f := t.images[c.Name]
	if f == nil {
		f = &fetched{done: make(chan struct{})}
		t.images[c.Name] = f
		f.fetch(ctx, t, imageRequest(c))
	}
	<-f.done // it ends with the turn's context
	return f.result, f.err
}

// imageVolumes makes present the images that the container mounts (KEP-4639).
func (t *turn) imageVolumes(ctx context.Context, c *corev1.Container) (map[string]*runtimeapi.ImageSpec, error) {
	var specs map[string]*runtimeapi.ImageSpec
	for _, m := range c.VolumeMounts {
		v := volumeNamed(t.pod, m.Name)
		if v == nil || v.Image == nil || specs[m.Name] != nil {
			continue
		}
		key := "volume/" + m.Name // no container has such a name
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

// releaseImages gives up the leases on all images of the turn: their containers
// are there, or will not be made in it.
func (t *turn) releaseImages() {
	for _, f := range t.images {
		if f.result.Release != nil {
			f.result.Release()
		}
	}
}
