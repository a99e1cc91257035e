package imagegc

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxNames is how many names of an image a node status has.
const maxNames = 5

// Images returns the images for the status of a node, as they were last listed: the
// largest first, by id downwards where sizes are equal, at most MaxNodeImages of
// them, each with at most five names, digests before tags. The list is the caller's.
func (m *Manager) Images() []corev1.ContainerImage {
	m.mu.Lock()
	images := slices.Clone(m.images)
	m.mu.Unlock()
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), strings.Compare(b.Id, a.Id))
	})
	if limit := m.cfg.MaxNodeImages; limit >= 0 && limit < len(images) {
		images = images[:limit]
	}
	out := make([]corev1.ContainerImage, len(images))
	for i, img := range images {
		names := slices.Concat(img.RepoDigests, img.RepoTags)
		out[i] = corev1.ContainerImage{
			Names:     names[:min(len(names), maxNames)],
			SizeBytes: int64(min(img.Size, 1<<63-1)),
		}
	}
	return out
}
