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

// users knows which images containers use. What it knows of a container stays for
// as long as the container is listed, so that a pass costs a look-up for each.
// Only one pass uses it at a time.
type users struct {
	containers map[string]*user
	names      map[string]*uses
	round      uint64
	noVolumes  bool // a container that names its image's id needs not be asked
	apart      bool // the images of runtime handlers are
}

// user is a container.
type user struct {
	imageID, imageRef, image string // as listed
	handler                  string
	uses                     []use
	round                    uint64 // in which it was last listed
	asked                    bool   // for its status, with an answer
	ended                    bool   // whatever it had mounted, it has no more
	failures                 int    // to answer, in a row
	since, retryAt           time.Time
	err                      error // of the last failure
}

// use is the use of an image, by one of its names.
type use struct{ name, handler string }

// uses counts the containers that use a name.
type uses struct {
	any      int            // for no particular runtime handler
	handlers map[string]int // for this one
}

func newUsers(noVolumes, apart bool) *users {
	return &users{containers: map[string]*user{}, names: map[string]*uses{}, noVolumes: noVolumes, apart: apart}
}

// listed takes in a list and returns the containers of which more must be known and
// which may be asked for it again.
func (u *users) listed(list []*runtimeapi.Container, now time.Time) (unknown []*runtimeapi.Container) {
	u.round++
	current := 0
	for _, c := range list {
		if c == nil {
			continue
		}
		known := u.know(c)
		if known.round != u.round { // listed twice, else
			known.round = u.round
			current++
			if !known.asked && !now.Before(known.retryAt) {
				unknown = append(unknown, c)
			}
		}
	}
	if current < len(u.containers) {
		for id, known := range u.containers {
			if known.round != u.round {
				u.forget(id, known)
			}
		}
	}
	return unknown
}

// know returns what is known of a listed container, and takes in one that is new.
func (u *users) know(c *runtimeapi.Container) *user {
	k := u.containers[c.Id]
	if k != nil && !k.is(c) { // a runtime that has only now made up its mind
		u.forget(c.Id, k)
		k = nil
	}
	if k == nil {
		k = u.add(c)
		k.asked = u.noVolumes && c.ImageId != ""
	}
	k.ended = c.State == runtimeapi.ContainerState_CONTAINER_EXITED
	return k
}

// is says whether the list says of the container what it said before.
func (k *user) is(c *runtimeapi.Container) bool {
	return k.imageID == c.ImageId && k.imageRef == c.ImageRef && k.image == c.Image.GetImage()
}

// add takes in a new container. All names of its image count, also the one that the
// user gave: if that has moved to another image, a restart will want this one.
func (u *users) add(c *runtimeapi.Container) *user {
	k := &user{imageID: c.ImageId, imageRef: c.ImageRef, image: c.Image.GetImage(), handler: c.Image.GetRuntimeHandler()}
	u.containers[c.Id] = k
	for _, name := range []string{c.ImageId, c.ImageRef, c.Image.GetImage(), c.Image.GetUserSpecifiedImage()} {
		u.use(k, name, k.handler)
	}
	return k
}

// use notes that a container uses an image.
func (u *users) use(k *user, name, handler string) {
	if !u.apart {
		handler = ""
	}
	for _, form := range refNames(name) {
		if slices.Contains(k.uses, use{form, handler}) {
			continue
		}
		n := u.names[form]
		if n == nil {
			n = &uses{}
			u.names[form] = n
		}
		n.count(handler, 1)
		k.uses = append(k.uses, use{form, handler})
	}
}

func (u *users) forget(id string, k *user) {
	delete(u.containers, id)
	for _, use := range k.uses {
		n := u.names[use.name]
		if n.count(use.handler, -1); n.any == 0 && len(n.handlers) == 0 {
			delete(u.names, use.name)
		}
	}
}

func (n *uses) count(handler string, by int) {
	if handler == "" {
		n.any += by
		return
	}
	if n.handlers == nil {
		n.handlers = map[string]int{}
	}
	if n.handlers[handler] += by; n.handlers[handler] == 0 {
		delete(n.handlers, handler)
	}
}

// status takes in what a container's status says besides: the names of its image
// and the images that it has mounted.
func (u *users) status(id string, status *runtimeapi.ContainerStatus) {
	k := u.containers[id]
	if k == nil {
		return
	}
	k.asked = true
	for _, name := range []string{status.GetImageId(), status.GetImageRef(), status.GetImage().GetImage()} {
		u.use(k, name, k.handler)
	}
	for _, mount := range status.GetMounts() {
		volume := mount.GetImage()
		for _, name := range []string{volume.GetImage(), volume.GetUserSpecifiedImage()} {
			u.use(k, name, volume.GetRuntimeHandler())
		}
	}
}

// of returns how many uses there are of an image with these names, at the most by
// one of them: a container may use several. What has no handler fits all.
func (u *users) of(names []string, handler string) int {
	most := 0
	for _, name := range names {
		n := u.names[name]
		if n == nil {
			continue
		}
		count := n.any + n.handlers[handler]
		if handler == "" {
			for _, more := range n.handlers {
				count += more
			}
		}
		most = max(most, count)
	}
	return most
}

const (
	// maxInspections is how many containers are inspected at a time. A node that was
	// full of them when the agent started has a first pass of seconds, not minutes.
	maxInspections = 8
	// inspectTimeout keeps one hung container from holding up the pass for longer.
	inspectTimeout = 10 * time.Second
	// unsureFor is how long a container that cannot be inspected keeps all images, for
	// any of them may be a volume of it. That it stays so for longer is damage, and a
	// disk that fills up meanwhile is worse than an image that is pulled again.
	unsureFor = 10 * time.Minute
)

// inspect asks for the statuses of containers and takes them in. Those that could
// not be had are asked for again later, as images are whose deletion fails.
func (u *users) inspect(ctx context.Context, runtime Runtime, unknown []*runtimeapi.Container, now time.Time) {
	statuses := make([]*runtimeapi.ContainerStatus, len(unknown))
	errs := make([]error, len(unknown))
	var group sync.WaitGroup
	for worker := range min(maxInspections, len(unknown)) {
		group.Go(func() {
			for i := worker; i < len(unknown); i += maxInspections {
				statuses[i], errs[i] = containerStatus(ctx, runtime, unknown[i].Id)
			}
		})
	}
	group.Wait()
	for i, c := range unknown {
		switch known := u.containers[c.Id]; {
		case errs[i] == nil:
			u.status(c.Id, statuses[i])
		case crierrors.IsNotFound(errs[i]): // gone since it was listed
			known.err, known.retryAt = nil, time.Time{}
		default:
			known.failed(ctx, now, errs[i])
		}
	}
}

// failed puts off the next question, unless it was the asker who gave up.
func (k *user) failed(ctx context.Context, now time.Time, err error) {
	if k.err = err; k.since.IsZero() {
		k.since = now
	}
	if ctx.Err() == nil {
		k.retryAt = now.Add(backoff(k.failures))
		k.failures++
	}
}

// unsure returns errors about the containers whose images are not known, except for
// their own: of those that keep all images, and of those that do not.
func (u *users) unsure(now time.Time) (keepAll, ignored error) {
	var failing []string
	for id, k := range u.containers {
		if !k.asked && k.err != nil {
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
