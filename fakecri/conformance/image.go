package conformance

import (
	"slices"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func imageChecks() []check {
	return []check{
		{name: "image/pull-show-remove", run: checkImageLife},
		{name: "image/missing", run: checkImageMissing},
		{name: "image/in-use", run: checkImageInUse},
		{name: "image/filesystem", run: checkImageFilesystem},
	}
}

func (p *probe) imageStatus(name string) *runtimeapi.Image {
	p.Helper()
	r, err := p.img.ImageStatus(p.call(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	p.ok(err, "podrunner: cannot get the status of an image")
	return r.GetImage()
}

func (p *probe) listImages() []*runtimeapi.Image {
	p.Helper()
	r, err := p.img.ListImages(p.call(), &runtimeapi.ListImagesRequest{})
	p.ok(err, "imagegc: cannot list images")
	return r.GetImages()
}

func (p *probe) removeImage(name string) {
	p.Helper()
	_, err := p.img.RemoveImage(p.call(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	p.ok(err, "imagegc: cannot remove an image, or fails if it is removed already")
}

// checkImageLife is the only check that uses the image Options.PullImage.
func checkImageLife(p *probe) {
	p.removeImage(p.PullImage) // an earlier run may have left it
	p.must(p.imageStatus(p.PullImage) == nil, "podrunner: treats a removed image as present", "it exists")
	spec := &runtimeapi.ImageSpec{Image: p.PullImage}
	pull := func() string {
		r, err := p.img.PullImage(p.call(), &runtimeapi.PullImageRequest{Image: spec})
		p.ok(err, "podrunner: cannot pull an image")
		return r.GetImageRef()
	}
	ref := pull()
	p.must(ref != "" && pull() == ref, "podrunner: a second pull returns another image", "not %q", ref)

	img := p.imageStatus(p.PullImage)
	p.must(img != nil, "podrunner: pulls an existing image again and again", "no status of %s", p.PullImage)
	p.must(img.GetId() != "" && img.GetSize() > 0, "imagegc: cannot find out how much space the removal of an image frees", "%v", img)
	p.must(p.imageStatus(ref).GetId() == img.GetId(), "podrunner: an image cannot be found by the reference that its pull returned", "%s", ref)
	p.must(p.imageStatus(img.GetId()).GetId() == img.GetId(), "imagegc: an image cannot be found by its id", "%v", img)
	listed := slices.ContainsFunc(p.listImages(), func(i *runtimeapi.Image) bool {
		return i.GetId() == img.GetId() && i.GetSize() == img.GetSize() && slices.Equal(i.GetRepoTags(), img.GetRepoTags())
	})
	p.must(listed, "imagegc: the list does not agree with the status of an image", "%v", img)

	p.removeImage(img.GetId())
	p.removeImage(img.GetId())
	p.must(p.imageStatus(p.PullImage) == nil, "podrunner: treats a removed image as present", "it exists")
}

func checkImageMissing(p *probe) {
	p.must(p.imageStatus(p.MissingImage) == nil, "podrunner: treats a missing image as present", "it exists")
	p.removeImage(p.MissingImage)
	_, err := p.img.PullImage(p.call(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: p.MissingImage}})
	p.must(err != nil, "podrunner: creates containers from an image that was not pulled", "no error")
	p.must(grpcstatus.Code(err) != codes.Unavailable, "podrunner: mistakes a missing image for an unavailable runtime", "%v", err)
}

// checkImageInUse checks that the image of a container can be found by every image name
// that the container's status and list entry have.
func checkImageInUse(p *probe) {
	id := p.create(p.runPod(), "app", p.Sleeper)
	want := p.imageStatus(p.Sleeper.Image).GetId()
	p.must(want != "", "podrunner: pulls an existing image again and again", "%s has no id", p.Sleeper.Image)
	st, item := p.status(id), p.list(&runtimeapi.ContainerFilter{Id: id})
	p.must(len(item) == 1, "pleg: a container is not listed", "%v", item)
	for _, ref := range []string{st.GetImageRef(), st.GetImage().GetImage(), item[0].GetImageRef(), item[0].GetImage().GetImage()} {
		p.must(p.imageStatus(ref).GetId() == want, "imagegc: removes an image that is in use", "%q is not known, %v", ref, st)
	}
}

func checkImageFilesystem(p *probe) {
	r, err := p.img.ImageFsInfo(p.call(), &runtimeapi.ImageFsInfoRequest{})
	p.ok(err, "eviction, imagegc: cannot get the disk usage of images")
	p.must(len(r.GetImageFilesystems()) > 0, "eviction, imagegc: cannot get the disk usage of images", "%v", r)
	fs := r.GetImageFilesystems()[0]
	p.must(fs.GetFsId().GetMountpoint() != "", "eviction: cannot find out on which disk images are", "%v", fs)
	p.must(fs.GetUsedBytes() != nil && fs.GetTimestamp() > 0, "imagegc: cannot get the disk usage of images", "%v", fs)
}
