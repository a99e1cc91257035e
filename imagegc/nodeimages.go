package imagegc

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/status/nodestatus"
)

// Images returns the last listed images for the node's status, sorted by descending size
// and then by descending id. It returns at most MaxNodeImages images, each with at most
// five names, digests before tags. It returns nil before the first list. The caller owns the
// result.
func (m *Manager) Images() []corev1.ContainerImage {
	m.mu.Lock()
	images := slices.Clone(m.images)
	m.mu.Unlock()
	if images == nil {
		return nil
	}
	return nodestatus.Images(images, m.cfg.MaxNodeImages)
}
