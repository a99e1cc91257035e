package imagegc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"
)

// users records which images containers use. What the status of a container adds to the
// list is kept for as long as the container is listed, so that each container is
// inspected once. Only one pass uses it at a time.
type users struct {
	byHandler  bool               // images of different runtime handlers are different images
	containers map[string]*user   // as last listed, by ID
	byName     map[string][]*user // computed from containers after each list
}

// user is a container.
type user struct {
	listed    listedImage
	uses      []use
	ended     bool // it has no mounts any more
	inspected bool
	retries             // of inspections
	since     time.Time // of the first failure
	err       error     // of the last inspection
}

// listedImage is what a list says about the image of a container.
type listedImage struct{ id, ref, name, userSpecified, handler string }

// use is the use of an image, by one of its names. Without a handler it is a use of the
// images of all handlers.
type use struct{ name, handler string }

// list replaces the containers with those of a list and returns the IDs of those to
// inspect.
func (u *users) list(containers []*runtimeapi.Container, now time.Time) (inspect []string) {
	known := u.containers
	u.containers = make(map[string]*user, len(containers))
	for _, c := range containers {
		if c == nil || u.containers[c.Id] != nil { // listed twice
			continue
		}
		spec := c.GetImage()
		image := listedImage{c.ImageId, c.ImageRef, spec.GetImage(), spec.GetUserSpecifiedImage(), spec.GetRuntimeHandler()}
		k := known[c.Id]
		if k == nil || k.listed != image {
			k = &user{listed: image}
			// The name that the user gave counts too: if that tag has moved to another
			// image, a restarted container needs this one.
			u.use(k, image.handler, image.id, image.ref, image.name, image.userSpecified)
		}
		k.ended = c.State == runtimeapi.ContainerState_CONTAINER_EXITED
		u.containers[c.Id] = k
		if !k.inspected && !now.Before(k.retryAt) {
			inspect = append(inspect, c.Id)
		}
	}
	return inspect
}

// use records that a container uses the images of these names.
func (u *users) use(k *user, handler string, names ...string) {
	if !u.byHandler {
		handler = ""
	}
	for _, name := range names {
		for _, form := range refNames(name) {
			if use := (use{form, handler}); !slices.Contains(k.uses, use) {
				k.uses = append(k.uses, use)
			}
		}
	}
}

// index computes byName.
func (u *users) index() {
	u.byName = map[string][]*user{}
	for _, k := range u.containers {
		for _, use := range k.uses {
			u.byName[use.name] = append(u.byName[use.name], k)
		}
	}
}

// of returns how many containers use the image that has these names.
func (u *users) of(names []string, handler string) int {
	found := map[*user]bool{}
	for _, name := range names {
		for _, k := range u.byName[name] {
			if slices.ContainsFunc(k.uses, func(use use) bool {
				return use.name == name && (use.handler == "" || handler == "" || use.handler == handler)
			}) {
				found[k] = true
			}
		}
	}
	return len(found)
}

const (
	// maxInspections is how many containers are inspected at a time.
	maxInspections = 8
	// inspectTimeout keeps one hung container from holding up the pass for longer.
	inspectTimeout = 10 * time.Second
	// unsureFor is how long a container that cannot be inspected keeps all images, for
	// any of them may be a volume of it. After that the container counts as damaged: a
	// full disk is worse than an image that must be pulled again.
	unsureFor = 10 * time.Minute
)

// inspect adds what the statuses of containers say, and computes the index. A failed
// inspection is repeated later, as failed deletions are.
func (u *users) inspect(ctx context.Context, runtime Runtime, ids []string, now time.Time) {
	statuses := make([]*runtimeapi.ContainerStatus, len(ids))
	errs := make([]error, len(ids))
	var group sync.WaitGroup
	for worker := range min(maxInspections, len(ids)) {
		group.Go(func() {
			for i := worker; i < len(ids); i += maxInspections {
				statuses[i], errs[i] = containerStatus(ctx, runtime, ids[i])
			}
		})
	}
	group.Wait()
	for i, id := range ids {
		switch k := u.containers[id]; {
		case errs[i] == nil:
			k.inspected = true
			u.useStatus(k, statuses[i])
		case crierrors.IsNotFound(errs[i]): // removed since it was listed
			k.err, k.retryAt = nil, time.Time{}
		default:
			if k.err = errs[i]; k.since.IsZero() {
				k.since = now
			}
			if ctx.Err() == nil { // else it failed because the pass ended
				k.failed(now)
			}
		}
	}
	u.index()
}

// useStatus records the names of the container's image and the images that it mounts.
func (u *users) useStatus(k *user, status *runtimeapi.ContainerStatus) {
	u.use(k, k.listed.handler, status.GetImageId(), status.GetImageRef(), status.GetImage().GetImage())
	for _, mount := range status.GetMounts() {
		volume := mount.GetImage()
		u.use(k, volume.GetRuntimeHandler(), volume.GetImage(), volume.GetUserSpecifiedImage())
	}
}

// unsure returns the errors of containers that could not be inspected: of those that
// keep all images, and of those that keep only their own.
func (u *users) unsure(now time.Time) (keepAll, ignored error) {
	var failing []string
	for id, k := range u.containers {
		if !k.inspected && k.err != nil {
			failing = append(failing, id)
		}
	}
	slices.Sort(failing)
	for _, id := range failing {
		if k := u.containers[id]; k.ended || now.Sub(k.since) >= unsureFor {
			ignored = errors.Join(ignored, k.err)
		} else {
			keepAll = errors.Join(keepAll, k.err)
		}
	}
	return keepAll, ignored
}

func containerStatus(ctx context.Context, runtime Runtime, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	answer, err := runtime.ContainerStatus(ctx, id, false)
	if err == nil && answer.GetStatus() == nil {
		err = errors.New("the answer is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	return answer.GetStatus(), nil
}
