package podloop

import "sync"

// exits reports the ends of containers to hooks that run beside them.
type exits struct {
	mu    sync.Mutex
	waits map[string]chan struct{} // by container ID
}

func newExits() *exits { return &exits{waits: map[string]chan struct{}{}} }

// of returns a channel that is closed when the container has ended.
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

// ended records that the container has ended, or does not exist any more.
func (e *exits) ended(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.waits[id]; c != nil {
		close(c)
		delete(e.waits, id)
	}
}
