package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"time"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/lifecycle"
)

// checkpointVersion is that of all values here that outlive the agent. The statuses and
// the ages of images have versions of their own.
const checkpointVersion = 1

// checkpoint is a value in the store that outlives the agent.
type checkpoint struct {
	Version int             `json:"version"`
	Data    json.RawMessage `json:"data"`
}

// saveCheckpoint replaces a value whole: after a crash it is the old one or the new one.
func saveCheckpoint(ctx context.Context, store state.Store, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	whole, err := json.Marshal(checkpoint{checkpointVersion, data})
	if err != nil {
		return err
	}
	return store.Put(ctx, key, whole)
}

// loadCheckpoint reads a value. That there is none is no error: nothing is known then.
// With an error into stays as it is: a part of what was known is worse than nothing.
func loadCheckpoint[T any](ctx context.Context, store state.Store, key string, into *T) error {
	whole, err := store.Get(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var c checkpoint
	if err == nil {
		err = json.Unmarshal(whole, &c)
	}
	if err == nil && c.Version != checkpointVersion {
		err = fmt.Errorf("version %d is not %d", c.Version, checkpointVersion)
	}
	var data *T
	if err == nil {
		err = json.Unmarshal(c.Data, &data)
	}
	if err == nil && data == nil {
		err = errors.New("it holds no data")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	*into = *data
	return nil
}

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
	if err := loadCheckpoint(ctx, a.store, backoffKey, &a.backoff.saved); err != nil {
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
	if err := saveCheckpoint(ctx, a.store, backoffKey, now); err != nil {
		a.log.WarnContext(ctx, "saving the delays of restarts failed", "err", err)
	}
	b.saved, b.quiet = now, false
	return settlePeriod
}
