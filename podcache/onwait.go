package podcache

// Waiting reports whether any reader waits in [Cache.GetNewerThan]. The writer should
// then list the runtime earlier than planned.
func (c *Cache) Waiting() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.waiting) > 0
}

// OnWait sets f, which [Cache.GetNewerThan] calls whenever it starts to wait. f runs in
// the reader's goroutine, without a lock held, and must not block. The writer of the
// cache can list the runtime less often while no reader waits, and list it at once when
// [Cache.GetNewerThan] calls f. A later call of OnWait replaces f; nil removes it.
func (c *Cache) OnWait(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWait = f
}
