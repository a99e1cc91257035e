//go:build unix

package prober

import (
	"errors"
	"net"
	"syscall"
)

// isQuiet says whether nothing has come over an idle connection. It does not wait.
// If something has, that is the server's farewell, which must not be taken for the
// answer to the next request.
func isQuiet(conn net.Conn) bool {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	fd, err := raw.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = fd.Read(func(fd uintptr) bool {
		var b [1]byte
		n, err := syscall.Read(int(fd), b[:])
		quiet = n < 0 && (errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK))
		return true // one look is all
	})
	return err == nil && quiet
}
