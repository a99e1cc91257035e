package stats

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// readFile returns the content of a file that is read too rarely to stay open. The
// content is valid until the next use of buf. If buf is too small, readFile replaces
// it. It uses plain system calls: os.File registers files of cgroups with the poller
// of the Go runtime, which costs as much as the rest of the call.
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

// retry repeats call as long as a signal interrupts it.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
