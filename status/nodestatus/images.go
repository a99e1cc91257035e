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
	// DefaultMaxImages is how many images the status of a node has by default.
	DefaultMaxImages = 50
	// maxImageNames is how many names each of them has at most.
	maxImageNames = 5
)

// Images returns a runtime's images as a node reports them: the largest first, most of them at
// most, each with up to five names, digests before tags. A negative number means all. Images
// are neither modified nor retained.
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
