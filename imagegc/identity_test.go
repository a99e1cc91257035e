package imagegc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/imagegc"
)

// script is a runtime with fixed responses.
type script struct {
	mu         sync.Mutex // guards the fields that calls change
	images     []*runtimeapi.Image
	containers []*runtimeapi.Container
	mounts     map[string][]*runtimeapi.Mount // by container
	statuses   []string                       // container IDs whose status was requested
	removed    []*runtimeapi.ImageSpec
}

func (s *script) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	return s.images, nil
}

func (s *script) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed = append(s.removed, spec)
	s.images = slices.DeleteFunc(slices.Clone(s.images), func(i *runtimeapi.Image) bool {
		return i.GetId() == spec.Image && i.GetSpec().GetRuntimeHandler() == spec.RuntimeHandler
	})
	return nil
}

func (s *script) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.containers, nil
}

func (s *script) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses = append(s.statuses, id)
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id, Mounts: s.mounts[id]}}, nil
}

func (s *script) Usage(context.Context) (imagegc.Usage, error) {
	return imagegc.Usage{CapacityBytes: 100, AvailableBytes: 50}, nil
}

// manager returns a Manager with a MinAge of 0.
func (s *script) manager(tb testing.TB, options ...func(*imagegc.Config)) *imagegc.Manager {
	tb.Helper()
	cfg := imagegc.Config{
		Images: s, Runtime: s, FS: s, Policy: imagegc.Policy{MinAge: new(time.Duration(0))},
		Clock: testingclock.NewFakeClock(noon()),
	}
	for _, option := range options {
		option(&cfg)
	}
	m, err := imagegc.New(cfg)
	require.NoError(tb, err)
	return m
}

const (
	hexA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hexB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	hexC = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

// web is an image with all kinds of names.
func web() *runtimeapi.Image {
	return &runtimeapi.Image{
		Id: "sha256:" + hexA, Size: 1,
		RepoTags:    []string{"docker.io/library/web:latest", "docker.io/library/web:1", "registry.example:5000/team/web:1"},
		RepoDigests: []string{"docker.io/library/web@sha256:" + hexB},
	}
}

// names returns names that a container or a lease may use, and whether they refer to web.
func names() map[string]bool {
	return map[string]bool{
		"sha256:" + hexA:                         true,
		hexA:                                     true,
		"sha256:" + hexB:                         true,
		hexB:                                     true,
		"docker.io/library/web@sha256:" + hexB:   true,
		"web@sha256:" + hexB:                     true,
		"mirror.example/web@sha256:" + hexB:      true,
		"web:9@sha256:" + hexB:                   true,
		"docker.io/library/web:1":                true,
		"docker.io/web:1":                        true,
		"index.docker.io/library/web:1":          true,
		"library/web:1":                          true,
		"web:1":                                  true,
		"web":                                    true,
		"registry.example:5000/team/web:1":       true,
		"":                                       false,
		"web:2":                                  false,
		"team/web:1":                             false,
		"registry.example:5000/team/web":         false,
		"localhost/web:1":                        false,
		"docker.io/library/web@sha256:" + hexC:   false,
		"docker.io/library/web:1@sha256:" + hexC: false,
		"sha256:" + hexC:                         false,
		strings.ToUpper(hexA):                    false,
		"index.docker.io/team/web:1":             false,
		"registry.example:5000/team/web:1:1/with/nonsense": false,
	}
}

func TestUse_ByAnyNameOfTheImage(t *testing.T) { // by id, digest and tag alike
	for name, used := range names() {
		for field, c := range map[string]*runtimeapi.Container{
			"ImageId":   {ImageId: name},
			"ImageRef":  {ImageRef: name},
			"Image":     {Image: &runtimeapi.ImageSpec{Image: name}},
			"specified": {Image: &runtimeapi.ImageSpec{UserSpecifiedImage: name}},
		} {
			t.Run(field+"="+name, func(t *testing.T) {
				c.Id = "c"
				s := &script{images: []*runtimeapi.Image{web()}, containers: []*runtimeapi.Container{c}}
				require.NoError(t, s.manager(t).DeleteUnusedImages(t.Context()))
				require.Equal(t, used, len(s.images) == 1)
			})
		}
	}
}

func TestAcquire_ByAnyNameOfTheImage(t *testing.T) {
	for name, leased := range names() {
		t.Run(name, func(t *testing.T) {
			s := &script{images: []*runtimeapi.Image{web()}}
			m := s.manager(t)
			release := m.Acquire(name, "me", time.Hour)
			require.NoError(t, m.DeleteUnusedImages(t.Context()))
			require.Equal(t, leased, len(s.images) == 1)
			release()
			require.NoError(t, m.DeleteUnusedImages(t.Context()))
			require.Empty(t, s.images)
		})
	}
}

func TestUse_RuntimeSpecificIDs(t *testing.T) {
	s := &script{
		images:     []*runtimeapi.Image{{Id: "image-1", Size: 1}, {Id: "image-2", Size: 1}},
		containers: []*runtimeapi.Container{{Id: "c", ImageId: "image-1"}},
	}
	m := s.manager(t)
	release := m.Acquire("image-2", "me", 0)
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Len(t, s.images, 2)
	release()
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, "image-1", s.images[0].Id)
}

