package kubeletapi

// Patterns returns the patterns of the endpoints of s.
func (s *Server) Patterns() (all []string) {
	for _, e := range s.endpoints() {
		all = append(all, e.pattern)
	}
	return all
}
