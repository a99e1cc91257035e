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
	p.ok(err, "podrunner: cannot tell whether an image is there")
	return r.GetImage()
}

func (p *probe) listImages() []*runtimeapi.Image {
	p.Helper()
	r, err := p.img.ListImages(p.call(), &runtimeapi.ListImagesRequest{})
	p.ok(err, "imagegc: cannot tell which images are there")
	return r.GetImages()
}

func (p *probe) removeImage(name string) {
	p.Helper()
	_, err := p.img.RemoveImage(p.call(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	p.ok(err, "imagegc: an image cannot be removed, or not again")
}

// checkImageLife is the one check that uses PullImage.
func checkImageLife(p *probe) {
	p.removeImage(p.PullImage) // where an earlier run left it
	p.must(p.imageStatus(p.PullImage) == nil, "podrunner: takes an image for present that was removed", "it is there")
	spec := &runtimeapi.ImageSpec{Image: p.PullImage}
	pull := func() string {
		r, err := p.img.PullImage(p.call(), &runtimeapi.PullImageRequest{Image: spec})
		p.ok(err, "podrunner: an image cannot be pulled")
		return r.GetImageRef()
	}
	ref := pull()
	p.must(ref != "" && pull() == ref, "podrunner: a second pull yields another image", "not %q", ref)

	img := p.imageStatus(p.PullImage)
	p.must(img != nil, "podrunner: pulls for ever an image that is there", "no status of %s", p.PullImage)
	p.must(img.GetId() != "" && img.GetSize() > 0, "imagegc: cannot tell what removing an image frees", "%v", img)
	p.must(p.imageStatus(ref).GetId() == img.GetId(), "podrunner: an image is not known by the reference of its pull", "%s", ref)
	p.must(p.imageStatus(img.GetId()).GetId() == img.GetId(), "imagegc: an image is not known by its id", "%v", img)
	listed := slices.ContainsFunc(p.listImages(), func(i *runtimeapi.Image) bool {
		return i.GetId() == img.GetId() && i.GetSize() == img.GetSize() && slices.Equal(i.GetRepoTags(), img.GetRepoTags())
	})
	p.must(listed, "imagegc: an image is not listed as it is", "%v", img)

	p.removeImage(img.GetId())
	p.removeImage(img.GetId())
	p.must(p.imageStatus(p.PullImage) == nil, "podrunner: takes an image for present that was removed", "it is there")
}

func checkImageMissing(p *probe) {
	p.must(p.imageStatus(p.MissingImage) == nil, "podrunner: takes an image for present that is not", "it is there")
	p.removeImage(p.MissingImage)
	_, err := p.img.PullImage(p.call(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: p.MissingImage}})
	p.must(err != nil, "podrunner: makes containers of an image that was not pulled", "no error")
	p.must(grpcstatus.Code(err) != codes.Unavailable, "podrunner: takes a missing image for a missing runtime", "%v", err)
}

// checkImageInUse looks whether containers and images can be brought together,
// by any of the names that a container has for its image.
func checkImageInUse(p *probe) {
	id := p.create(p.runPod(), "app", p.Sleeper)
	want := p.imageStatus(p.Sleeper.Image).GetId()
	p.must(want != "", "podrunner: pulls for ever an image that is there", "%s has no id", p.Sleeper.Image)
	st, item := p.status(id), p.list(&runtimeapi.ContainerFilter{Id: id})
	p.must(len(item) == 1, "pleg: a container is not listed", "%v", item)
	for _, ref := range []string{st.GetImageRef(), st.GetImage().GetImage(), item[0].GetImageRef(), item[0].GetImage().GetImage()} {
		p.must(p.imageStatus(ref).GetId() == want, "imagegc: removes an image that is in use", "%q is not known, %v", ref, st)
	}
}

func checkImageFilesystem(p *probe) {
	r, err := p.img.ImageFsInfo(p.call(), &runtimeapi.ImageFsInfoRequest{})
	p.ok(err, "eviction, imagegc: cannot tell how full the disk is")
	p.must(len(r.GetImageFilesystems()) > 0, "eviction, imagegc: cannot tell how full the disk is", "%v", r)
	fs := r.GetImageFilesystems()[0]
	p.must(fs.GetFsId().GetMountpoint() != "", "eviction: cannot tell which disk images are on", "%v", fs)
	p.must(fs.GetUsedBytes() != nil && fs.GetTimestamp() > 0, "imagegc: cannot tell what images take", "%v", fs)
}
