package eviction

import "sync"

// calls counts the calls of collaborators under way, each in a goroutine of its own.
// Unlike with a sync.WaitGroup, one may begin while another goroutine waits.
type calls struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when count falls to zero; nil before the first call
}

// start calls f and returns without waiting for it.
func (c *calls) start(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		c.idle = make(chan struct{})
	}
	c.count++
	go func() {
		defer c.end()
		f()
	}()
}

func (c *calls) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.count == 0 {
		close(c.idle)
	}
}

// wait returns as soon as no call is under way.
func (c *calls) wait() {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
