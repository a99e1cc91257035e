package containergc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// setExitTimes sets the exit times of dead containers, if the policy needs them. An exit time is
// never later than the time of the first pass that listed the container as dead. Otherwise a
// container could stay young for a very long time after the clock is set back.
//
// A container whose exit time is unknown counts as exited now. If the request for its status
// fails, the request is repeated: in the next pass if the runtime returned an error, and after
// a back-off if the request timed out. After a timeout no more statuses are requested in this
// pass, because thousands of timeouts would take hours.
func (m *Manager) setExitTimes(ctx context.Context, in Input) error {
	if in.Policy.MinAge == 0 && limit(in.Policy.MaxContainers, -1) < 0 {
		return nil
	}
	var errs []error
	exitTimes, timedOut := map[string]time.Time{}, false
	for i := range in.Snapshot.Containers {
		c := &in.Snapshot.Containers[i]
		if !isDead(c) {
			continue
		}
		end := cmp.Or(m.exitTimes[c.ID], c.FinishedAt)
		if end.IsZero() && c.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			if timedOut || in.RetryAt[c.ID].After(in.Now) {
				continue
			}
			var err error
			if end, err = m.fetchExitTime(ctx, c.ID); err != nil {
				errs, timedOut = append(errs, err), errors.Is(err, context.DeadlineExceeded)
				continue
			}
		}
		if end.IsZero() || end.After(in.Now) {
			end = in.Now
		}
		c.FinishedAt, exitTimes[c.ID] = end, end
	}
	m.exitTimes = exitTimes
	return errors.Join(errs...)
}

func isDead(c *Container) bool {
	return c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// statusTimeout limits a status request, because all passes wait for it.
const statusTimeout = 10 * time.Second

// fetchExitTime requests the exit time of a container from the runtime. It returns the
// zero time if the container does not exist or the runtime does not know the time.
func (m *Manager) fetchExitTime(ctx context.Context, id string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, min(m.cfg.CallTimeout, statusTimeout))
	defer cancel()
	resp, err := m.cfg.Runtime.ContainerStatus(ctx, id, false)
	if err = ignoreNotFound(err); err != nil {
		if ctx.Err() != nil && !errors.Is(err, ctx.Err()) { // a gRPC status error does not wrap the context's error
			err = errors.Join(err, ctx.Err())
		}
		if errors.Is(err, context.DeadlineExceeded) {
			m.recordResult(id, err) // the exit time is requested again after a back-off
		}
		return time.Time{}, fmt.Errorf("get exit time of container %s: %w", id, err)
	}
	return timeOf(resp.GetStatus().GetFinishedAt()), nil
}
