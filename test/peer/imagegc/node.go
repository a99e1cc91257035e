package imagegc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callLimit is how long the runtime client waits for a response.
const callLimit = 2*time.Minute - time.Second

// A node is the runtime and the disk of one side.
type node struct {
	w *World

	mu         sync.Mutex
	present    []int // indexes of images
	containers []*box
	created    int
	fill       uint64
	offset     time.Duration // of the wall clock
	faults     Faults
	began      time.Time // start of this step
	tries      []try     // removal attempts in this step
	listed     int       // number of container lists in this step
	hooks      []string
	events     []string
	answers    map[string]int // number of container statuses returned, by container
	nils       bool           // lists contain nil entries
	told       string         // contradictions in our manager's reports
}

type box struct {
	Container
	id           string
	ended        bool
	imageID, ref string // as in the list
	spec         *runtimeapi.ImageSpec
	volume       *runtimeapi.ImageSpec // as in the status, or nil
}

// A try is a call of RemoveImage.
type try struct {
	name string
	err  error
}

func newNode(w *World) *node { return &node{w: w, fill: w.Fill, offset: w.Clock} }

// change applies the changes of a step to the node. The caller restarts the agent.
func (n *node) change(c Change) {
	switch c.Do {
	case "pull":
		n.present = append(n.present, c.Image)
	case "remove image":
		n.present = slices.DeleteFunc(n.present, func(i int) bool { return i == c.Image })
	case "pin", "unpin":
		n.w.Images[c.Image].Pinned = c.Do == "pin"
	case "move tag":
		n.moveTag(c.Image)
	case "fill":
		n.fill = n.w.Capacity / 100 * uint64(c.Percent)
	case "set clock":
		n.offset += c.By
	case "create":
		n.create(*c.Create)
	case "end":
		if c.Container < len(n.containers) {
			n.containers[c.Container].ended = true
		}
	case "remove":
		if c.Container < len(n.containers) {
			n.containers = slices.Delete(n.containers, c.Container, c.Container+1)
		}
	}
}

// create creates a container if its images are present.
func (n *node) create(c Container) {
	if !slices.Contains(n.present, c.Image) || c.Volume > 0 && !slices.Contains(n.present, c.Volume-1) {
		return
	}
	n.created++
	n.containers = append(n.containers, n.box(c))
}

func (n *node) box(c Container) *box {
	b := &box{Container: c, id: fmt.Sprintf("container-%d", n.created), volume: n.volume(c)}
	b.imageID, b.ref, b.spec = n.named(c)
	return b
}

// visitor returns the container that starts while an image is deleted, if any.
func (n *node) visitor(im *Image) (c Container, comes bool) {
	if im.Slow == 0 || im.Visitor == 0 {
		return Container{}, false
	}
	i := (im.Visitor - 1) % len(n.w.Images)
	return Container{Image: i, Other: i, Form: "id"}, true
}

func (n *node) moveTag(from int) {
	a, b := n.w.Images[from], n.w.Images[(from+1)%len(n.w.Images)]
	if a != b && len(a.Tags) > 0 {
		b.Tags = append(b.Tags, a.Tags[0])
		a.Tags = a.Tags[1:]
	}
	for _, c := range n.containers { // then a list uses another name of the image
		if !c.Mute && !c.Gone {
			c.imageID, c.ref, c.spec = n.named(c.Container)
			delete(n.answers, c.id)
		}
	}
}

// image returns a present image.
func (n *node) image(id, handler string) *Image {
	for _, i := range n.present {
		if im := n.w.Images[i]; im.ID == id && (handler == "" || im.Handler == handler) {
			return im
		}
	}
	return nil
}

// usage returns the capacity of the disk and the available amount, as a measurement returns
// them.
func (n *node) usage() (capacity, available uint64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	capacity, available = n.w.Capacity, n.w.Capacity-min(n.w.Capacity, n.filled())
	switch {
	case n.faults.Disk:
		return 0, 0, errors.New("fault:disk")
	case n.faults.Odd == "no capacity":
		capacity = 0
	case n.faults.Odd == "available above capacity":
		available += 2 * capacity
	}
	return capacity, available, nil
}

// filled returns the bytes written to the disk, which can exceed its capacity.
func (n *node) filled() uint64 {
	used := n.fill
	for _, i := range n.present {
		used += n.w.Images[i].Takes
	}
	return used
}

// Methods of the runtime.

func (n *node) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "fake", RuntimeVersion: "1", RuntimeApiVersion: "v1"}, nil
}

func (n *node) ListImages(context.Context, *runtimeapi.ImageFilter) (list []*runtimeapi.Image, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.faults.Images {
		return nil, errors.New("fault:images")
	}
	for _, i := range n.present {
		im := n.w.Images[i]
		list = append(list, &runtimeapi.Image{
			Id: im.ID, RepoTags: slices.Clone(im.Tags), RepoDigests: slices.Clone(im.Digests), Size: im.Size,
			Pinned: im.Pinned, Spec: &runtimeapi.ImageSpec{Image: im.ID, RuntimeHandler: im.Handler},
		})
	}
	if len(list) > 0 && len(n.w.Images)%2 == 0 {
		list = append(list, list[0]) // a runtime may list an image twice
	}
	if n.nils {
		list = append([]*runtimeapi.Image{nil}, list...)
	}
	return list, nil
}

