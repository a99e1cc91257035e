package podloop

import "sync"

// exits notifies a hook when the container of the hook exits.
type exits struct {
	mu    sync.Mutex
	waits map[string]chan struct{} // by container ID
}

func newExits() *exits { return &exits{waits: map[string]chan struct{}{}} }

// of returns a channel that is closed when [exits.ended] is next called for the container. It
// returns nil for an empty ID.
func (e *exits) of(id string) <-chan struct{} {
	if id == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waits[id] == nil {
		e.waits[id] = make(chan struct{})
	}
	return e.waits[id]
}

// ended records that the container has exited or no longer exists.
func (e *exits) ended(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.waits[id]; c != nil {
		close(c)
		delete(e.waits, id)
	}
}
