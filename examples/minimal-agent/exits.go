package main

import "sync"

// exits tells when containers end, to hooks that run beside them.
type exits struct {
	mu    sync.Mutex
	ended map[string]chan struct{}
}

func newExits() *exits { return &exits{ended: map[string]chan struct{}{}} }

// of returns a channel that is closed when the container of that id has ended.
func (e *exits) of(id string) <-chan struct{} {
	if id == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ended[id] == nil {
		e.ended[id] = make(chan struct{})
	}
	return e.ended[id]
}

// tell says that the container has ended, or is gone.
func (e *exits) tell(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.ended[id]; c != nil {
		close(c)
		delete(e.ended, id)
	}
}
