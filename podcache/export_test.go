package podcache

// Waiters returns how many waiters are in the lists and in the heap.
func (c *Cache) Waiters() (listed, heaped int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting.byUID {
		for ; w != nil; w = w.next {
			listed++
		}
	}
	return listed, len(c.waiting.byTime)
}

// Memory returns how many entries, tombstones and holds there are.
func (c *Cache) Memory() (entries, absent, held int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries), len(c.absent), len(c.held)
}
