package main

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// backoffs are the delays of restarts, over restarts of the agent: a container that
// crashes all the time is not to crash faster because of them.
type backoffs struct {
	*lifecycle.Backoff
	saved []lifecycle.BackoffState
	quiet bool // there was nothing new the last time
}

const backoffKey = "backoff.json"

const (
	// settlePeriod is how soon after a container starts its delay is known.
	settlePeriod = 2 * time.Second
	// backoffPeriod is how often is looked at the delays when nothing starts.
	backoffPeriod = time.Hour
)

func (a *agent) newBackoffs(ctx context.Context) error {
	b, errRestarts := lifecycle.NewBackoff(a.opts.policies.Restarts)
	pulls, errPulls := lifecycle.NewBackoff(lifecycle.BackoffConfig{})
	if err := errors.Join(errRestarts, errPulls); err != nil {
		return err
	}
	a.pullBackoff = pulls
	a.backoff = &backoffs{Backoff: b}
	if err := state.Load(ctx, a.store, backoffKey, &a.backoff.saved); err != nil {
		a.log.WarnContext(ctx, "delays of restarts begin anew", "err", err)
	}
	b.Restore(a.backoff.saved)
	return nil
}

// saveBackoff saves the delays if they have changed, and returns when to look again.
func (a *agent) saveBackoff(ctx context.Context) time.Duration {
	b := a.backoff
	now := b.Snapshot()
	if reflect.DeepEqual(now, b.saved) {
		if b.quiet = !b.quiet; b.quiet {
			return settlePeriod
		}
		return backoffPeriod
	}
	if err := state.Save(ctx, a.store, backoffKey, now); err != nil {
		a.log.WarnContext(ctx, "saving the delays of restarts failed", "err", err)
	}
	b.saved, b.quiet = now, false
	return settlePeriod
}
