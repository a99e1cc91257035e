package kubeletapi

import (
	"net"
	"time"
)

// NewIdleConn returns a connection that is closed after an idle timeout.
func NewIdleConn(conn net.Conn, idle time.Duration) net.Conn {
	return newIdleConn(conn, idle, func() { _ = conn.Close() })
}

// Patterns returns the patterns of the endpoints of s.
func (s *Server) Patterns() (all []string) {
	for _, e := range s.endpoints() {
		all = append(all, e.pattern)
	}
	return all
}