func TestUse_ImageVolume(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "models:1 1GiB", "other:1 1GiB"})
	_, sandbox := r.create("app:1", "models:1")
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1 models:1", r.there())
	require.NoError(t, r.node.RemovePodSandbox(t.Context(), sandbox))
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Empty(t, r.there())
}

func handled(id, handler string) *runtimeapi.Image {
	return &runtimeapi.Image{Id: id, Size: 1, Spec: &runtimeapi.ImageSpec{RuntimeHandler: handler}}
}

func TestUse_ImagesOfRuntimeHandlersAreSeparate(t *testing.T) {
	s := &script{
		images: []*runtimeapi.Image{handled(hexA, "kata"), handled(hexA, "runc"), handled(hexA, ""), handled(hexB, "kata"), handled(hexB, "runc")},
		containers: []*runtimeapi.Container{
			{Id: "1", ImageId: hexA, Image: &runtimeapi.ImageSpec{RuntimeHandler: "kata"}},
			{Id: "2", ImageId: hexB},
		},
	}
	require.NoError(t, s.manager(t).DeleteUnusedImages(t.Context()))
	require.Empty(t, s.removed, "without the feature gate, the image must not be deleted")
	m := s.manager(t, func(c *imagegc.Config) { c.RuntimeClassInImageCriAPI = true })
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, []*runtimeapi.ImageSpec{{Image: hexA, RuntimeHandler: "runc"}}, s.removed,
		"a container without a runtime handler must protect the image for all handlers")

	s.containers = s.containers[:1]
	s.containers[0] = &runtimeapi.Container{Id: "1", ImageId: hexA, ImageRef: "changed", Image: &runtimeapi.ImageSpec{RuntimeHandler: "runc"}}
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, []*runtimeapi.Image{handled(hexA, "")}, s.images)
}

func TestUse_ImageVolumeWithRuntimeHandlers(t *testing.T) { // the kubelet looks it up with another key
	s := &script{
		images:     []*runtimeapi.Image{handled(hexA, "kata"), handled(hexB, "kata"), handled(hexC, "kata")},
		containers: []*runtimeapi.Container{{Id: "1", ImageId: hexA, Image: &runtimeapi.ImageSpec{RuntimeHandler: "kata"}}},
		mounts:     map[string][]*runtimeapi.Mount{"1": {{Image: &runtimeapi.ImageSpec{Image: hexB}}, {HostPath: "/etc"}, nil}},
	}
	require.NoError(t, s.manager(t).DeleteUnusedImages(t.Context()))
	require.Equal(t, []*runtimeapi.Image{handled(hexA, "kata"), handled(hexB, "kata")}, s.images)
}

