package kubeletapi

// Patterns are those of the paths that s answers.
func (s *Server) Patterns() (all []string) {
	for _, e := range s.endpoints() {
		all = append(all, e.pattern)
	}
	return all
}
