package stats

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// readFile returns what is in a file that is not worth keeping open, in buf or what
// replaces it. It is plain system calls because an os.File of a cgroup is made known
// to the runtime's poller first, which costs as much as all the rest.
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

// retry calls until no signal interrupts it.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