func TestUse_TagThatHasMoved(t *testing.T) {
	s := &script{
		images: []*runtimeapi.Image{{Id: hexA}, {Id: hexB, RepoTags: []string{"docker.io/library/web:1"}}, {Id: hexC}},
		containers: []*runtimeapi.Container{
			{Id: "1", ImageId: hexA, Image: &runtimeapi.ImageSpec{Image: hexA, UserSpecifiedImage: "web:1"}},
		},
	}
	require.NoError(t, s.manager(t).DeleteUnusedImages(t.Context()))
	require.Len(t, s.images, 2, "the image in use and the image of the next restart must be kept")
}

func TestCollect_UntaggedAndDoublyListedImages(t *testing.T) {
	s := &script{images: []*runtimeapi.Image{nil, {Id: hexA, Size: 3}, {Id: hexA, Size: 3}, {Size: 9}, {Id: hexB, Size: 1}, {Size: 9}}}
	var events recorder
	m := s.manager(t, func(c *imagegc.Config) { c.Events, c.Node = &events, &corev1.Node{} })
	plan, err := m.Plan(t.Context())
	require.NoError(t, err)
	require.Len(t, plan.Decisions, 4)
	require.Empty(t, events)
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, recorder{"Warning InvalidImageID ImageID is not valid, skipping, image: "}, events)
	require.Len(t, s.removed, 2)
	require.NotContains(t, s.removed, &runtimeapi.ImageSpec{}, "no deletion may use an empty ID")
}

func TestInspect_OneStatusPerContainer(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB"})
	for range 20 {
		r.create("app:1")
	}
	require.NoError(t, r.Detect(t.Context()))
	require.Equal(t, 20, r.calls("ContainerStatus"))
	for range 5 {
		require.NoError(t, r.Detect(t.Context()))
		require.NoError(t, r.collect())
	}
	require.Equal(t, 20, r.calls("ContainerStatus"))
	r.create("app:1")
	require.NoError(t, r.Detect(t.Context()))
	require.NoError(t, r.Detect(t.Context()))
	require.Equal(t, 21, r.calls("ContainerStatus"))
}

// snapshot is a runtime that responds with an earlier list.
type snapshot struct {
	imagegc.Runtime
	list []*runtimeapi.Container
}

func (s snapshot) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return s.list, nil
}

func TestInspect_ContainersFromASnapshot(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "b:1 1GiB"})
	r.create("app:1")
	list, err := r.node.ListContainers(t.Context(), nil)
	require.NoError(t, err)
	lists := r.calls("ListContainers")
	m := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge, c.Runtime = new(time.Duration(0)), snapshot{r.node, list}
	})
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1", r.there())
	require.Equal(t, lists, r.calls("ListContainers"))
}

func TestInspect_FailureProtectsAllImages(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "models:1 1GiB"})
	id, _ := r.create("app:1", "models:1")
	require.NoError(t, r.node.Fail("ContainerStatus", fakecri.Fault{Times: 2, Err: errors.New("corrupt")}))
	require.ErrorContains(t, r.Detect(t.Context()), "status of container "+id+": ")
	r.clock.Step(3 * time.Minute)
	require.ErrorContains(t, r.DeleteUnusedImages(t.Context()), "corrupt")
	require.ErrorContains(t, r.DeleteUnusedImages(t.Context()), "corrupt")
	require.Equal(t, 2, r.calls("ContainerStatus"), "the status must not be requested in each pass")
	require.Equal(t, "app:1 models:1", r.there())
	r.clock.Step(2 * time.Minute)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1 models:1", r.there(), "now the volume's image must be protected")
}

func TestInspect_PersistentFailureProtectsAllImagesForTenMinutes(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "models:1 1GiB"})
	r.create("app:1")
	require.NoError(t, r.node.Fail("ContainerStatus", fakecri.Fault{Err: errors.New("corrupt"), Times: 1000}))
	require.Error(t, r.Detect(t.Context()))
	r.clock.Step(10*time.Minute - 1)
	require.ErrorContains(t, r.DeleteUnusedImages(t.Context()), "corrupt")
	r.clock.Step(1)
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1", r.there(), "the container's own image must be protected by the list")
}

