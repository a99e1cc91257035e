package containergc

import (
	"maps"
	"time"

	"github.com/kubeparts/kubeparts/internal/backoff"
)

// A failed removal is retried after firstRetry. After each further failure the delay
// doubles, up to lastRetry.
const (
	firstRetry = time.Minute
	lastRetry  = 15 * time.Minute
)

// failure is the back-off of an object whose removal failed.
type failure struct {
	delay time.Duration
	until time.Time
}

// recordResult records a failed removal, or deletes the record after a success.
func (m *Manager) recordResult(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.failures, id)
		return
	}
	delay := backoff.Next(m.failures[id].delay, firstRetry, lastRetry)
	m.failures[id] = failure{delay, m.cfg.Clock.Now().Add(delay)}
}

// retryTimes returns when failed removals may be retried.
func (m *Manager) retryTimes() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := make(map[string]time.Time, len(m.failures))
	for id, f := range m.failures {
		at[id] = f.until
	}
	return at
}

// pruneFailures deletes the failures of objects that don't exist any more.
func (m *Manager) pruneFailures(p Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	existing := make(map[string]bool, len(p.Decisions))
	for i := range p.Decisions {
		existing[p.Decisions[i].ID] = true
	}
	maps.DeleteFunc(m.failures, func(id string, _ failure) bool { return !existing[id] })
}
