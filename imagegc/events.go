package imagegc

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Event reasons of the kubelet.
const (
	eventImageGCFailed       = "ImageGCFailed"
	eventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	eventInvalidDiskCapacity = "InvalidDiskCapacity"
	eventInvalidImageID      = "InvalidImageID"
)

// SpaceError is returned if all unprotected images were deleted and there is still too
// little space. Its text is the kubelet's.
type SpaceError struct {
	// Percent is the usage before the deletions, CapacityBytes the size of the
	// filesystem.
	Percent       int
	CapacityBytes uint64
	// WantBytes is how much had to be freed, FreedBytes how much was freed.
	WantBytes, FreedBytes uint64
}

// Error returns the kubelet's message.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		e.Percent, formatSize(e.CapacityBytes), e.FreedBytes)
}

// formatSize returns a size with one decimal in the largest fitting unit; bytes have no
// decimal.
func formatSize(bytes uint64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	size, units := float64(bytes), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	for size >= 1024 && len(units) > 1 {
		size, units = size/1024, units[1:]
	}
	return fmt.Sprintf("%.1f %s", size, units[0])
}

// warn records an event, unless an event with the same reason and subject was recorded
// less than an EventPeriod ago.
func (m *Manager) warn(reason, subject, message string) {
	now, key := m.cfg.Clock.Now(), reason+" "+subject
	if m.cfg.Events == nil || now.Before(m.eventAllowedAt[key]) {
		return
	}
	m.eventAllowedAt[key] = now.Add(m.cfg.EventPeriod)
	m.cfg.Events.Eventf(m.cfg.Node, corev1.EventTypeWarning, reason, "%s", message)
}

// warnOfNoIDs records an event for each unused image that cannot be deleted because it
// has no ID.
func (m *Manager) warnOfNoIDs() {
	for _, img := range m.images {
		key := listedKey(img)
		if img.Id == "" && !img.Pinned && m.records[key].containers == 0 {
			m.warn(eventInvalidImageID, key, "ImageID is not valid, skipping, image: "+key)
		}
	}
}

// collectAndReport runs a periodic collection. The first of consecutive failures is only
// logged, because the runtime may be starting. The next failures also cause an event.
func (m *Manager) collectAndReport(ctx context.Context) {
	_, err := m.Collect(ctx)
	if ctx.Err() != nil || m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	switch {
	case err == nil:
		clear(m.eventAllowedAt)
	case m.lastFailed:
		m.cfg.Logger.ErrorContext(ctx, "image garbage collection failed repeatedly, will retry", "err", err)
		m.warn(eventImageGCFailed, "", err.Error())
	default:
		m.cfg.Logger.ErrorContext(ctx, "image garbage collection failed, will retry", "err", err)
	}
	m.lastFailed = err != nil
}