func TestInspect_FailureOfAnExitedContainerProtectsOnlyItsImage(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "models:1 1GiB"})
	id, _ := r.create("app:1")
	require.NoError(t, r.node.StartContainer(t.Context(), id))
	require.NoError(t, r.node.StopContainer(t.Context(), id, 0))
	require.NoError(t, r.node.Fail("ContainerStatus", fakecri.Fault{Err: errors.New("corrupt"), Times: 1000}))
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1", r.there())
}

// No list contains the container of a pause image, and not every runtime pins the image.
func TestCollect_KeepsPauseImages(t *testing.T) {
	r := newRig(t, []string{
		"registry.k8s.io/pause:3.10 1MiB", "rancher/mirrored-pause:3.6 1MiB", "pause-amd64:3.1 1MiB",
		"pausetta/music:1 1MiB", "pause/music:1 1MiB", "unpaused:1 1MiB", "example.com/build-pause:1 1MiB", "example.com/pause-menu:1 1MiB",
	})
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "docker.io/rancher/mirrored-pause:3.6 pause-amd64:3.1 registry.k8s.io/pause:3.10", r.there())
	digest := imagegc.Image{ID: "x", Digests: []string{"registry:5000/pause@sha256:" + hexA}}
	v := imagegc.PlanDeletions(r.clock.Now(), []imagegc.Image{digest}, imagegc.Policy{}, imagegc.Goal{All: true})
	require.Equal(t, imagegc.ReasonSandbox, v[0].Reason)
}

func TestInspect_ContainerDeletedSinceTheListIsNoError(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB", "b:1 1GiB"})
	r.create("app:1")
	require.NoError(t, r.node.Fail("ContainerStatus", fakecri.Fault{Err: grpcstatus.Error(codes.NotFound, "gone")}))
	r.old()
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Equal(t, "app:1", r.there(), "the listed image of the container must be protected in this pass")
}

func TestCollect_SeesContainersCreatedDuringLongDeletions(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB", "c:1 1GiB"})
	r.old()
	first := true
	m := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) {
			if first {
				r.create("b:1")
				r.clock.Step(6 * time.Second)
			}
			first = false
		}
	})
	require.NoError(t, m.DeleteUnusedImages(t.Context()))
	require.Equal(t, "b:1", r.there())
}

func TestCollect_FailedListDuringLongDeletionsEndsThePass(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB", "b:1 1GiB"})
	r.old()
	m := r.manager(func(c *imagegc.Config) {
		c.Policy.MinAge = new(time.Duration(0))
		c.Observer.Removed = func(imagegc.Image, imagegc.Reason, time.Duration, error) {
			r.clock.Step(6 * time.Second)
			require.NoError(t, r.node.Fail("ListContainers", fakecri.Fault{Err: errors.New("restarting")}))
		}
	})
	require.ErrorContains(t, m.DeleteUnusedImages(t.Context()), "restarting")
	require.Equal(t, "b:1", r.there())
}

func TestCollect_ImageThatTheRuntimeDoesNotFindCountsAsDeleted(t *testing.T) {
	r := newRig(t, []string{"a:1 1GiB"})
	r.old()
	require.NoError(t, r.node.Fail("RemoveImage", fakecri.Fault{Err: grpcstatus.Error(codes.NotFound, "gone")}))
	require.NoError(t, r.DeleteUnusedImages(t.Context()))
	require.Len(t, r.last.Removed, 1)
}

func TestUse_CountsEachContainerOnce(t *testing.T) {
	r := newRig(t, []string{"app:1 1GiB tag=app:2"})
	for n := range 3 {
		r.create("app:1", "app:2")
		plan, err := r.Plan(t.Context())
		require.NoError(t, err)
		require.Equal(t, n+1, plan.Decisions[0].Image.Containers, fmt.Sprint(n))
	}
}
