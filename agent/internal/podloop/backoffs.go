package podloop

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
)

const (
	// backoffKey is the key of the saved back-offs.
	backoffKey = "backoff.json"
	// When a sync plans the start of a container, and when the container has started, the loop
	// compares the back-offs with the saved back-offs. It compares them again after savePeriod. If
	// that comparison finds no change, the next comparison follows after idlePeriod.
	savePeriod = 2 * time.Second
	idlePeriod = time.Hour
	// saveRetry is the time until the next attempt after a failed save. It is long, because a disk
	// may be full for a long time.
	saveRetry = time.Minute
)

// savedBackoff saves the back-offs of container restarts. Without saved back-offs, a container
// in a crash loop would restart faster after a restart of the agent.
type savedBackoff struct {
	*lifecycle.Backoff
	store state.Store
	log   *slog.Logger
	loop  *loop.Loop

	saved     []lifecycle.BackoffState
	triggered atomic.Bool // trigger was called since the last comparison
}

// trigger makes the loop compare the back-offs now, and again after savePeriod.
func (b *savedBackoff) trigger() {
	b.triggered.Store(true)
	b.loop.Trigger()
}

// load restores the back-offs that an earlier agent has saved.
func (b *savedBackoff) load(ctx context.Context) error {
	if err := state.Load(ctx, b.store, backoffKey, &b.saved); err != nil {
		return fmt.Errorf("read restart back-offs: %w", err)
	}
	b.Restore(b.saved)
	return nil
}

// save compares the back-offs with the saved back-offs, and saves them if they differ. It
// returns the time until the next comparison.
func (b *savedBackoff) save(ctx context.Context) time.Duration {
	triggered := b.triggered.Swap(false)
	now := b.Snapshot()
	if reflect.DeepEqual(now, b.saved) {
		if triggered {
			return savePeriod
		}
		return idlePeriod
	}
	if err := state.Save(ctx, b.store, backoffKey, now); err != nil {
		b.log.WarnContext(ctx, "could not save the restart back-offs, will retry", "retryIn", saveRetry, "err", err)
		return saveRetry
	}
	b.saved = now
	return savePeriod
}
