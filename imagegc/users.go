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

// imageUsers records which images containers use. The images in the status of a container
// are cached as long as the container is listed with the same image.
// Only one pass at a time uses imageUsers.
type imageUsers struct {
	byHandler  bool                    // images of different runtime handlers are different images
	containers map[string]*container   // as last listed, by ID
	byName     map[string][]*container // computed from containers after each list
}

// container is a container and the images that it uses.
type container struct {
	listed    listedImage
	uses      []use
	ended     bool // exited, so that it has no mounts any more
	inspected bool
	retries             // of failed inspections
	since     time.Time // time of the first failed inspection
	err       error     // error of the last inspection
}

// listedImage is the image in a container's list entry.
type listedImage struct{ id, ref, name, userSpecified, handler string }

// use is the use of an image by one of its names. If handler is empty, the images of all
// handlers are used.
type use struct{ name, handler string }

// list replaces the containers with the given list and returns the IDs of the containers
// to inspect.
func (u *imageUsers) list(containers []*runtimeapi.Container, now time.Time) (inspect []string) {
	known := u.containers
	u.containers = make(map[string]*container, len(containers))
	for _, c := range containers {
		if c == nil || u.containers[c.Id] != nil { // listed twice
			continue
		}
		spec := c.GetImage()
		image := listedImage{c.ImageId, c.ImageRef, spec.GetImage(), spec.GetUserSpecifiedImage(), spec.GetRuntimeHandler()}
		k := known[c.Id]
		if k == nil || k.listed != image {
			k = &container{listed: image}
			// The name in the pod's spec counts too: if this tag now belongs to another
			// image, a restarted container needs the other image.
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

// use records that a container uses the images with these names.
func (u *imageUsers) use(k *container, handler string, names ...string) {
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
func (u *imageUsers) index() {
	u.byName = map[string][]*container{}
	for _, k := range u.containers {
		for _, use := range k.uses {
			u.byName[use.name] = append(u.byName[use.name], k)
		}
	}
}

// countOf returns how many containers use the image with these names.
func (u *imageUsers) countOf(names []string, handler string) int {
	found := map[*container]bool{}
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
	// inspectTimeout limits how long one hung container delays the pass.
	inspectTimeout = 10 * time.Second
	// protectAllFor is how long a container that cannot be inspected protects all images,
	// because it may mount any image as a volume. After that, the container is assumed to
	// be damaged: a full disk is worse than an image that must be pulled again.
	protectAllFor = 10 * time.Minute
)

// inspect requests the statuses of containers, adds the image names in them, and computes
// the index. A failed inspection is repeated later, after the same delays as a failed
// deletion.
func (u *imageUsers) inspect(ctx context.Context, runtime Runtime, ids []string, now time.Time) {
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
		case crierrors.IsNotFound(errs[i]): // deleted since it was listed
			k.err, k.retryAt = nil, time.Time{}
		default:
			if k.err = errs[i]; k.since.IsZero() {
				k.since = now
			}
			if ctx.Err() == nil { // otherwise it failed because the pass ended
				k.failed(now)
			}
		}
	}
	u.index()
}

// useStatus records the names of the container's image and the images that it mounts.
func (u *imageUsers) useStatus(k *container, status *runtimeapi.ContainerStatus) {
	u.use(k, k.listed.handler, status.GetImageId(), status.GetImageRef(), status.GetImage().GetImage())
	for _, mount := range status.GetMounts() {
		volume := mount.GetImage()
		u.use(k, volume.GetRuntimeHandler(), volume.GetImage(), volume.GetUserSpecifiedImage())
	}
}

// inspectionErrors returns the errors of containers that could not be inspected. The first result
// joins the errors of containers that protect all images. The second result joins the errors of
// containers that protect only the images in their list entry.
func (u *imageUsers) inspectionErrors(now time.Time) (protectAll, ignored error) {
	var failing []string
	for id, k := range u.containers {
		if !k.inspected && k.err != nil {
			failing = append(failing, id)
		}
	}
	slices.Sort(failing)
	for _, id := range failing {
		if k := u.containers[id]; k.ended || now.Sub(k.since) >= protectAllFor {
			ignored = errors.Join(ignored, k.err)
		} else {
			protectAll = errors.Join(protectAll, k.err)
		}
	}
	return protectAll, ignored
}

func containerStatus(ctx context.Context, runtime Runtime, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	answer, err := runtime.ContainerStatus(ctx, id, false)
	if err == nil && answer.GetStatus() == nil {
		err = errors.New("the runtime returned no status")
	}
	if err != nil {
		return nil, fmt.Errorf("status of container %s: %w", id, err)
	}
	return answer.GetStatus(), nil
}
