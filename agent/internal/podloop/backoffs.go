package podloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"reflect"
	"time"

	"github.com/kubeparts/kubeparts/agent/state"
	"github.com/kubeparts/kubeparts/internal/loop"
	"github.com/kubeparts/kubeparts/lifecycle"
)

const (
	// backoffKey is the key of the saved back-offs, and backoffVersion the version of the
	// value.
	backoffKey     = "backoff.json"
	backoffVersion = 1
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

// backoffValue is what is saved.
type backoffValue struct {
	Version int                       `json:"version"`
	Data    *[]lifecycle.BackoffState `json:"data"`
}

// load restores the back-offs that an earlier agent has saved.
func (b *savedBackoff) load(ctx context.Context) error {
	text, err := b.store.Get(ctx, backoffKey)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read restart back-offs: %w", err)
	}
	var v backoffValue
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("read restart back-offs: %s: %w", backoffKey, err)
	}
	if v.Version != backoffVersion || v.Data == nil {
		return fmt.Errorf("read restart back-offs: %s: no data of version %d", backoffKey, backoffVersion)
	}
	b.saved = *v.Data
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
	if err := b.put(ctx, now); err != nil {
		b.log.WarnContext(ctx, "could not save the restart back-offs", "err", err)
	}
	b.saved, b.quiet = now, false
	return savePeriod
}

func (b *savedBackoff) put(ctx context.Context, now []lifecycle.BackoffState) error {
	text, err := json.Marshal(backoffValue{Version: backoffVersion, Data: &now})
	if err != nil {
		return err
	}
	return b.store.Put(ctx, backoffKey, text)
}
