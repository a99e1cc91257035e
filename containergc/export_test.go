package containergc

// Failures returns the number of objects whose removal failed.
func (m *Manager) Failures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.failures)
}
