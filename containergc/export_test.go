package containergc

// Failures is how many objects are remembered that would not go.
func (m *Manager) Failures() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.failures)
}
