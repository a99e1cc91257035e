package imagegc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// Images returns the images for the status of a node, as they were last listed: the
// largest first, by id downwards where sizes are equal, at most MaxNodeImages of
// them, each with at most five names, digests before tags. The list is the caller's.
func (m *Manager) Images() []corev1.ContainerImage {
	m.mu.Lock()
	images := slices.Clone(m.images)
	m.mu.Unlock()
	return nodestatus.Images(images, m.cfg.MaxNodeImages)
}
