package stats

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxFile is the size in bytes above which reading a kernel file fails, as a safeguard.
const maxFile = 4 << 20

// kernelFile is a file that is read repeatedly. The file stays open between reads, because
// opening costs more than reading. If only path is set, the first read opens the file.
type kernelFile struct {
	path string
	file *os.File
}

// read returns the current content of the file, which is valid until the next use of buf. If
// buf is too small, read replaces it. After a read error it opens the file again, because the
// cgroup may have been removed and created again.
func (f *kernelFile) read(buf *[]byte) ([]byte, error) {
	if f.file != nil {
		if b, err := readAll(f.file, buf); err == nil {
			return b, nil
		}
		f.close()
	}
	file, err := os.Open(f.path)
	if err != nil {
		return nil, err
	}
	f.file = file
	b, err := readAll(file, buf)
	if err != nil {
		f.close()
	}
	return b, err
}

// moveTo changes the path of f to path.
func (f *kernelFile) moveTo(path string) {
	if f.path != path {
		f.close()
		f.path = path
	}
}

// close closes the file. A later read opens it again.
func (f *kernelFile) close() {
	if f.file != nil {
		_ = f.file.Close() // read-only: nothing can be lost
		f.file = nil
	}
}

// readAll reads the file from its start into buf. If buf is too small, readAll replaces it.
func readAll(file *os.File, buf *[]byte) ([]byte, error) {
	if len(*buf) == 0 {
		*buf = make([]byte, 8<<10)
	}
	for n := 0; ; {
		m, err := file.ReadAt((*buf)[n:], int64(n))
		n += m
		switch {
		case errors.Is(err, io.EOF):
			return (*buf)[:n], nil
		case err != nil:
			return nil, err
		case n >= maxFile:
			return nil, fmt.Errorf("%s has more than %d bytes", file.Name(), maxFile)
		}
		*buf = append(*buf, make([]byte, len(*buf))...)
	}
}
