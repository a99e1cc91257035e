package stats

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// readFile returns the content of a file that is not worth keeping open, in buf or its
// replacement. It uses plain system calls: os.File registers files of cgroups with the
// runtime's poller, which costs as much as the rest of the call.
func readFile(path string, buf *[]byte) ([]byte, error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }() // read-only
	if len(*buf) == 0 {
		*buf = make([]byte, 8<<10)
	}
	for n := 0; n < maxFile; {
		m, err := retry(func() (int, error) { return unix.Read(fd, (*buf)[n:]) })
		switch {
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case m == 0:
			return (*buf)[:n], nil
		}
		if n += m; n == len(*buf) {
			*buf = append(*buf, make([]byte, len(*buf))...)
		}
	}
	return nil, fmt.Errorf("%s has more than %d bytes", path, maxFile)
}

// retry repeats a call while signals interrupt it.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
