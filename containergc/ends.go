package containergc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// setEnds sets when each dead container ended, if rules ask for it. So that a clock that
// has stepped back makes nothing young for ever, that is no later than any time at which
// the container was seen dead.
//
// A container whose end is not known counts as ended now, and the runtime is asked again:
// in the next pass if it reported an error, and later if it did not answer. Then it is
// asked for no other in this pass, for thousands would take hours.
func (m *Manager) setEnds(ctx context.Context, in Input) error {
	if in.Policy.MinAge == 0 && limit(in.Policy.MaxContainers, -1) < 0 {
		return nil
	}
	var errs []error
	ends, hung := map[string]time.Time{}, false
	for i := range in.Snapshot.Containers {
		c := &in.Snapshot.Containers[i]
		if !mayHaveEnded(c) {
			continue
		}
		end := cmp.Or(m.ends[c.ID], c.FinishedAt)
		if end.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			if hung || in.RetryAt[c.ID].After(in.Now) {
				continue
			}
			var err error
			if end, err = m.askEnd(ctx, c.ID); err != nil {
				errs, hung = append(errs, err), errors.Is(err, context.DeadlineExceeded)
				continue
			}
		}
		if end.IsZero() || end.After(in.Now) {
			end = in.Now
		}
		c.FinishedAt, ends[c.ID] = end, end
	}
	m.ends = ends
	return errors.Join(errs...)
}

func mayHaveEnded(c *Container) bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// askTimeout bounds the question: all passes wait for it.
const askTimeout = 10 * time.Second

// askEnd asks the runtime when a container ended. The time is zero if the container is
// gone or the runtime does not know.
func (m *Manager) askEnd(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, min(m.cfg.CallTimeout, askTimeout))
	defer cancel()
	resp, err := m.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err = ignoreGone(err); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // a gRPC status is not that of a context
			err = errors.Join(err, ctx.Err())
		}
		if errors.Is(err, context.DeadlineExceeded) {
			m.note(id, err) // asked again after its back-off
		}
		return time.Time{}, fmt.Errorf("ask when container %s ended: %w", id, err)
	}
	return timeOf(resp.GetStatus().GetFinishedAt()), nil
}