func (n *node) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if n.faults.Sandboxes {
		return nil, errors.New("fault:sandboxes")
	}
	return nil, nil
}

func (n *node) ListContainers(context.Context, *runtimeapi.ContainerFilter) (list []*runtimeapi.Container, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listed++; n.faults.Containers || n.faults.Later && n.listed > 1 {
		return nil, errors.New("fault:containers")
	}
	for _, c := range n.containers {
		item := &runtimeapi.Container{
			Id: c.id, Metadata: &runtimeapi.ContainerMetadata{Name: c.id}, State: c.state(),
			Labels: map[string]string{"io.kubernetes.pod.uid": c.id},
		}
		item.ImageId, item.ImageRef, item.Image = c.imageID, c.ref, c.spec
		list = append(list, item)
	}
	if n.nils {
		list = append([]*runtimeapi.Container{nil}, list...)
	}
	return list, nil
}

func (c *box) state() runtimeapi.ContainerState {
	if c.ended {
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_RUNNING
}

// named returns the names of a container's image in a list.
func (n *node) named(c Container) (id, ref string, spec *runtimeapi.ImageSpec) {
	im, other := n.w.Images[c.Image], n.w.Images[c.Other]
	spec = &runtimeapi.ImageSpec{Image: im.ID, UserSpecifiedImage: firstOr(other.Tags, ""), RuntimeHandler: c.Handler}
	id, ref = im.ID, im.ID
	switch c.Form {
	case "old runtime":
		id, spec.Image = "", firstOr(other.Tags, im.ID)
	case "tag":
		ref, spec.Image = firstOr(other.Digests, im.ID), firstOr(other.Tags, im.ID)
	case "digest":
		ref, spec.Image = firstOr(other.Digests, im.ID), firstOr(other.Digests, im.ID)
	case "bare id":
		id, ref = strings.TrimPrefix(im.ID, "sha256:"), strings.TrimPrefix(im.ID, "sha256:")
		spec.Image = id
	case "short":
		spec.Image = short(firstOr(other.Tags, im.ID))
	case "only the name":
		id, ref, spec.UserSpecifiedImage = "", "", ""
		spec.Image = short(firstOr(other.Tags, im.ID))
	}
	return id, ref, spec
}

// short returns the short form of a tag, as users write it.
func short(tag string) string {
	if at, ok := strings.CutPrefix(tag, "docker.io/old/"); ok {
		return "index.docker.io/old/" + at
	}
	if at, ok := strings.CutPrefix(tag, "docker.io/library/old"); ok {
		return "docker.io/old" + at
	}
	tag = strings.TrimSuffix(strings.TrimPrefix(tag, "docker.io/"), ":latest")
	return strings.TrimPrefix(tag, "library/")
}

func firstOr(s []string, other string) string {
	if len(s) == 0 {
		return other
	}
	return s[0]
}

func (n *node) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at := slices.IndexFunc(n.containers, func(c *box) bool { return c.id == id })
	if at < 0 {
		return nil, grpcstatus.Error(codes.NotFound, "fault:status")
	}
	c := n.containers[at]
	switch {
	case c.Gone:
		return nil, grpcstatus.Error(codes.NotFound, "fault:status")
	case c.Mute:
		return nil, grpcstatus.Error(codes.Unknown, "fault:status")
	}
	status := &runtimeapi.ContainerStatus{Id: c.id, State: c.state()}
	status.ImageId, status.ImageRef, status.Image = c.imageID, c.ref, c.spec
	if c.volume != nil {
		status.Mounts = []*runtimeapi.Mount{{ContainerPath: "/etc"}, {Image: c.volume}}
	}
	if n.answers == nil {
		n.answers = map[string]int{}
	}
	n.answers[c.id]++
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}

// volume returns the image of a volume in a container status.
func (n *node) volume(c Container) *runtimeapi.ImageSpec {
	if c.Volume == 0 {
		return nil
	}
	im := n.w.Images[c.Volume-1]
	switch c.By {
	case "tag":
		return &runtimeapi.ImageSpec{Image: firstOr(im.Tags, im.ID)}
	case "digest":
		return &runtimeapi.ImageSpec{Image: firstOr(im.Digests, im.ID)}
	case "user":
		return &runtimeapi.ImageSpec{Image: "sha256:" + strings.Repeat("e", 64), UserSpecifiedImage: firstOr(im.Tags, im.ID)}
	default:
		return &runtimeapi.ImageSpec{Image: im.ID}
	}
}

func (n *node) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	err := n.removeImage(ctx, spec)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.tries = append(n.tries, try{n.w.name(spec.GetImage(), spec.GetRuntimeHandler()), err})
	return err
}

func (n *node) removeImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	n.mu.Lock()
	im := n.image(spec.GetImage(), spec.GetRuntimeHandler())
	if im != nil {
		if c, comes := n.visitor(im); comes {
			n.create(c)
		}
	}
	n.mu.Unlock()
	switch {
	case im == nil:
		return nil
	case im.Slow > callLimit:
		sleep(ctx, callLimit)
		return grpcstatus.Error(codes.DeadlineExceeded, "fault:hang")
	}
	sleep(ctx, im.Slow)
	if im.Stuck {
		return grpcstatus.Error(codes.Unknown, "fault:stuck")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.present = slices.DeleteFunc(n.present, func(i int) bool { return n.w.Images[i] == im })
	if im.NotFound {
		return grpcstatus.Error(codes.NotFound, "fault:not found")
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
