package podrunner

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fetched is the image of a container that is about to be made: there, or being
// fetched.
type fetched struct {
	done  chan struct{} // closed when the rest is set
	image *runtimeapi.Image
	err   error
}

// fetchImages begins to make the images of what is to start present, all at the
// same time but those of one name one after the other; the sandbox comes up
// meanwhile. The returned func ends what is still going on and waits for it.
func (t *turn) fetchImages(ctx context.Context, starts []Start, sandbox *runtimeapi.PodSandboxConfig) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	users := map[string][]*corev1.Container{}
	for _, s := range starts {
		c := specContainer(t.pod, s)
		if c == nil || s.ID != "" || t.prepared[s.Name] != nil {
			continue
		}
		t.images[s.Name] = &fetched{done: make(chan struct{})}
		users[c.Image] = append(users[c.Image], c)
	}
	var wg sync.WaitGroup
	for _, image := range sortedKeys(users) {
		wg.Go(func() {
			for _, c := range users[image] {
				f := t.images[c.Name]
				f.image, f.err = t.ensureImage(ctx, t.pod, c, sandbox)
				close(f.done)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// image returns the container's image when it is there.
func (t *turn) image(ctx context.Context, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	f := t.images[c.Name]
	if f == nil {
		return t.ensureImage(ctx, t.pod, c, sandbox)
	}
	<-f.done // it ends with the turn's context
	return f.image, f.err
}
