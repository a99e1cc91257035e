package pleg

// Memory returns how many records, dirty records and pending requests there are.
func (g *Generator) Memory() (records, dirty, requests int) {
	g.lock()
	defer g.unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.records), len(g.dirty), len(g.hints) + len(g.reinspects)
}
