package containergc

import (
	"maps"
	"time"
)

// What failed to go is tried again after firstRetry, then twice as long each time,
// up to lastRetry.
const (
	firstRetry = time.Minute
	lastRetry  = 15 * time.Minute
)

// failure is what is known of an object that would not go.
type failure struct {
	delay time.Duration
	until time.Time
}

// note remembers a failure, or forgets it.
func (m *Manager) note(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.failures, id)
		return
	}
	delay := min(max(firstRetry, 2*m.failures[id].delay), lastRetry)
	m.failures[id] = failure{delay, m.cfg.Clock.Now().Add(delay)}
}

// retries returns when what failed is tried again.
func (m *Manager) retries() map[string]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := make(map[string]time.Time, len(m.failures))
	for id, f := range m.failures {
		at[id] = f.until
	}
	return at
}

// forget drops what is known of objects that are gone.
func (m *Manager) forget(p Plan) {
	m.mu.Lock()
	defer m.mu.Unlock()
	here := make(map[string]bool, len(p.Decisions))
	for i := range p.Decisions {
		here[p.Decisions[i].ID] = true
	}
	maps.DeleteFunc(m.failures, func(id string, _ failure) bool { return !here[id] })
}
