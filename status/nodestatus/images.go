package nodestatus

import (
	"cmp"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// DefaultMaxImages is the default maximum number of images in the status of a node.
	DefaultMaxImages = 50
	// maxImageNames is the maximum number of names of each image.
	maxImageNames = 5
)

// Images returns the images of a runtime for the status of a node, the largest image
// first. The second argument is the maximum number of images; a negative number means all.
// Each image has up to five names, digests before tags. images is neither modified nor
// retained.
func Images(images []*runtimeapi.Image, most int) []corev1.ContainerImage {
	images = slices.Clone(images)
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), strings.Compare(b.GetId(), a.GetId()))
	})
	if most >= 0 && most < len(images) {
		images = images[:most]
	}
	out := make([]corev1.ContainerImage, len(images))
	for i, img := range images {
		names := slices.Concat(img.GetRepoDigests(), img.GetRepoTags())
		out[i] = corev1.ContainerImage{
			Names:     names[:min(len(names), maxImageNames)],
			SizeBytes: int64(min(img.GetSize(), math.MaxInt64)),
		}
	}
	return out
}

func copyImages(images []corev1.ContainerImage) []corev1.ContainerImage {
	return (&corev1.NodeStatus{Images: images}).DeepCopy().Images
}
