package imagegc

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Reasons of events, the kubelet's.
const (
	eventImageGCFailed       = "ImageGCFailed"
	eventFreeDiskSpaceFailed = "FreeDiskSpaceFailed"
	eventInvalidDiskCapacity = "InvalidDiskCapacity"
	eventInvalidImageID      = "InvalidImageID"
)

// SpaceError says that all images that may go are gone and the space is still too
// little. Its text is the kubelet's.
type SpaceError struct {
	// Percent and CapacityBytes are the usage before, and of how much.
	Percent       int
	CapacityBytes uint64
	// WantBytes were to be freed, FreedBytes were.
	WantBytes, FreedBytes uint64
}

// Error says how full the filesystem was, and that little could be done about it.
func (e *SpaceError) Error() string {
	return fmt.Sprintf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). "+
		"Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
		e.Percent, formatSize(e.CapacityBytes), e.FreedBytes)
}

// formatSize writes a size with one decimal, in the largest unit of which there is
// one, and bytes whole.
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

// warn emits an event, unless it did so less than an EventPeriod ago for the same reason
// and subject.
func (m *Manager) warn(reason, subject, message string) {
	now, key := m.cfg.Clock.Now(), reason+" "+subject
	if m.cfg.Events == nil || now.Before(m.quiet[key]) {
		return
	}
	m.quiet[key] = now.Add(m.cfg.EventPeriod)
	m.cfg.Events.Eventf(m.cfg.Node, corev1.EventTypeWarning, reason, "%s", message)
}

// warnOfNoIDs makes the event about each unused image that cannot be deleted because it
// has no ID.
func (m *Manager) warnOfNoIDs() {
	for _, img := range m.images {
		key := listedKey(img)
		if img.Id == "" && !img.Pinned && m.records[key].containers == 0 {
			m.warn(eventInvalidImageID, key, "ImageID is not valid, skipping, image: "+key)
		}
	}
}

// collectInTurn is a collection of Run. A first failure may be that of a runtime
// that is just starting; the event is for the next.
func (m *Manager) collectInTurn(ctx context.Context) {
	_, err := m.Collect(ctx)
	if ctx.Err() != nil || m.lock(ctx) != nil {
		return
	}
	defer m.unlock()
	switch {
	case err == nil:
		clear(m.quiet)
	case m.failing:
		m.cfg.Logger.ErrorContext(ctx, "image garbage collection failed again", "err", err)
		m.warn(eventImageGCFailed, "", err.Error())
	default:
		m.cfg.Logger.ErrorContext(ctx, "image garbage collection failed once", "err", err)
	}
	m.failing = err != nil
}
