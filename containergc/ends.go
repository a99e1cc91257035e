package containergc

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fillEnds notes when what is dead ended, as far as rules ask. So that a clock that has
// stepped back makes nothing young for ever, that is no later than when it was first
// seen. With all, what is not in the input is forgotten.
func (m *Manager) fillEnds(ctx context.Context, in *Input, all bool) (errs []error) {
	if !in.Policy.needsEnd() {
		return nil
	}
	ends, boxEnds := make(map[string]time.Time, len(m.ends)), make(map[string]time.Time, len(m.boxEnds))
	for i := range in.Snapshot.Containers {
		c := &in.Snapshot.Containers[i]
		if !dead(c) {
			continue
		}
		end, err := m.endOf(ctx, c, in.Now)
		if err != nil {
			errs = append(errs, err)
			continue // counts as ended now, and is asked again
		}
		c.FinishedAt, ends[c.ID] = end, end
	}
	for i := range in.Snapshot.Sandboxes {
		if b := &in.Snapshot.Sandboxes[i]; !b.Ready {
			end, known := m.boxEnds[b.ID]
			if !known {
				end = in.Now
			}
			b.EndedAt, boxEnds[b.ID] = end, end
		}
	}
	if all {
		m.ends, m.boxEnds = ends, boxEnds
	}
	return errs
}

// dead says whether a container has ended, or may have.
func dead(c *Container) bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// endOf returns when a dead container ended, or was first seen dead if that is not
// known.
func (m *Manager) endOf(ctx context.Context, c *Container, now time.Time) (end time.Time, err error) {
	if end, known := m.ends[c.ID]; known {
		return end, nil
	}
	if end = c.FinishedAt; end.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
		if end, err = m.askEnd(ctx, c.ID); err != nil {
			return end, err
		}
	}
	if end.IsZero() || end.After(now) {
		end = now
	}
	return end, nil
}

// askEnd asks the runtime when a container ended. One that is gone or does not tell
// has no time.
func (m *Manager) askEnd(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.CallTimeout)
	defer cancel()
	resp, err := m.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err = ignoreGone(err); err != nil {
		return time.Time{}, fmt.Errorf("ask when container %s ended: %w", id, err)
	}
	return timeOf(resp.GetStatus().GetFinishedAt()), nil
}

// fillBytes notes how much disk the containers take.
func (m *Manager) fillBytes(ctx context.Context, in *Input) error {
	stats, err := m.cfg.Sizer.ListContainerStats(ctx, nil)
	if err != nil {
		return fmt.Errorf("list container stats: %w", err)
	}
	bytes := make(map[string]int64, len(stats))
	for _, s := range stats {
		bytes[s.GetAttributes().GetId()] = int64(min(s.GetWritableLayer().GetUsedBytes().GetValue(), 1<<62))
	}
	for i := range in.Snapshot.Containers {
		c := &in.Snapshot.Containers[i]
		c.Bytes = bytes[c.ID]
	}
	return nil
}
