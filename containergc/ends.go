package containergc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// fillEnds notes when what is dead ended, as far as rules ask. So that a clock that has
// stepped back makes nothing young for ever, that is no later than any time at which it
// was seen. With all, what is not in the input is forgotten.
func (m *Manager) fillEnds(ctx context.Context, in *Input, all bool) (errs []error) {
	if !in.Policy.needsEnd() {
		return nil
	}
	ends, errs := m.fillContainerEnds(ctx, in, all)
	if all {
		m.ends = ends
	} else {
		maps.Copy(m.ends, ends)
	}
	return errs
}

// fillContainerEnds does so for containers. One whose end is not known counts as ended
// now, and is asked for again: at once if the runtime reported an error, and later if it
// did not answer. Then no other is asked for in this pass, for thousands would take hours.
func (m *Manager) fillContainerEnds(ctx context.Context, in *Input, all bool) (ends map[string]time.Time, errs []error) {
	ends = make(map[string]time.Time, len(m.ends))
	asks, hung := map[string]failure{}, false
	for i := range in.Snapshot.Containers {
		c := &in.Snapshot.Containers[i]
		if !dead(c) {
			continue
		}
		ask, failed := m.asks[c.ID]
		if m.mustAsk(c) && (hung || failed && ask.holds(in.Now)) {
			if failed {
				asks[c.ID] = ask
			}
			continue
		}
		end, err := m.endOf(ctx, c, in.Now)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			asks[c.ID], hung = ask.again(in.Now), true
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, err)
		default:
			c.FinishedAt, ends[c.ID] = end, end
		}
	}
	if all {
		m.asks = asks
	} else {
		maps.Copy(m.asks, asks)
	}
	return ends, errs
}

// dead says whether a container has ended, or may have.
func dead(c *Container) bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// mustAsk reports whether the runtime must be asked when a dead container ended.
func (m *Manager) mustAsk(c *Container) bool {
	_, known := m.ends[c.ID]
	return !known && c.FinishedAt.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// endOf returns when a dead container ended, or was first seen dead if that is not
// known.
func (m *Manager) endOf(ctx context.Context, c *Container, now time.Time) (end time.Time, err error) {
	end, known := m.ends[c.ID]
	if !known {
		end = c.FinishedAt
	}
	if m.mustAsk(c) {
		if end, err = m.askEnd(ctx, c.ID); err != nil {
			return end, err
		}
	}
	if end.IsZero() || end.After(now) {
		end = now
	}
	return end, nil
}

// askTimeout bounds the question: all passes wait for it.
const askTimeout = 10 * time.Second

// askEnd asks the runtime when a container ended. One that is gone or does not tell
// has no time.
func (m *Manager) askEnd(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, min(m.cfg.CallTimeout, askTimeout))
	defer cancel()
	resp, err := m.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err = ignoreGone(err); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // a gRPC status is not that of a context
			err = errors.Join(err, ctx.Err())
		}
		return time.Time{}, fmt.Errorf("ask when container %s ended: %w", id, err)
	}
	return timeOf(resp.GetStatus().GetFinishedAt()), nil
}
