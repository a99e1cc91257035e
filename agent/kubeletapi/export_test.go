package kubeletapi

import (
	"net"
	"time"
)

// NewIdleConn returns a connection with an idle timeout.
func NewIdleConn(conn net.Conn, idle time.Duration) net.Conn { return newIdleConn(conn, idle) }

// Patterns returns the patterns of the endpoints of s.
func (s *Server) Patterns() (all []string) {
	for _, e := range s.endpoints() {
		all = append(all, e.pattern)
	}
	return all
}
