package podloop

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
)

const (
	// backoffKey is the key of the saved back-offs.
	backoffKey = "backoff.json"
	// savePeriod is the time between two comparisons after a container was started, and
	// quietPeriod while nothing starts.
	savePeriod  = 2 * time.Second
	quietPeriod = time.Hour
)

// savedBackoff saves the back-offs of restarts, so that a container that crashes again and again
// does not restart faster because the agent was restarted.
type savedBackoff struct {
	*lifecycle.Backoff
	store state.Store
	log   *slog.Logger
	loop  *loop.Loop

	saved []lifecycle.BackoffState
	quiet bool // there was no change the last time
}

// load restores the back-offs that an earlier agent has saved.
func (b *savedBackoff) load(ctx context.Context) error {
	if err := state.Load(ctx, b.store, backoffKey, &b.saved); err != nil {
		return fmt.Errorf("read restart back-offs: %w", err)
	}
	b.Restore(b.saved)
	return nil
}

// save saves the back-offs if they have changed, and returns when to compare again.
func (b *savedBackoff) save(ctx context.Context) time.Duration {
	now := b.Snapshot()
	if reflect.DeepEqual(now, b.saved) {
		if b.quiet = !b.quiet; b.quiet {
			return savePeriod
		}
		return quietPeriod
	}
	if err := state.Save(ctx, b.store, backoffKey, now); err != nil {
		b.log.WarnContext(ctx, "could not save the restart back-offs", "err", err)
	}
	b.saved, b.quiet = now, false
	return savePeriod
}
