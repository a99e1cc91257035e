package podcache

// Waiting reports whether any reader waits in [Cache.GetNewerThan], so that the writer
// should list the runtime earlier than planned.
func (c *Cache) Waiting() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.waiting) > 0
}

// OnWait sets the function that is called whenever a reader begins to wait. It runs on the
// reader's goroutine, without a lock held, and must not block. It is for the writer of the
// cache, which may list less often while no reader waits. A later call replaces f; nil
// removes it.
func (c *Cache) OnWait(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWait = f
}
