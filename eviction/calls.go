package eviction

import "sync"

// calls counts the running calls of the Killer, the ContainerGC and the ImageGC. Each call runs
// on its own goroutine.
// Unlike with a sync.WaitGroup, a call may start while another goroutine is waiting.
type calls struct {
	mu    sync.Mutex
	count int
	idle  chan struct{} // closed when count falls to zero; nil before the first call
}

// start runs f on a new goroutine.
func (c *calls) start(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		c.idle = make(chan struct{})
	}
	c.count++
	go func() {
		defer c.done()
		f()
	}()
}

func (c *calls) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count--
	if c.count == 0 {
		close(c.idle)
	}
}

// wait returns when no call is running.
func (c *calls) wait() {
	c.mu.Lock()
	idle := c.idle
	c.mu.Unlock()
	if idle != nil {
		<-idle
	}
}
