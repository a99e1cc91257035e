package podcache

// Waiters returns how many calls of GetNewerThan wait.
func (c *Cache) Waiters() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ws := range c.waiting {
		n += max(len(ws), 1) // a pod without waiters must not be in the map
	}
	return n
}

// Memory returns the numbers of entries, absent entries and excluded entries.
func (c *Cache) Memory() (entries, absent, held int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), len(c.absent), len(c.excluded)
}
