package podcache

// Waiting says whether any reader waits in [Cache.GetNewerThan]: whether its
// writer should look at the runtime sooner than it would on its own account.
func (c *Cache) Waiting() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.waiting) > 0
}

// OnWait has f called whenever a reader begins to wait, by that reader and
// without a lock; it must not block. It is for the one writer of the cache, which
// may rest as long as nobody wants to know more. A later call replaces f, which may
// be nil.
func (c *Cache) OnWait(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWait = f
}
